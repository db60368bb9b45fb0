//! `kind: AddressPool` and `kind: AddressClaim`.

use std::net::IpAddr;

use kube::CustomResource;
use model::{Cidr, ClusterName, DnsName, ObjectName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::List;
use crate::status::{AddressClaimStatus, ObjectStatus};
use crate::text::{Check, Text};

/// Public addresses that tenants can claim, and who answers for their reverse zones.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    plural = "addresspools",
    category = "fleetgate",
    doc = "Public addresses that tenants can claim, and who answers for their reverse zones.",
    status = "ObjectStatus",
    printcolumn(name = "CIDRs", type_ = "string", json_path = ".spec.cidrs"),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressPoolSpec {
    /// The ranges, IPv4 and IPv6.
    pub cidrs: List<Text<Cidr>, 64, 1>,
    /// The reverse zones of the ranges.
    #[serde(default)]
    pub reverse: ReverseSpec,
}

/// The reverse zones of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReverseSpec {
    /// Who answers for them.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub nameservers: List<Text<DnsName>, 16>,
}

/// A tenant's wish for one address of a pool; `status.address` is ours to give.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "AddressClaim",
    plural = "addressclaims",
    category = "fleetgate",
    doc = "A tenant's wish for one address of a pool; `status.address` is ours to give.",
    namespaced,
    status = "AddressClaimStatus",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.address) || !isIP(self.address) || (ip(self.address).family() == 4) == (self.family == 'IPv4')",
    "message": "the address is not of the family",
}]))]
pub struct AddressClaimSpec {
    /// The `AddressPool` that the address comes from.
    pub pool: Text<ObjectName>,
    /// Which kind of address.
    pub family: Family,
    /// The cluster that uses the address; one of the tenant's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Text<ClusterName>>,
    /// The name that the address resolves to, by a PTR record; one of the tenant's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptr: Option<Text<DnsName>>,
    /// A wish for one particular address of the pool; any free one when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Text<IpAddr>>,
}

/// `IPv4` or `IPv6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Family {
    IPv4,
    IPv6,
}

impl Check for AddressPoolSpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Check for AddressClaimSpec {
    fn check(&self) -> Result<(), String> {
        match &self.address {
            Some(address) if address.0.is_ipv4() != (self.family == Family::IPv4) => {
                Err(format!("address {} is not of family {:?}", address.0, self.family))
            }
            _ => Ok(()),
        }
    }
}
