//! `kind: Zone`.

use std::net::IpAddr;
use std::time::Duration;

use kube::CustomResource;
use model::name::NameTemplate;
use model::resource::{FrontDoor, Nameserver, Zone as ModelZone};
use model::{DnsName, ObjectName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::ZoneStatus;
use crate::text::{Check, Span, Text, checked, checked_option, plain};

/// A delegated DNS zone, and how the clusters in it are named.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "Zone",
    plural = "zones",
    status = "ZoneStatus",
    printcolumn(name = "Domain", type_ = "string", json_path = ".spec.domain"),
    printcolumn(name = "Serial", type_ = "integer", json_path = ".status.serial"),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ZoneSpec {
    /// The apex of the zone: any DNS name, `*` and `_` labels included.
    pub domain: Text<DnsName>,
    /// Who answers for the zone; the first one becomes the SOA's primary. Only a zone file with NS records of its own
    /// makes them unnecessary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub nameservers: Vec<NameserverSpec>,
    /// The TTL of every record we make, and of negative answers, in seconds.
    #[serde(default = "default_ttl", deserialize_with = "plain")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ttl: u32,
    /// How the two names of every cluster are made.
    #[serde(default, deserialize_with = "checked")]
    pub names: NamesSpec,
    /// The shared front door that the clusters' API names point at.
    #[serde(default, deserialize_with = "checked_option", skip_serializing_if = "Option::is_none")]
    pub gateway: Option<FrontDoorSpec>,
    /// Who publishes the records.
    #[serde(default = "default_publish")]
    #[schemars(length(min = 1, max = 2))]
    pub publish: Vec<Publisher>,
    /// Static records in master-file form, merged with ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_file: Option<ZoneFileSpec>,
    /// What happens to a cluster's `apps` name when no node is ready.
    #[serde(default, deserialize_with = "checked")]
    pub withdrawal: WithdrawalSpec,
    /// Online signing.
    #[serde(default)]
    pub dnssec: DnssecSpec,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NameserverSpec {
    pub name: Text<DnsName>,
    /// Needed when the name lies inside the zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub addresses: Vec<Text<IpAddr>>,
}

/// The names of every cluster, relative to the domain; `{cluster}` stands for the cluster's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.apps) || self.apps.startsWith('*.')", "message": "apps must be a wildcard: it begins with `*.`" },
    { "rule": "!has(self.api) || !self.api.startsWith('*')", "message": "api must not be a wildcard" },
]))]
pub struct NamesSpec {
    /// The API server's name.
    #[serde(default = "default_api_name")]
    pub api: Text<NameTemplate>,
    /// The wildcard under which the cluster's applications are found.
    #[serde(default = "default_apps_name")]
    pub apps: Text<NameTemplate>,
}

/// Either addresses or a host name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "(has(self.addresses) && size(self.addresses) > 0) != has(self.hostname)", "message": "give either addresses or a hostname" },
]))]
pub struct FrontDoorSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub addresses: Vec<Text<IpAddr>>,
    /// For load balancers that only have a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Text<DnsName>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Publisher {
    /// We answer ourselves.
    Authoritative,
    /// `DNSEndpoint` objects on the hub, for ExternalDNS.
    DnsEndpoint,
}

/// Where the zone file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ZoneFileSpec {
    /// A path beside the manifest (in a folder).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub file: Option<String>,
    /// A key of a `ConfigMap` (on a hub).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapKeySpec>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapKeySpec {
    pub namespace: Text<ObjectName>,
    pub name: Text<ObjectName>,
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WithdrawalSpec {
    /// How long the last addresses stay when no node is ready.
    #[serde(default = "default_grace")]
    pub grace: Text<Span>,
    /// Above this share of the zone's clusters at once, nothing is withdrawn until somebody releases it.
    #[serde(default = "default_max_share", deserialize_with = "plain")]
    #[schemars(range(min = 0, max = 1))]
    pub max_share: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnssecSpec {
    #[serde(default, deserialize_with = "plain")]
    pub enabled: bool,
}

fn default_ttl() -> u32 {
    30
}

fn default_publish() -> Vec<Publisher> {
    vec![Publisher::Authoritative]
}

fn default_api_name() -> Text<NameTemplate> {
    Text("api.{cluster}".parse().expect("the default is a template"))
}

fn default_apps_name() -> Text<NameTemplate> {
    Text("*.{cluster}".parse().expect("the default is a template"))
}

fn default_grace() -> Text<Span> {
    Text(Span(Duration::from_mins(1)))
}

fn default_max_share() -> f64 {
    0.3
}

impl Default for NamesSpec {
    fn default() -> Self {
        Self { api: default_api_name(), apps: default_apps_name() }
    }
}

impl Default for WithdrawalSpec {
    fn default() -> Self {
        Self { grace: default_grace(), max_share: default_max_share() }
    }
}

impl Check for NamesSpec {
    fn check(&self) -> Result<(), String> {
        if !self.apps.0.is_wildcard() {
            return Err("names.apps must be a wildcard: it begins with `*.`".into());
        }
        if self.api.0.is_wildcard() {
            return Err("names.api must not be a wildcard".into());
        }
        Ok(())
    }
}

impl Check for FrontDoorSpec {
    fn check(&self) -> Result<(), String> {
        match (self.addresses.is_empty(), &self.hostname) {
            (false, None) | (true, Some(_)) => Ok(()),
            _ => Err("gateway takes either addresses or a hostname".into()),
        }
    }
}

impl Check for WithdrawalSpec {
    fn check(&self) -> Result<(), String> {
        if (0.0..=1.0).contains(&self.max_share) {
            Ok(())
        } else {
            Err(format!("withdrawal.maxShare {} is not between 0 and 1", self.max_share))
        }
    }
}

/// What the schema says with `maximum` and `maxItems`.
impl Check for ZoneSpec {
    fn check(&self) -> Result<(), String> {
        if self.ttl > 2_147_483_647 {
            return Err(format!("ttl {} is over 2147483647 seconds (RFC 2181 8)", self.ttl));
        }
        if self.publish.is_empty() {
            return Err("publish names at least one of authoritative and dnsEndpoint".into());
        }
        Ok(())
    }
}

impl ZoneSpec {
    pub fn into_model(self, name: ObjectName) -> ModelZone {
        let not_yet = if self.dnssec.enabled {
            Some("spec.dnssec")
        } else if self.zone_file.is_some() {
            Some("spec.zoneFile")
        } else if self.publish.contains(&Publisher::DnsEndpoint) {
            Some("spec.publish: dnsEndpoint")
        } else {
            None
        };
        let nameservers = self.nameservers.into_iter();
        ModelZone {
            name,
            domain: self.domain.0,
            nameservers: nameservers
                .map(|server| Nameserver { name: server.name.0, addresses: Text::list(&server.addresses) })
                .collect(),
            ttl: self.ttl,
            api: self.names.api.0,
            apps: self.names.apps.0,
            gateway: self.gateway.map(|door| match door.hostname {
                Some(hostname) => FrontDoor::Hostname(hostname.0),
                None => FrontDoor::Addresses(Text::list(&door.addresses)),
            }),
            authoritative: self.publish.contains(&Publisher::Authoritative),
            grace: self.withdrawal.grace.0.0,
            not_yet,
        }
    }
}
