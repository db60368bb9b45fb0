//! `kind: DNSEndpoint`: ExternalDNS' own object, read and written here, defined there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::{Check, plain};

/// Nothing is required, as in ExternalDNS' own definition; the policy says what an endpoint lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnsEndpointSpec {
    #[serde(default)]
    pub endpoints: Vec<EndpointSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointSpec {
    #[serde(default)]
    pub dns_name: String,
    #[serde(default)]
    pub targets: Vec<String>,
    #[serde(default)]
    pub record_type: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set_identifier: String,
    #[serde(default, rename = "recordTTL", deserialize_with = "plain")]
    pub record_ttl: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provider_specific: Vec<ProviderSpecific>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpecific {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub value: String,
}

impl Check for DnsEndpointSpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
