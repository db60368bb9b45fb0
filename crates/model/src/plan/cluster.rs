//! What one cluster claims and, once it has been accepted, contributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::zone::{Domains, address_sets};
use crate::claim::Claim;
use crate::fact::{Fact, Timestamp};
use crate::identity::ObjectName;
use crate::name::{DnsName, NameTemplate};
use crate::refusal::Refusal;
use crate::resource::{Cluster, FrontDoor, IngressMode, Tenant, Upstream, Zone};
use crate::snapshot::{ClusterPart, Condition, Detail, KeptSet, NameRecords, RecordData, RecordSet, Route, Status};
use crate::zone_file::ZoneFile;

/// The service name of every cluster's first route.
const API_SERVER: &str = "kube-apiserver";

/// What a cluster is called and claims, before anybody asked who was first.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    api_name: DnsName,
    apps_name: DnsName,
    pub(super) claims: Vec<Claim>,
}

pub(super) fn draft(
    cluster: &Cluster,
    zones: &BTreeMap<ObjectName, Fact<Zone>>,
    tenants: &BTreeMap<ObjectName, Fact<Tenant>>,
    domains: &Domains,
) -> Result<Draft, Refusal> {
    if let Some(field) = cluster.not_yet {
        return Err(Refusal::NotYet(field));
    }
    if let Upstream::Service { .. } = cluster.api_server {
        return Err(Refusal::NeedsHub("spec.controlPlane.kubeApiserver.service"));
    }
    if !tenants.contains_key(&cluster.tenant) {
        return Err(Refusal::UnknownTenant(cluster.tenant.clone()));
    }
    let zone = &zones.get(&cluster.zone).ok_or_else(|| Refusal::UnknownZone(cluster.zone.clone()))?.value;
    if !domains.accepts(zone) {
        return Err(Refusal::RefusedZone(cluster.zone.clone()));
    }

    let expand = |template: &NameTemplate| {
        template
            .expand(&cluster.name, &zone.domain)
            .map_err(|source| Refusal::NameTooLong { template: template.to_string(), source })
    };
    let (api_name, apps_name) = (expand(&zone.api)?, expand(&zone.apps)?);
    let mut claims = vec![Claim::Id(cluster.id.clone())];
    let service_names = cluster.services.iter().map(|service| &service.sni);
    for name in [&api_name, &apps_name].into_iter().chain(service_names) {
        if let Some(zone) = domains.reserved_by(name) {
            return Err(Refusal::Reserved { name: name.clone(), zone: zone.clone() });
        }
        if name.is_at_or_under(&zone.domain)
            && let Some(deeper) = domains.zone_of(name).filter(|deeper| **deeper != zone.name)
        {
            return Err(Refusal::HiddenByZone { name: name.clone(), zone: deeper.clone() });
        }
        if let Some(file) = zone.zone_file.as_ref().filter(|_| name.is_at_or_under(&zone.domain)) {
            check_file(file, name, zone)?;
        }
        let claim = Claim::Name(name.clone());
        if claims.contains(&claim) {
            return Err(Refusal::ClaimedTwice { claim });
        }
        claims.push(claim);
    }
    Ok(Draft { api_name, apps_name, claims })
}

/// The file's records are the operator's: what they stand in the way of is refused, whoever was first.
fn check_file(file: &ZoneFile, name: &DnsName, zone: &Zone) -> Result<(), Refusal> {
    let (name, zone) = (name.clone(), zone.name.clone());
    if !file.sets_of(&name).is_empty() {
        return Err(Refusal::InZoneFile { name, zone });
    }
    match file.hides(&name) {
        Some((cut, rtype)) => Err(Refusal::HiddenByZoneFile { name, cut, rtype, zone }),
        None => Ok(()),
    }
}

pub(super) fn part(
    cluster: &Cluster,
    draft: &Draft,
    zone: &Zone,
    tenant: &Tenant,
    last: &LastSet<'_>,
    now: Timestamp,
) -> ClusterPart {
    let front_door: Arc<[RecordSet]> =
        zone.gateway.as_ref().map_or_else(Vec::new, |door| door_sets(door, zone.ttl)).into();
    let (apps, withdraw_at) = match cluster.ingress {
        IngressMode::Hub => (Arc::clone(&front_door), None),
        IngressMode::Nodes => {
            let ready = cluster.nodes.iter().filter(|node| node.ready).flat_map(|node| node.addresses.iter().copied());
            let ready = address_sets(ready, zone.ttl).into();
            if zone.authoritative { keep_or_withdraw(ready, draft, zone, last, now) } else { (ready, None) }
        }
    };
    let services = cluster.services.iter().map(|service| &service.sni).filter(|sni| sni.is_at_or_under(&zone.domain));
    let at_the_door = std::iter::once(&draft.api_name).chain(services);
    let names = at_the_door
        .map(|name| NameRecords { name: name.clone(), records: Arc::clone(&front_door) })
        .chain([NameRecords { name: draft.apps_name.clone(), records: apps }])
        .filter(|name| zone.authoritative && !name.records.is_empty())
        .collect();
    ClusterPart {
        apex: zone.domain.clone(),
        id: cluster.id.clone(),
        names,
        routes: routes(cluster, tenant, draft),
        withdraw_at,
    }
}

/// While no node is ready, the last addresses stay for the zone's grace time: better an address that may come back
/// than a name that is gone from every cache.
fn keep_or_withdraw(
    ready: Arc<[RecordSet]>,
    draft: &Draft,
    zone: &Zone,
    last: &LastSet<'_>,
    now: Timestamp,
) -> (Arc<[RecordSet]>, Option<Timestamp>) {
    if !ready.is_empty() {
        return (ready, None);
    }
    match last.of(draft, zone, now.saturating_add(zone.grace)) {
        Some((records, until)) if now < until => (records, Some(until)),
        _ => (ready, None),
    }
}

/// What the `apps` name of a cluster pointed at last.
pub(super) struct LastSet<'a> {
    pub(super) before: Option<&'a Arc<ClusterPart>>,
    /// By an earlier process.
    pub(super) recalled: Option<KeptSet>,
}

impl LastSet<'_> {
    /// The records, and until when they stay; `latest` if that begins only now.
    fn of(&self, draft: &Draft, zone: &Zone, latest: Timestamp) -> Option<(Arc<[RecordSet]>, Timestamp)> {
        if let Some(before) = self.before {
            let last = before.names.iter().find(|name| name.name == draft.apps_name)?;
            return Some((Arc::clone(&last.records), before.withdraw_at.unwrap_or(latest)));
        }
        let recalled = self.recalled.as_ref().filter(|kept| kept.name == draft.apps_name)?;
        let records = address_sets(recalled.addresses.iter().copied(), zone.ttl);
        // The clock may have gone back while nobody looked.
        Some((records.into(), recalled.until.min(latest)))
    }
}

fn door_sets(door: &FrontDoor, ttl: u32) -> Vec<RecordSet> {
    match door {
        FrontDoor::Addresses(addresses) => address_sets(addresses.iter().copied(), ttl),
        FrontDoor::Hostname(name) => vec![RecordSet { ttl, data: RecordData::Cname(name.clone()) }],
    }
}

fn routes(cluster: &Cluster, tenant: &Tenant, draft: &Draft) -> Vec<(DnsName, Arc<Route>)> {
    let route = |service: Arc<str>, upstreams: &[std::net::SocketAddr]| {
        Arc::new(Route {
            cluster: cluster.name.clone(),
            tenant: cluster.tenant.clone(),
            service,
            upstreams: upstreams.to_vec(),
            allowed_sources: Arc::clone(&cluster.allowed_sources),
            proof: Arc::clone(&cluster.proof),
            limits: cluster.limits,
            tenant_limits: tenant.limits,
        })
    };
    let api_server = match &cluster.api_server {
        Upstream::Addresses(addresses) => Some((draft.api_name.clone(), route(API_SERVER.into(), addresses))),
        // Refused by `draft` where there is nobody to look it up.
        Upstream::Service { .. } => None,
    };
    let services = cluster.services.iter();
    let services = services.map(|service| (service.sni.clone(), route(Arc::clone(&service.name), &service.addresses)));
    api_server.into_iter().chain(services).collect()
}

pub(super) fn status(cluster: &Cluster, draft: &Draft, zone: &Zone, part: &ClusterPart) -> Status {
    let ready_nodes = cluster.nodes.iter().filter(|node| node.ready).count();
    let published = if !zone.authoritative {
        Condition::new(
            Condition::PUBLISHED,
            false,
            "NotAuthoritative",
            format!("Zone {} does not publish it", zone.name),
        )
    } else if zone.gateway.is_none() {
        let message = format!("Zone {} has no gateway for {} to point at", zone.name, draft.api_name);
        Condition::new(Condition::PUBLISHED, false, "NoGateway", message)
    } else {
        Condition::new(Condition::PUBLISHED, true, "Authoritative", "")
    };
    let detail = Detail::Cluster { api_name: draft.api_name.clone(), apps_name: draft.apps_name.clone(), ready_nodes };
    Status::accepted([published, nodes_ready(cluster, draft, zone, part)], detail)
}

/// A ready node without an address is none that anybody can reach.
fn nodes_ready(cluster: &Cluster, draft: &Draft, zone: &Zone, part: &ClusterPart) -> Condition {
    let ready = || cluster.nodes.iter().filter(|node| node.ready);
    if ready().any(|node| !node.addresses.is_empty()) {
        let message = format!("{} of {} ready", ready().count(), cluster.nodes.len());
        return Condition::new(Condition::NODES_READY, true, "Ready", message);
    }
    let lack = if ready().count() == 0 { "no node is ready" } else { "no ready node has an address" };
    let apps = &draft.apps_name;
    let (reason, message) = match part.withdraw_at {
        Some(at) => ("Grace", format!("{lack}; {apps} keeps its last addresses until {at}")),
        None if zone.authoritative && cluster.ingress == IngressMode::Nodes => {
            ("NoReadyNode", format!("{lack}; {apps} is withdrawn until that changes"))
        }
        None => ("NoReadyNode", lack.to_owned()),
    };
    Condition::new(Condition::NODES_READY, false, reason, message)
}
