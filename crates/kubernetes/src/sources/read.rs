//! From objects of the API to what is known of them.

use kube::core::DynamicObject;
use manifest::dns_endpoint::{EndpointSpec, ProviderSpecific};
use model::identity::Kind;
use serde_json::Value;

use super::{Place, Source, Written};

/// `None` for an object that the API should not have given us.
pub(super) fn source(object: DynamicObject) -> Option<Source> {
    let DynamicObject { metadata, data, .. } = object;
    Some(Source {
        place: Place { namespace: metadata.namespace?, name: metadata.name? },
        uid: metadata.uid?,
        generation: metadata.generation.unwrap_or_default(),
        endpoints: endpoints(&data["spec"]["endpoints"]),
    })
}

/// What somebody else spoilt is empty, and so is written anew.
pub(super) fn written(object: DynamicObject) -> Option<Written> {
    let DynamicObject { metadata, mut data, .. } = object;
    let owners = metadata.owner_references.unwrap_or_default();
    let owner = owners.into_iter().find(|owner| owner.kind == Kind::DnsEndpoint.as_str());
    Some(Written {
        place: Place { namespace: metadata.namespace?, name: metadata.name? },
        owner: owner.map(|owner| owner.uid).unwrap_or_default(),
        spec: data.get_mut("spec").and_then(|spec| serde_json::from_value(spec.take()).ok()).unwrap_or_default(),
    })
}

/// By hand, as fields that a later ExternalDNS adds are no reason to leave a name unpublished. Labels are ExternalDNS' own
/// notes and mean nothing to a hub.
fn endpoints(list: &Value) -> Result<Vec<EndpointSpec>, String> {
    let endpoint = |(number, value): (usize, &Value)| {
        let at = |field: &str| format!("spec.endpoints[{number}].{field}");
        let specific = |(place, value): (usize, &Value)| {
            let at = |field: &str| at(&format!("providerSpecific[{place}].{field}"));
            Ok(ProviderSpecific {
                name: text(&value["name"], &at("name"))?,
                value: text(&value["value"], &at("value"))?,
            })
        };
        let given = items(&value["providerSpecific"], &at("providerSpecific"))?;
        Ok(EndpointSpec {
            dns_name: text(&value["dnsName"], &at("dnsName"))?,
            targets: texts(&value["targets"], &at("targets"))?,
            record_type: text(&value["recordType"], &at("recordType"))?,
            set_identifier: text(&value["setIdentifier"], &at("setIdentifier"))?,
            record_ttl: match &value["recordTTL"] {
                Value::Null => 0,
                ttl => ttl.as_i64().ok_or_else(|| format!("{} is no whole number", at("recordTTL")))?,
            },
            provider_specific: given.iter().enumerate().map(specific).collect::<Result<_, String>>()?,
            ..EndpointSpec::default()
        })
    };
    items(list, "spec.endpoints")?.iter().enumerate().map(endpoint).collect()
}

fn items<'a>(value: &'a Value, at: &str) -> Result<&'a [Value], String> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(format!("{at} is no list")),
    }
}

fn text(value: &Value, at: &str) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(format!("{at} is no text")),
    }
}

fn texts(value: &Value, at: &str) -> Result<Vec<String>, String> {
    items(value, at)?.iter().map(|item| text(item, &format!("an item of {at}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_are_read_as_external_dns_reads_them() {
        for (list, expected) in [
            (json!(null), Ok("[]")),
            (json!([{}]), Ok(r#"[{"dnsName":"","targets":[],"recordType":"","recordTTL":0}]"#)),
            (
                json!([{ "dnsName": "a.test", "targets": ["192.0.2.1"], "recordType": "A", "recordTTL": 60,
                    "labels": { "owner": "x" }, "addedLater": true }]),
                Ok(r#"[{"dnsName":"a.test","targets":["192.0.2.1"],"recordType":"A","recordTTL":60}]"#),
            ),
            (
                json!([{ "providerSpecific": [{ "name": "alias" }], "setIdentifier": "s" }]),
                Ok(
                    r#"[{"dnsName":"","targets":[],"recordType":"","setIdentifier":"s","recordTTL":0,"providerSpecific":[{"name":"alias","value":""}]}]"#,
                ),
            ),
            (json!({}), Err("spec.endpoints is no list")),
            (json!([{ "targets": [1] }]), Err("an item of spec.endpoints[0].targets is no text")),
            (json!([{}, { "recordTTL": 1.5 }]), Err("spec.endpoints[1].recordTTL is no whole number")),
        ] {
            let read = endpoints(&list).map(|endpoints| serde_json::to_string(&endpoints).unwrap());
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{list}");
        }
    }
}
