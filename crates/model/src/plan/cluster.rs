//! What one cluster claims and, once it has been accepted, contributes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::zone::{Domains, address_sets};
use crate::claim::Claim;
use crate::fact::{Fact, Timestamp};
use crate::identity::{Kind, ObjectName, ObjectRef};
use crate::ingress::{Backend, FederationPolicy, Port, UpstreamTls};
use crate::inside::{Inner, InnerTarget, Place};
use crate::name::{DnsName, NameTemplate};
use crate::policy::Holding;
use crate::refusal::Refusal;
use crate::resource::{Cluster, FrontDoor, IngressMode, Tenant, Upstream, Zone};
use crate::routes::{Entry, Host, Member};
use crate::snapshot::{
    Apps, ClusterPart, Condition, Detail, KeptSet, NameRecords, RecordData, RecordSet, Route, Status,
};
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

impl Draft {
    /// What the `apps` wildcard stands under.
    pub(super) fn subtree(&self) -> DnsName {
        self.apps_name.parent().unwrap_or_else(DnsName::root)
    }
}

/// What a cluster stands upon.
pub(super) struct Ground<'a> {
    pub(super) zones: &'a BTreeMap<ObjectName, Fact<Zone>>,
    pub(super) tenants: &'a BTreeMap<ObjectName, Fact<Tenant>>,
    pub(super) domains: &'a Domains,
    pub(super) broken: &'a BTreeMap<ObjectRef, Refusal>,
}

impl Ground<'_> {
    fn zone_of(&self, cluster: &Cluster) -> Result<&Zone, Refusal> {
        let name = || cluster.zone.clone();
        match self.zones.get(&cluster.zone) {
            Some(zone) if self.domains.accepts(&zone.value) => Ok(&zone.value),
            None if !self.broken.contains_key(&ObjectRef::cluster_scoped(Kind::Zone, name())) => {
                Err(Refusal::UnknownZone(name()))
            }
            _ => Err(Refusal::RefusedZone(name())),
        }
    }

    fn check_tenant(&self, cluster: &Cluster) -> Result<(), Refusal> {
        let name = || cluster.tenant.clone();
        if self.tenants.contains_key(&cluster.tenant) {
            Ok(())
        } else if self.broken.contains_key(&ObjectRef::cluster_scoped(Kind::Tenant, name())) {
            Err(Refusal::RefusedTenant(name()))
        } else {
            Err(Refusal::UnknownTenant(name()))
        }
    }
}

pub(super) fn draft(cluster: &Cluster, ground: &Ground<'_>) -> Result<Draft, Refusal> {
    if let Some(hindrance) = &cluster.hindrance {
        return Err(hindrance.clone());
    }
    if let Upstream::Service { .. } = cluster.api_server {
        return Err(Refusal::NeedsHub("spec.controlPlane.kubeApiserver.service"));
    }
    ground.check_tenant(cluster)?;
    let (zone, domains) = (ground.zone_of(cluster)?, ground.domains);

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
    uid: Arc<str>,
    now: Timestamp,
) -> ClusterPart {
    let front_door: Arc<[RecordSet]> =
        zone.gateway.as_ref().map_or_else(Vec::new, |door| door_sets(door, zone.ttl)).into();
    let (apps, withdraw_at, held) = match cluster.ingress {
        IngressMode::Hub => (Arc::clone(&front_door), None, false),
        IngressMode::Nodes => {
            let ready: Arc<[RecordSet]> = address_sets(ready_addresses(cluster), zone.ttl).into();
            match last.kept(draft, zone, now).filter(|_| ready.is_empty() && is_published(zone)) {
                Some((records, until)) if now < until => (records, Some(until), false),
                Some((records, until)) if last.is_braked && zone.released.is_none_or(|at| at < until) => {
                    (records, Some(until), true)
                }
                _ => (ready, None, false),
            }
        }
    };
    let services = cluster.services.iter().map(|service| &service.sni).filter(|sni| sni.is_at_or_under(&zone.domain));
    let at_the_door = std::iter::once(&draft.api_name).chain(services);
    let names = at_the_door
        .map(|name| NameRecords::plain(name.clone(), Arc::clone(&front_door)))
        .chain([NameRecords::plain(draft.apps_name.clone(), apps)])
        .filter(|name| is_published(zone) && !name.records.is_empty())
        .collect();
    ClusterPart {
        apex: zone.domain.clone(),
        id: cluster.id.clone(),
        location: cluster.location.clone(),
        nodes: Arc::clone(&cluster.nodes),
        drained: cluster.drained,
        names,
        authoritative: zone.authoritative,
        hand_out: zone.hand_out,
        routes: routes(cluster, tenant, draft),
        apps: apps_part(cluster, tenant, draft, &uid),
        resolver: Arc::new(cluster.resolver.clone()),
        holding: Arc::new(holding(cluster, draft, uid)),
        withdraw_at,
        held,
    }
}

fn holding(cluster: &Cluster, draft: &Draft, uid: Arc<str>) -> Holding {
    let mut nodes: Vec<_> = cluster.nodes.iter().flat_map(|node| &node.addresses).map(IpAddr::to_canonical).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let names = draft.claims.iter().filter_map(|claim| match claim {
        Claim::Name(name) => Some(name.clone()),
        Claim::Id(_) => None,
    });
    Holding {
        cluster: cluster.name.clone(),
        tenant: cluster.tenant.clone(),
        uid,
        subtree: draft.subtree(),
        control: names.collect(),
        nodes,
    }
}

fn is_published(zone: &Zone) -> bool {
    zone.authoritative || zone.hand_out
}

/// Where the applications of a cluster are reached now.
pub(super) fn ready_addresses(cluster: &Cluster) -> impl Iterator<Item = IpAddr> {
    cluster.nodes.iter().filter(|node| node.ready).flat_map(|node| node.addresses.iter().copied())
}

/// What the `apps` name of a cluster pointed at last.
pub(super) struct LastSet<'a> {
    pub(super) before: Option<&'a Arc<ClusterPart>>,
    /// By an earlier process, or by whoever plans for the others.
    pub(super) recalled: Option<&'a KeptSet>,
    /// Whether it stays for longer than the grace time, as too many others have no ready node either.
    pub(super) is_braked: bool,
}

impl LastSet<'_> {
    /// The records, and until when they stay while no node is ready, which is for the zone's grace time: better an address
    /// that may come back than a name that is gone from every cache.
    fn kept(&self, draft: &Draft, zone: &Zone, now: Timestamp) -> Option<(Arc<[RecordSet]>, Timestamp)> {
        let latest = now.saturating_add(zone.grace);
        let seen = self.before.and_then(|before| {
            let last = before.names.iter().find(|name| name.name == draft.apps_name)?;
            Some((last.addresses(), before.withdraw_at.unwrap_or(latest)))
        });
        let (addresses, until) = seen.or_else(|| {
            let kept = self.recalled.filter(|kept| kept.name == draft.apps_name)?;
            // The clock may have gone back while nobody looked.
            Some((kept.addresses.clone(), kept.until.min(latest)))
        })?;
        // Made anew, so that they are the same whether they were seen or recalled.
        let records = address_sets(addresses.into_iter(), zone.ttl);
        (!records.is_empty()).then(|| (records.into(), until))
    }
}

pub(super) fn door_sets(door: &FrontDoor, ttl: u32) -> Vec<RecordSet> {
    match door {
        FrontDoor::Addresses(addresses) => address_sets(addresses.iter().copied(), ttl),
        FrontDoor::Hostname(name) => vec![RecordSet { ttl, data: RecordData::Cname(name.clone()) }],
    }
}

fn routes(cluster: &Cluster, tenant: &Tenant, draft: &Draft) -> Vec<(DnsName, Arc<Route>)> {
    if cluster.closed.is_some() {
        return Vec::new();
    }
    let route = |service: Arc<str>, upstreams: &[std::net::SocketAddr]| {
        Arc::new(Route {
            cluster: cluster.name.clone(),
            tenant: cluster.tenant.clone(),
            service,
            upstreams: upstreams.to_vec(),
            inside: Vec::new(),
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

/// What the `apps` wildcard leads to through the tunnel; nothing where it does not, or where it is not said whereto.
fn apps_part(cluster: &Cluster, tenant: &Tenant, draft: &Draft, uid: &Arc<str>) -> Option<Apps> {
    let inside = &cluster.controller.inside;
    if cluster.ingress != IngressMode::Hub || (inside.http.is_empty() && inside.https.is_empty()) {
        return None;
    }
    let tls = (!inside.https.is_empty()).then(|| {
        Arc::new(Route {
            cluster: cluster.name.clone(),
            tenant: cluster.tenant.clone(),
            service: Route::INGRESS.into(),
            upstreams: Vec::new(),
            inside: inside.https.clone(),
            allowed_sources: Arc::clone(&inside.allowed_sources),
            proof: Arc::default(),
            limits: inside.limits,
            tenant_limits: tenant.limits,
        })
    });
    let http = inside.http.first().map(|first| Arc::new(apps_host(cluster, first, uid)));
    Some(Apps { subtree: draft.subtree(), tls, http })
}

/// One entry for whatever host and path: what is there is for the cluster's own ingress controller to know.
fn apps_host(cluster: &Cluster, first: &InnerTarget, uid: &Arc<str>) -> Host {
    let service = Route::INGRESS.parse().expect("this is a name");
    let entry = Entry {
        object: ObjectRef::cluster_scoped(Kind::Cluster, (&cluster.name).into()),
        tenant: cluster.tenant.clone(),
        backend: Backend { service, port: Port::Number(first.port) },
        options: Arc::default(),
        policy: Arc::new(FederationPolicy { upstream: UpstreamTls::Plain, ..FederationPolicy::default() }),
        members: Arc::new([Arc::new(member_of(cluster, uid))]),
        unready: Arc::new([]),
    };
    let mut host = Host::new(cluster.tenant.clone(), Vec::new(), Some(Arc::new(entry)), None);
    host.allowed_sources = Some(Arc::clone(&cluster.controller.inside.allowed_sources));
    host
}

/// A cluster as requests are sent to it: from here, or through the tunnel.
pub(super) fn member_of(cluster: &Cluster, uid: &Arc<str>) -> Member {
    let controller = &cluster.controller;
    let inner = |target: &InnerTarget| {
        let (cluster, uid, target) = (cluster.name.clone(), Arc::clone(uid), target.clone());
        Place::Inside(Arc::new(Inner { cluster, uid, target }))
    };
    let (http, https) = match cluster.ingress {
        IngressMode::Hub => {
            let inside = &controller.inside;
            (inside.http.iter().map(inner).collect(), inside.https.iter().map(inner).collect())
        }
        IngressMode::Nodes => {
            let outside = |addresses: &[std::net::SocketAddr]| addresses.iter().copied().map(Place::from).collect();
            (outside(&controller.http), outside(&controller.https))
        }
    };
    let location = cluster.location.clone();
    Member { cluster: cluster.name.clone(), uid: Arc::clone(uid), location, http, https }
}

pub(super) fn status(cluster: &Cluster, draft: &Draft, zone: &Zone, part: &ClusterPart) -> Status {
    let ready_nodes = cluster.nodes.iter().filter(|node| node.ready).count();
    let (published, nodes_ready) = (published(draft, zone), nodes_ready(cluster, draft, zone, part));
    let detail = Detail::Cluster {
        api_name: draft.api_name.clone(),
        apps_name: draft.apps_name.clone(),
        ready_nodes,
        state: state(cluster, &published, &nodes_ready),
        kept: part.kept_set(),
        resolver: cluster.resolver.place,
    };
    let conditions = [published, nodes_ready, door_open(cluster)].into_iter();
    let conditions = conditions.chain(ingress_routed(cluster)).chain(drained(cluster));
    Status::accepted(conditions, detail)
}

/// That nobody is sent there, where somebody wants that.
fn drained(cluster: &Cluster) -> Option<Condition> {
    let (name, since) = (&cluster.name, cluster.drained?);
    // Whoever wrote it by hand need not say since when.
    let since = if since == Timestamp::default() { String::new() } else { format!(" since {since}") };
    let message =
        format!("federated traffic goes to other clusters{since}; `fleetgate drain {name} --undo` lets it come back");
    Some(Condition::new(Condition::DRAINED, true, "Drained", message))
}

/// Whether it is known where its ingress controller is reached through the tunnel, of a cluster that is reached so.
fn ingress_routed(cluster: &Cluster) -> Option<Condition> {
    if cluster.ingress != IngressMode::Hub {
        return None;
    }
    let inside = &cluster.controller.inside;
    let list = |targets: &[InnerTarget]| targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (holds, reason, message) = match (inside.http.is_empty(), inside.https.is_empty()) {
        (true, true) => {
            let lack = "spec.ingress has mode hub, and neither a service nor http or https says where the cluster's ingress controller is";
            (false, "NoTarget", lack.to_owned())
        }
        (true, false) => (true, "OnlyTLS", format!("TLS goes to {}; spec.ingress.http is empty", list(&inside.https))),
        (false, true) => {
            (true, "OnlyHTTP", format!("HTTP goes to {}; spec.ingress.https is empty", list(&inside.http)))
        }
        (false, false) => {
            let (http, https) = (list(&inside.http), list(&inside.https));
            (true, "Tunnel", format!("TLS goes to {https} and HTTP to {http}, through the tunnel"))
        }
    };
    Some(Condition::new(Condition::INGRESS_ROUTED, holds, reason, message))
}

/// Whether connections are let through to its control plane.
fn door_open(cluster: &Cluster) -> Condition {
    match &cluster.closed {
        None => Condition::new(Condition::DOOR_OPEN, true, "Open", ""),
        Some(refusal) => Condition::new(Condition::DOOR_OPEN, false, refusal.code(), refusal.to_string()),
    }
}

/// One word for a table: of all that could be said, what somebody would want to know first.
fn state(cluster: &Cluster, published: &Condition, nodes_ready: &Condition) -> &'static str {
    match cluster.access.as_ref().map(|access| access.reachable) {
        Some(Some(false)) => "Unreachable",
        Some(None) if cluster.nodes.is_empty() => "Pending",
        _ if cluster.drained.is_some() => "Drained",
        _ if cluster.ingress == IngressMode::Nodes && !nodes_ready.holds => "NoReadyNodes",
        _ if !published.holds => "NotPublished",
        _ => "Ready",
    }
}

/// Whether its names are in DNS, and by whom.
fn published(draft: &Draft, zone: &Zone) -> Condition {
    let (holds, reason, message) = match (zone.authoritative, zone.hand_out) {
        (false, false) => (false, "NotAuthoritative", format!("Zone {} does not publish it", zone.name)),
        _ if zone.gateway.is_none() => {
            let message = format!("Zone {} has no gateway for {} to point at", zone.name, draft.api_name);
            (false, "NoGateway", message)
        }
        (true, false) => (true, "Authoritative", String::new()),
        (false, true) => (true, "DNSEndpoint", "a DNSEndpoint hands it to others".to_owned()),
        (true, true) => {
            (true, "AuthoritativeAndDNSEndpoint", "answered here, and a DNSEndpoint hands it to others".to_owned())
        }
    };
    Condition::new(Condition::PUBLISHED, holds, reason, message)
}

/// A ready node without an address is none that anybody can reach.
fn nodes_ready(cluster: &Cluster, draft: &Draft, zone: &Zone, part: &ClusterPart) -> Condition {
    let ready = || cluster.nodes.iter().filter(|node| node.ready);
    if ready().any(|node| !node.addresses.is_empty()) {
        let message = format!("{} of {} ready", ready().count(), cluster.nodes.len());
        return Condition::new(Condition::NODES_READY, true, "Ready", message);
    }
    let unseen = cluster.access.as_ref().is_some_and(|access| access.reachable.is_none());
    let lack = match ready().count() {
        0 if unseen && cluster.nodes.is_empty() => "nobody has seen its nodes yet",
        0 => "no node is ready",
        _ => "no ready node has an address",
    };
    let apps = &draft.apps_name;
    let (reason, message) = match part.withdraw_at {
        Some(_) if part.held => {
            let zone = &zone.name;
            let release = format!("`fleetgate release zone {zone}` lets it go");
            (
                "Held",
                format!("{lack}, as in many other clusters of Zone {zone}; {apps} keeps its last addresses; {release}"),
            )
        }
        Some(at) => ("Grace", format!("{lack}; {apps} keeps its last addresses until {at}")),
        None if is_published(zone) && cluster.ingress == IngressMode::Nodes => {
            ("NoReadyNode", format!("{lack}; {apps} is withdrawn until that changes"))
        }
        None => ("NoReadyNode", lack.to_owned()),
    };
    Condition::new(Condition::NODES_READY, false, reason, message)
}
