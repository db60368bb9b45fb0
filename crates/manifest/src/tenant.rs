//! `kind: Tenant`.

use kube::CustomResource;
use model::resource::{Limits, Quota, Tenant as ModelTenant};
use model::{Cidr, DnsName, ObjectName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::List;
use crate::status::TenantStatus;
use crate::text::{Check, Namespace, Text, plain};

/// Who owns clusters. Tenants are untrusted: this object, written by the platform team, says what is theirs.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "Tenant",
    plural = "tenants",
    category = "fleetgate",
    doc = "Who owns clusters. Tenants are untrusted: this object, written by the platform team, says what is theirs.",
    status = "TenantStatus",
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.namespace"),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantSpec {
    /// Where its namespaced objects live; the tenant's name by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<Namespace>>,
    /// Suffixes that it may claim beyond its clusters' own subtrees.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub domains: List<Text<DnsName>, 100>,
    /// What its records may point at.
    #[serde(default)]
    pub targets: TargetsSpec,
    /// How much it may have; what is left out has no bound.
    #[serde(default)]
    pub quota: QuotaSpec,
    /// How much traffic is let in to all its clusters together; what is left out has no bound.
    #[serde(default)]
    pub limits: LimitsSpec,
}

/// What a tenant's records may point at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetsSpec {
    /// Ranges beyond its own nodes and addresses. Private addresses only by ranges that are private themselves.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub allow: List<Text<Cidr>, 100>,
    /// Suffixes outside the fleet's own zones that its CNAME, MX and SRV records may name; any name outside when it is left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<List<Text<DnsName>, 100>>,
}

/// How much a tenant may have; what is left out has no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuotaSpec {
    /// Clusters. Without effect so far.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    pub clusters: Option<u32>,
    /// Records that it claims beyond those that its clusters have anyway.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    pub records: Option<u32>,
    /// Addresses of all pools together.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    pub addresses: Option<u32>,
}

/// How much traffic is let in; what is left out has no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitsSpec {
    /// Connections open at once; a new one is refused while there are as many.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    pub connections: Option<u32>,
    /// Connections opened per second; what is above is refused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    pub new_connections_per_second: Option<u32>,
}

impl Check for TenantSpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl TenantSpec {
    pub fn into_model(self, name: ObjectName) -> ModelTenant {
        ModelTenant {
            namespace: self.namespace.map_or_else(|| name.clone(), |namespace| namespace.0.0),
            name,
            domains: Text::list(&self.domains),
            allowed_targets: Text::list(&self.targets.allow),
            allowed_names: self.targets.names.as_deref().map(Text::list),
            quota: Quota {
                clusters: self.quota.clusters,
                records: self.quota.records,
                addresses: self.quota.addresses,
            },
            limits: self.limits.into_model(),
            released: None,
        }
    }
}

impl LimitsSpec {
    pub(crate) fn into_model(self) -> Limits {
        Limits { connections: self.connections, new_connections_per_second: self.new_connections_per_second }
    }
}
