//! `kind: Zone`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::CustomResource;
use model::name::NameTemplate;
use model::resource::{FrontDoor, Nameserver, Zone as ModelZone};
use model::zone_file::ZoneFile;
use model::{DnsName, ObjectName, Refusal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{Line, List};
use crate::named::{Home, Lack, Lookup, Source, WrongFile, or_hindrance, unusable};
use crate::status::ZoneStatus;
use crate::text::{Check, Namespace, Span, Text, checked, checked_option, plain, within};
use crate::zone_file;

/// RFC 2181 8: a TTL has 31 bits.
pub(crate) const MAX_TTL: u32 = 2_147_483_647;

/// A delegated DNS zone, and how the clusters in it are named.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "Zone",
    plural = "zones",
    category = "fleetgate",
    doc = "A delegated DNS zone, and how the clusters in it are named.",
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
    /// Who answers for the zone; the first one becomes the SOA's primary. They are unnecessary where a zone file has NS
    /// records of its own, and where we do not answer ourselves.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub nameservers: List<NameserverSpec, 16>,
    /// The TTL of every record we make, and of negative answers, in seconds.
    #[serde(default = "default_ttl", deserialize_with = "within::<_, 0, MAX_TTL>")]
    #[schemars(range(min = 0, max = MAX_TTL))]
    pub ttl: u32,
    /// How the two names of every cluster are made.
    #[serde(default, deserialize_with = "checked")]
    pub names: NamesSpec,
    /// The shared front door that the clusters' API names point at. On a hub it is by default what the load balancer of the
    /// gateway's Service has as address; without either, API names are not published.
    #[serde(default, deserialize_with = "checked_option", skip_serializing_if = "Option::is_none")]
    pub gateway: Option<FrontDoorSpec>,
    /// Who publishes the records: `authoritative`, we answer ourselves; `dnsEndpoint`, ExternalDNS gets those of the
    /// clusters as `DNSEndpoint` objects (on a hub). Both at once work.
    #[serde(default = "default_publish")]
    pub publish: List<Publisher, 2, 1>,
    /// Static records in master-file form, merged with ours.
    #[serde(default, deserialize_with = "checked_option", skip_serializing_if = "Option::is_none")]
    pub zone_file: Option<ZoneFileSpec>,
    /// What happens to a cluster's `apps` name when no node is ready, and to names that would go in a mass.
    #[serde(default, deserialize_with = "checked")]
    pub withdrawal: WithdrawalSpec,
    /// Whether answers are signed.
    #[serde(default)]
    pub dnssec: DnssecSpec,
}

/// One name server of the zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NameserverSpec {
    /// Its name, as the NS record holds it.
    pub name: Text<DnsName>,
    /// Its addresses; needed when the name lies inside the zone.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub addresses: List<Text<IpAddr>, 16>,
}

/// The names of every cluster, relative to the domain; `{cluster}` stands for the cluster's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.apps) || self.apps.startsWith('*.')", "message": "apps must be a wildcard: it begins with `*.`" },
    { "rule": "!has(self.api) || !self.api.startsWith('*.')", "message": "api must not be a wildcard" },
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
    /// Every address that clients can use, IPv4 and IPv6.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub addresses: List<Text<IpAddr>, 16>,
    /// For load balancers that only have a name: API names become aliases of it.
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

/// Where the zone file is: either beside the manifest or, on a hub, in a `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.file) != has(self.configMap)", "message": "give either a file or a configMap" },
]))]
pub struct ZoneFileSpec {
    /// A path beside the manifest (in a folder).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Text<Line<4096>>>,
    /// A key of a `ConfigMap` (on a hub).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapKeySpec>,
}

/// A key of a `ConfigMap` on a hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapKeySpec {
    /// The namespace that the `ConfigMap` is in.
    pub namespace: Text<Namespace>,
    /// The name of the `ConfigMap`.
    pub name: Text<ObjectName>,
    /// The key under which the zone file stands.
    pub key: Text<Line<253>>,
}

/// What happens to the `apps` name of a cluster that has no ready node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WithdrawalSpec {
    /// How long the last addresses stay when no node is ready.
    #[serde(default = "default_grace")]
    pub grace: Text<Span>,
    /// Above this share of the zone's clusters without a ready node, or of a tenant's or all tenants' names going within
    /// five minutes, nothing is withdrawn until that changes or somebody releases it.
    #[serde(default = "default_max_share", deserialize_with = "plain")]
    #[schemars(range(min = 0, max = 1))]
    pub max_share: f64,
}

/// Whether answers are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnssecSpec {
    /// Sign the zone. Not supported yet: a Zone that asks for it is refused with `NotYet`.
    #[serde(default, deserialize_with = "plain")]
    pub enabled: bool,
}

fn default_ttl() -> u32 {
    30
}

fn default_publish() -> List<Publisher, 2, 1> {
    List(vec![Publisher::Authoritative])
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

impl Check for ZoneFileSpec {
    fn check(&self) -> Result<(), String> {
        if self.file.is_some() == self.config_map.is_some() {
            Err("zoneFile takes either a file or a configMap".into())
        } else {
            Ok(())
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

impl Check for ZoneSpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl ZoneFileSpec {
    /// It is one of the two, or the manifest was refused; and the field that says so.
    fn source(&self) -> (Source<'_>, &'static str) {
        match (&self.config_map, &self.file) {
            (Some(ConfigMapKeySpec { namespace, name, key }), _) => {
                let source = Source::ConfigMap { namespace: &namespace.0.0, name: &name.0, key: &key.0.0 };
                (source, "spec.zoneFile.configMap")
            }
            (None, file) => (Source::File(file.as_ref().map_or("", |path| path.0.0.as_str())), "spec.zoneFile.file"),
        }
    }
}

impl ZoneSpec {
    pub(crate) fn into_model(self, name: ObjectName, lookup: &mut Lookup<'_>) -> Result<ModelZone, WrongFile> {
        let mut hindrance = self.dnssec.enabled.then_some(Refusal::NotYet("spec.dnssec"));
        let file = self.zone_file.as_ref().map(|file| self.read_file(file, lookup));
        let zone_file = file.map(|file| or_hindrance(file, &mut hindrance)).transpose()?.flatten();
        let hand_out = self.publish.contains(&Publisher::DnsEndpoint);
        if hand_out && lookup.home == Home::Folder {
            hindrance.get_or_insert(Refusal::NeedsHub("spec.publish: dnsEndpoint"));
        }
        let nameservers = self.nameservers.0.into_iter();
        Ok(ModelZone {
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
            zone_file,
            authoritative: self.publish.contains(&Publisher::Authoritative),
            hand_out,
            grace: self.withdrawal.grace.0.0,
            max_share: self.withdrawal.max_share,
            released: None,
            hindrance,
        })
    }

    fn read_file(&self, file: &ZoneFileSpec, lookup: &mut Lookup<'_>) -> Result<Arc<ZoneFile>, Lack> {
        let (source, field) = file.source();
        let octets = lookup.get(source, field)?;
        let parsed = zone_file::parse(&octets, &self.domain.0, self.ttl);
        parsed.map(Arc::new).map_err(|mistake| match source {
            // The mistake has its place in that file; ours is where it is named.
            Source::File(path) => Lack::WrongFile(WrongFile { path: path.into(), told: format!("{path}:{mistake}") }),
            _ => unusable(source, mistake.to_string()),
        })
    }
}
