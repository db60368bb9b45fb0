//! Endpoints as a hub tells them, which may have fields that we do not know. The compiler sees to it that those we know are all
//! here.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::dns_endpoint::{EndpointSpec, ProviderSpecific};

pub(super) fn endpoints<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<EndpointSpec>, D::Error> {
    let told: Vec<One> = Vec::deserialize(deserializer)?;
    Ok(told.into_iter().map(|One(endpoint)| endpoint).collect())
}

#[derive(Deserialize)]
struct One(#[serde(with = "Told")] EndpointSpec);

#[derive(Deserialize)]
#[serde(remote = "EndpointSpec", rename_all = "camelCase")]
struct Told {
    #[serde(default)]
    dns_name: String,
    #[serde(default)]
    targets: Vec<String>,
    #[serde(default)]
    record_type: String,
    #[serde(default)]
    set_identifier: String,
    #[serde(default, rename = "recordTTL")]
    record_ttl: i64,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "properties")]
    provider_specific: Vec<ProviderSpecific>,
}

fn properties<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ProviderSpecific>, D::Error> {
    let told: Vec<Property> = Vec::deserialize(deserializer)?;
    Ok(told.into_iter().map(|Property { name, value }| ProviderSpecific { name, value }).collect())
}

#[derive(Deserialize)]
struct Property {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::agents::{ClaimChanges, ClaimList, JudgeRequest, VerdictList};
    use crate::dns_endpoint::{EndpointSpec, ProviderSpecific};

    fn endpoint() -> EndpointSpec {
        EndpointSpec {
            dns_name: "web.test".into(),
            targets: vec!["192.0.2.1".into()],
            record_type: "A".into(),
            set_identifier: "s".into(),
            record_ttl: 60,
            labels: [("a".to_owned(), "b".to_owned())].into(),
            provider_specific: vec![ProviderSpecific { name: "n".into(), value: "v".into() }],
        }
    }

    /// With a field more in every object.
    fn newer(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                // Anything may be a label.
                fields.iter_mut().filter(|(name, _)| *name != "labels").for_each(|(_, value)| newer(value));
                fields.insert("newField".into(), json!({ "deep": [1] }));
            }
            Value::Array(values) => values.iter_mut().for_each(newer),
            _ => {}
        }
    }

    #[test]
    fn a_newer_hubs_answers_are_read_and_a_newer_agents_requests_are_not() {
        let claims = json!({ "key": "sync/a/b", "endpoints": [endpoint()], "digest": "d",
            "verdicts": [{ "part": "web.test A", "published": true }] });
        let mut list = json!({ "claims": [claims] });
        let before: ClaimList = serde_json::from_value(list.clone()).unwrap();
        newer(&mut list);
        assert_eq!(serde_json::from_value::<ClaimList>(list).unwrap(), before);
        assert_eq!(before.claims[0].endpoints, [endpoint()]);

        let mut verdicts =
            json!({ "revision": 1, "verdicts": [{ "key": "k", "verdicts": [{ "part": "p", "published": false }] }] });
        newer(&mut verdicts);
        let verdicts: VerdictList = serde_json::from_value(verdicts).unwrap();
        assert_eq!((verdicts.verdicts[0].digest.as_str(), verdicts.verdicts[0].verdicts.len()), ("", 1));

        let mut changes = json!({ "set": [{ "key": "k", "endpoints": [endpoint()] }], "delete": [] });
        assert!(serde_json::from_value::<ClaimChanges>(changes.clone()).is_ok());
        newer(&mut changes["set"][0]["endpoints"][0]);
        assert!(serde_json::from_value::<ClaimChanges>(changes).is_err());
        let request = json!({ "endpoints": [{ "dnsName": "a.test", "newField": 1 }] });
        assert!(serde_json::from_value::<JudgeRequest>(request).is_err());
    }
}
