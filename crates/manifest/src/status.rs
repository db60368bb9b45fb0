//! What we say of our own objects, in the form of Kubernetes' status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use model::snapshot::{Detail, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of kinds that have nothing but conditions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatus {
    /// What we say of the object: whether it is accepted and published, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneStatus {
    /// What we say of the object: whether it is accepted and published, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The SOA's serial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<u32>,
    /// Of everything in the zone but the serial: what has the same digest has the same records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// What we say of the object: whether it is accepted and published, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The name under which the API server is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_name: Option<String>,
    /// The wildcard under which the applications are reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apps_name: Option<String>,
    /// How many of its nodes are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_nodes: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressClaimStatus {
    /// What we say of the object: whether it is accepted and published, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The address that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// The status as it stands in the object.
pub fn to_json(status: &Status) -> serde_json::Value {
    let conditions: Vec<Condition> = status.conditions.iter().map(condition).collect();
    let written = match &status.detail {
        Detail::None => serde_json::to_value(ObjectStatus { conditions }),
        Detail::Zone { serial, digest } => {
            serde_json::to_value(ZoneStatus { conditions, serial: Some(*serial), digest: Some(digest.to_string()) })
        }
        Detail::Cluster { api_name, apps_name, ready_nodes } => serde_json::to_value(ClusterStatus {
            conditions,
            api_name: Some(api_name.to_string()),
            apps_name: Some(apps_name.to_string()),
            ready_nodes: Some(u32::try_from(*ready_nodes).unwrap_or(u32::MAX)),
        }),
    };
    written.expect("a status is made of texts and numbers")
}

fn condition(condition: &model::snapshot::Condition) -> Condition {
    let seconds = i64::try_from(condition.since.as_unix().as_secs()).unwrap_or(i64::MAX);
    Condition {
        type_: condition.kind.into(),
        status: if condition.holds { "True" } else { "False" }.into(),
        reason: condition.reason.into(),
        message: condition.message.clone(),
        last_transition_time: Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)),
        observed_generation: None,
    }
}
