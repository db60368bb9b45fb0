//! `kind: AddressPool` and `kind: AddressClaim`.

use std::net::IpAddr;

use kube::CustomResource;
use model::{Cidr, ClusterName, DnsName, ObjectName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::{AddressClaimStatus, ObjectStatus};
use crate::text::{Check, Text};

/// Public addresses that tenants can claim, and who answers for their reverse zones.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    plural = "addresspools",
    status = "ObjectStatus",
    printcolumn(name = "CIDRs", type_ = "string", json_path = ".spec.cidrs"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressPoolSpec {
    #[schemars(length(min = 1, max = 64))]
    pub cidrs: Vec<Text<Cidr>>,
    #[serde(default)]
    pub reverse: ReverseSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReverseSpec {
    /// Who answers for the reverse zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub nameservers: Vec<Text<DnsName>>,
}

/// A tenant's wish for one address of a pool; `status.address` is ours to give.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "AddressClaim",
    plural = "addressclaims",
    namespaced,
    status = "AddressClaimStatus",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressClaimSpec {
    pub pool: Text<ObjectName>,
    pub family: Family,
    /// The cluster that uses the address; one of the tenant's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Text<ClusterName>>,
    /// The name that the address resolves to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptr: Option<Text<DnsName>>,
    /// A wish for one particular address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Text<IpAddr>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Family {
    IPv4,
    IPv6,
}

impl Check for AddressPoolSpec {
    fn check(&self) -> Result<(), String> {
        if self.cidrs.is_empty() { Err("cidrs names at least one range".into()) } else { Ok(()) }
    }
}

impl Check for AddressClaimSpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
