//! From an object of a hub to model values. The API server has checked it by schema and rules; what they cannot say is
//! checked here, so that the same objects are good in both homes.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::identity::Kind;
use model::resource::{Cluster, HeldClaims, Place, Resting, Tenant, Zone};
use model::{ClusterName, DnsName, Number, ObjectName, ObjectRef, Timestamp};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value as Json;

use crate::address::{self, AddressClaimSpec, AddressPoolSpec, AddressSpec};
use crate::certificate;
use crate::cluster::ClusterSpec;
use crate::dns_endpoint::{CLUSTER_LABEL, DnsEndpointSpec};
use crate::document::{Manifest, Value};
use crate::federation::FederationPolicySpec;
use crate::ingress;
use crate::labels::{self, DRAINED, RELEASED};
use crate::named::{Home, Lookup, Named, WrongFile};
use crate::status::{AddressPoolStatus, ClusterStatus, ReverseZoneStatus, TenantStatus, ZoneStatus};
use crate::tenant::TenantSpec;
use crate::text::{Check, Namespace, Text, Written};
use crate::zone::ZoneSpec;

/// Reads a whole object as the API gives it, and what it names. The error says where in the object, and why.
pub fn read(kind: Kind, object: Json, named: Named<'_>) -> Result<Manifest, String> {
    let mut lookup = Lookup { home: Home::Hub, named };
    match kind {
        Kind::Zone => {
            let Object { metadata, spec, .. } = parse::<Object<ObjectName, ZoneSpec>>(object)?;
            let zone = spec.into_model(metadata.name.0.clone(), &mut lookup).map_err(wrong_file)?;
            let zone = Zone { released: metadata.released(), ..zone };
            place(kind, metadata.name.0, metadata.namespace, Value::Zone(zone))
        }
        Kind::Cluster => {
            let Object { metadata, spec, status } = parse::<Object<ClusterName, ClusterSpec, ClusterStatus>>(object)?;
            let drained = metadata.drained();
            let cluster = spec.into_model(metadata.name.0.clone(), metadata.labels, status, &mut lookup);
            let cluster = Cluster { drained, ..cluster.map_err(wrong_file)? };
            let value = Value::Cluster(Box::new(cluster));
            place(kind, ObjectName::from(&metadata.name.0), metadata.namespace, value)
        }
        Kind::Tenant => {
            let Object { metadata, spec, .. } = parse::<Object<ObjectName, TenantSpec>>(object)?;
            let released = metadata.released();
            let tenant = Tenant { released, ..spec.into_model(metadata.name.0.clone()) };
            place(kind, metadata.name.0, metadata.namespace, Value::Tenant(tenant))
        }
        Kind::AddressPool => {
            of_spec(kind, object, |name, spec: AddressPoolSpec| Value::AddressPool(spec.into_model(name)))
        }
        Kind::AddressClaim => of_spec(kind, object, |_, spec: AddressClaimSpec| Value::AddressClaim(spec.into_model())),
        Kind::Address => {
            let Object { metadata, spec, .. } = parse::<Object<ObjectName, AddressSpec>>(object)?;
            let address = address::of_name(&metadata.name.0).map_err(|wrong| format!("metadata.name: {wrong}"))?;
            place(kind, metadata.name.0, metadata.namespace, Value::Address(address, spec.into_model()))
        }
        Kind::FederationPolicy => {
            of_spec(kind, object, |_, spec: FederationPolicySpec| Value::FederationPolicy(Arc::new(spec.into_model())))
        }
        Kind::DnsEndpoint => {
            let cluster = object.pointer("/metadata/labels").and_then(|labels| labels.get(CLUSTER_LABEL)?.as_str());
            let cluster = match cluster {
                Some(name) => Some(name.parse().map_err(|error| format!("metadata.labels: {error}"))?),
                None => None,
            };
            of_spec(kind, object, |_, spec: DnsEndpointSpec| Value::Records(spec.to_model(cluster)))
        }
        Kind::Ingress => others(kind, object, |ingress| Value::Ingress(Box::new(ingress::read(ingress)))),
        Kind::IngressClass => others(kind, object, |class| Value::IngressClass(ingress::read_class(class))),
        Kind::Secret => {
            others(kind, object, |secret| certificate::read(secret).map_or(Value::Other, Value::Certificate))
        }
    }
}

/// An object of somebody else's kind.
fn others<T: DeserializeOwned>(kind: Kind, object: Json, value: impl FnOnce(&T) -> Value) -> Result<Manifest, String> {
    let typed = parse::<T>(object.clone())?;
    let Head { metadata } = parse::<Head<ObjectName>>(object)?;
    place(kind, metadata.name.0, metadata.namespace, value(&typed))
}

/// What a Zone's status says of its content.
pub fn number(zone: &Json) -> Option<Number> {
    let status = ZoneStatus::deserialize(zone.get("status")?).ok()?;
    Some(Number { serial: status.serial?, digest: status.digest?.parse().ok()? })
}

/// What a Tenant's status says is held of it, and rests.
pub fn withdrawals(name: &ObjectName, tenant: &Json) -> (Vec<HeldClaims>, Vec<(Place, Resting)>) {
    let status = tenant.get("status").and_then(|status| TenantStatus::deserialize(status).ok());
    let TenantStatus { held, resting, .. } = status.unwrap_or_default();
    let held = held.0.into_iter().map(|held| held.into_model(name));
    (held.collect(), resting.0.into_iter().map(|resting| resting.into_model(name)).collect())
}

/// What an `AddressPool`'s status says of the content of its reverse zones.
pub fn reverse_numbers(pool: &Json) -> Vec<(DnsName, Number)> {
    let status = pool.get("status").and_then(|status| AddressPoolStatus::deserialize(status).ok());
    let zones = status.map(|status| status.reverse_zones).unwrap_or_default();
    let number = |zone: ReverseZoneStatus| {
        Some((zone.zone.parse().ok()?, Number { serial: zone.serial, digest: zone.digest.parse().ok()? }))
    };
    zones.into_iter().filter_map(number).collect()
}

/// Why an annotation by which something is let go does not count.
pub fn unread_annotation(object: &Json) -> Option<String> {
    let annotation =
        object.pointer("/metadata/annotations").and_then(|annotations| annotations.get(RELEASED)?.as_str());
    labels::moment(RELEASED, annotation).err()
}

#[derive(Deserialize)]
#[serde(bound = "N: Written, S: DeserializeOwned, T: DeserializeOwned")]
struct Object<N, S, T = IgnoredAny> {
    metadata: Metadata<N>,
    spec: S,
    #[serde(default = "Option::default")]
    status: Option<T>,
}

/// The name and place of an object.
#[derive(Deserialize)]
#[serde(bound = "N: Written")]
struct Head<N> {
    metadata: Metadata<N>,
}

/// Whatever else a hub puts there is the hub's.
#[derive(Deserialize)]
#[serde(bound = "N: Written")]
struct Metadata<N> {
    name: Text<N>,
    namespace: Option<Text<Namespace>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl<N> Metadata<N> {
    /// Until when what was held is let go. Whoever wrote what cannot be read has let go nothing, and [`unread_annotation`] says so: no
    /// hub checks annotations, and a slip of the pen must not take a Zone away.
    fn released(&self) -> Option<Timestamp> {
        labels::moment(RELEASED, self.annotations.get(RELEASED).map(String::as_str)).unwrap_or_default()
    }

    /// Since when it is drained. Whoever wrote anything there wants that.
    fn drained(&self) -> Option<Timestamp> {
        let since = labels::moment(DRAINED, self.annotations.get(DRAINED).map(String::as_str));
        since.unwrap_or(Some(Timestamp::default()))
    }
}

fn of_spec<S: DeserializeOwned + Check>(
    kind: Kind,
    object: Json,
    value: impl FnOnce(ObjectName, S) -> Value,
) -> Result<Manifest, String> {
    let Object { metadata, spec, .. } = parse::<Object<ObjectName, S>>(object)?;
    spec.check().map_err(|reason| format!("spec: {reason}"))?;
    place(kind, metadata.name.0.clone(), metadata.namespace, value(metadata.name.0, spec))
}

fn place(kind: Kind, name: ObjectName, namespace: Option<Text<Namespace>>, value: Value) -> Result<Manifest, String> {
    if kind.is_namespaced() != namespace.is_some() {
        let reason = if kind.is_namespaced() { "is missing" } else { "does not belong there" };
        return Err(format!("metadata.namespace: {reason}"));
    }
    Ok(Manifest { object: ObjectRef { kind, namespace: namespace.map(|namespace| namespace.0.0), name }, value })
}

fn parse<T: DeserializeOwned>(object: Json) -> Result<T, String> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        format!("{path}: {}", error.into_inner())
    })
}

/// Files are refused before anybody looks for them.
fn wrong_file(wrong: WrongFile) -> String {
    wrong.told
}

#[cfg(test)]
mod tests;
