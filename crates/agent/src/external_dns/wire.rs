//! What ExternalDNS sends. Absent and `null` are the same to it, and fields that it adds later are not our business.

use std::collections::BTreeMap;

use manifest::dns_endpoint::EndpointSpec;
use serde::Deserialize;

use crate::link::plain;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    dns_name: Option<String>,
    targets: Option<Vec<String>>,
    record_type: Option<String>,
    set_identifier: Option<String>,
    #[serde(rename = "recordTTL")]
    record_ttl: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
}

impl Endpoint {
    /// What a provider of another kind would need to know is no concern of a hub's.
    pub(super) fn without_specifics(self) -> EndpointSpec {
        EndpointSpec {
            dns_name: self.dns_name.unwrap_or_default(),
            targets: self.targets.unwrap_or_default(),
            record_type: self.record_type.unwrap_or_default(),
            set_identifier: self.set_identifier.unwrap_or_default(),
            record_ttl: self.record_ttl.unwrap_or_default(),
            labels: self.labels.unwrap_or_default(),
            provider_specific: Vec::new(),
        }
    }
}

/// Old and new are paired by their index. Keys were capitalised up to v0.16.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Changes {
    #[serde(default, alias = "Create")]
    create: Option<Vec<Option<Endpoint>>>,
    #[serde(default, alias = "UpdateOld")]
    update_old: Option<Vec<Option<Endpoint>>>,
    #[serde(default, alias = "UpdateNew")]
    update_new: Option<Vec<Option<Endpoint>>>,
    #[serde(default, alias = "Delete")]
    delete: Option<Vec<Option<Endpoint>>>,
}

/// What `/adjustendpoints` is asked about; `null` where there are none.
pub(super) fn endpoints(body: &[u8]) -> Result<Vec<EndpointSpec>, String> {
    let endpoints: Option<Vec<Option<Endpoint>>> = serde_json::from_slice(body).map_err(|error| fault(&error))?;
    Ok(endpoints.into_iter().flatten().flatten().map(Endpoint::without_specifics).collect())
}

fn fault(error: &serde_json::Error) -> String {
    plain(&error.to_string())
}

impl Changes {
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        // The reader would take a list for the fields in their order.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err("changes are a JSON object".into());
        }
        serde_json::from_slice(body).map_err(|error| fault(&error))
    }

    /// What goes, and what comes or stays with other content.
    pub(super) fn split(self) -> (Vec<EndpointSpec>, Vec<EndpointSpec>) {
        let all = |lists: [Option<Vec<Option<Endpoint>>>; 2]| {
            let endpoints = lists.into_iter().flatten().flatten().flatten();
            endpoints.map(Endpoint::without_specifics).collect()
        };
        (all([self.delete, self.update_old]), all([self.update_new, self.create]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_all_versions_are_read() {
        let names = |endpoints: Vec<EndpointSpec>| endpoints.into_iter().map(|endpoint| endpoint.dns_name).collect();
        for (text, gone, come) in [
            ("{}", vec![], vec![]),
            (
                r#"{"create":[{"dnsName":"a","targets":["192.0.2.1"],"recordTTL":5,"labels":{"owner":"x"}}]}"#,
                vec![],
                vec!["a"],
            ),
            (r#"{"Create":[{"dnsName":"a"}],"UpdateOld":null,"UpdateNew":null,"Delete":[]}"#, vec![], vec!["a"]),
            (
                r#"{"updateOld":[{"dnsName":"b"}],"updateNew":[{"dnsName":"c"}],"delete":[{"dnsName":"d"}],"create":[null]}"#,
                vec!["d", "b"],
                vec!["c"],
            ),
            (
                r#"{"create":[{"dnsName":"e","targets":null,"labels":null,"providerSpecific":[{"name":"x","value":"y"}],"later":1}]}"#,
                vec![],
                vec!["e"],
            ),
        ] {
            let changes = Changes::parse(text.as_bytes()).unwrap();
            let (were, are) = changes.split();
            assert!(are.iter().all(|endpoint| endpoint.provider_specific.is_empty()));
            let (were, are): (Vec<String>, Vec<String>) = (names(were), names(are));
            assert_eq!(
                (were, are),
                (gone.into_iter().map(str::to_owned).collect(), come.into_iter().map(str::to_owned).collect()),
                "{text}"
            );
        }
        for text in
            ["", "[]", r#"{"create":{}}"#, r#"{"create":[{"targets":"a"}]}"#, r#"{"create":[{"recordTTL":"5"}]}"#]
        {
            assert!(Changes::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn wishes_may_be_null() {
        assert_eq!(endpoints(b"null"), Ok(Vec::new()));
        assert_eq!(endpoints(br#"[null,{"dnsName":"a"}]"#).unwrap().len(), 1);
        for text in ["", "{}", "[1]", r#"[{"dnsName":1}]"#] {
            assert!(endpoints(text.as_bytes()).is_err(), "{text}");
        }
    }
}
