//! The immutable result of a plan, and the steps from one to the next.
//!
//! A snapshot shares everything with its predecessor but what changed (persistent maps), so that publishing one costs
//! what the change costs. Data planes only read it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rpds::{HashTrieMapSync, HashTrieSetSync};

use crate::allocation::Entry;
use crate::digest::Digest;
use crate::fact::Timestamp;
use crate::identity::{ClusterId, ClusterName, Kind, ObjectName, ObjectRef};
use crate::ingress::Steering;
use crate::inside::InnerTarget;
use crate::name::DnsName;
use crate::network::{Cidr, Location};
use crate::plan::AGENTS_LABEL;
use crate::policy::{self, Applicant, Ground, Holding, RecordClaim, Refused};
use crate::proof::Proof;
pub use crate::record::{RecordData, RecordSet};
use crate::refusal::Refusal;
use crate::resolver::{ResolverPart, ResolverPlace};
use crate::resource::{HeldClaims, Limits, Node, Place, Resting};
use crate::routes::{Host, HostRule, HttpTable, below, is_below};
use crate::steering::{MemberKey, Unhealthy};
use crate::zone_file::ZoneFile;

#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Counts the plans that changed something.
    pub revision: u64,
    pub(crate) zones: HashTrieMapSync<ObjectName, Arc<ZonePart>>,
    pub(crate) clusters: HashTrieMapSync<ClusterName, Arc<ClusterPart>>,
    pub(crate) routes_by_id: HashTrieMapSync<ClusterId, Arc<Route>>,
    pub(crate) routes_by_server_name: HashTrieMapSync<DnsName, Arc<Route>>,
    /// What comes by `apps` wildcards and goes through the tunnel, by what those stand under.
    pub(crate) apps_routes: HashTrieMapSync<DnsName, Arc<Route>>,
    pub(crate) http: HttpTable,
    /// Ingresses of others' classes, of which nothing is said.
    pub(crate) foreign: HashTrieSetSync<ObjectRef>,
    /// What tenants have published by claims of their own.
    pub(crate) names: HashTrieMapSync<DnsName, Arc<TenantName>>,
    /// How many records each tenant has there.
    pub(crate) published: HashTrieMapSync<ObjectName, usize>,
    pub(crate) ground: Ground,
    /// Derived from the pools, by apex.
    pub(crate) reverse_zones: HashTrieMapSync<DnsName, Arc<ZonePart>>,
    /// The names of addresses.
    pub(crate) pointers: HashTrieMapSync<IpAddr, Arc<PointerPart>>,
    /// What a home has written down of addresses, and is to write down.
    pub(crate) addresses: HashTrieMapSync<IpAddr, Arc<Entry>>,
    pub(crate) statuses: HashTrieMapSync<ObjectRef, Arc<Status>>,
    /// How many of them say no.
    pub(crate) refused: usize,
}

impl Snapshot {
    /// The control plane that a routing TLV selects; `id` is compared octet by octet.
    pub fn route_by_id(&self, id: &[u8]) -> Option<&Arc<Route>> {
        // Ids are visible ASCII, so that what is no UTF-8 is no id.
        self.routes_by_id.get(std::str::from_utf8(id).ok()?)
    }

    pub fn route_by_server_name(&self, name: &DnsName) -> Option<&Arc<Route>> {
        self.routes_by_server_name.get(name)
    }

    /// Where TLS goes by the `apps` wildcard that a name lies under, at any depth as DNS answers it; the deepest one's. What an
    /// Ingress has is no wildcard's, whether there is a certificate for it or not. Names of control planes come first, too, and
    /// are for others to ask for.
    pub fn route_by_apps(&self, name: &DnsName) -> Option<&Arc<Route>> {
        let (subtree, route) = below(&self.apps_routes, name)?;
        let is_others = self.http.find(name).is_some_and(|found| match found.by {
            HostRule::Name | HostRule::Wildcard => true,
            HostRule::AnyHost => is_below(found.place, subtree),
            HostRule::Apps => false,
        });
        (!is_others).then_some(route)
    }

    /// Every route and the server name that leads to it, in no order; those of wildcards aside.
    pub fn routes(&self) -> impl Iterator<Item = (&DnsName, &Arc<Route>)> {
        self.routes_by_server_name.iter()
    }

    /// Every cluster id and the route that it selects, in no order.
    pub fn routes_by_id(&self) -> impl Iterator<Item = (&ClusterId, &Arc<Route>)> {
        self.routes_by_id.iter()
    }

    /// Where TLS goes by `apps` wildcards, by what those stand under, in no order.
    pub fn apps_routes(&self) -> impl Iterator<Item = (&DnsName, &Arc<Route>)> {
        self.apps_routes.iter()
    }

    /// Where HTTP requests go.
    pub fn http(&self) -> &HttpTable {
        &self.http
    }

    /// Whether it is an Ingress that others serve.
    pub fn is_foreign(&self, object: &ObjectRef) -> bool {
        self.foreign.contains(object)
    }

    /// The accepted zones and the reverse zones of the pools, in no order.
    pub fn zones(&self) -> impl Iterator<Item = &Arc<ZonePart>> {
        self.zones.values().chain(self.reverse_zones.values())
    }

    /// The zone that we answer for with this apex.
    pub fn zone_at(&self, apex: &DnsName) -> Option<&Arc<ZonePart>> {
        let of_zones = || self.zones.values().find(|part| part.authoritative && part.apex == *apex);
        self.reverse_zones.get(apex).or_else(of_zones)
    }

    /// What a home has written down of an address, and is to write down.
    pub fn address(&self, address: IpAddr) -> Option<&Arc<Entry>> {
        self.addresses.get(&address)
    }

    /// Every address that anything is known of or wanted, in no order.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, &Arc<Entry>)> {
        self.addresses.iter().map(|(address, entry)| (*address, entry))
    }

    pub fn zone(&self, name: &ObjectName) -> Option<&Arc<ZonePart>> {
        self.zones.get(name)
    }

    pub fn cluster(&self, name: &ClusterName) -> Option<&Arc<ClusterPart>> {
        self.clusters.get(name)
    }

    /// The name that a tenant has by a claim of its own.
    pub fn tenant_name(&self, name: &DnsName) -> Option<&Arc<TenantName>> {
        self.names.get(name)
    }

    /// Who owns what: for doors that are asked for something.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The agents' door in a zone.
    pub fn agents_door(apex: &DnsName) -> Option<DnsName> {
        apex.prepend(AGENTS_LABEL).ok()
    }

    /// Whether it is the name of the agents' door in an accepted zone.
    pub fn is_agents_door(&self, name: &DnsName) -> bool {
        let is_ours = name.labels().next() == Some(AGENTS_LABEL.as_bytes());
        is_ours && name.parent().is_some_and(|apex| self.ground.has_zone(&apex))
    }

    /// What would become of claims now, as far as can be told without taking them in: of each by itself, beside what others
    /// have, and beside what the applicant may still have.
    pub fn judge(&self, applicant: &Applicant, claims: &[Result<RecordClaim, Refused>]) -> Vec<Result<(), Refused>> {
        let tenant = &applicant.tenant;
        let quota = self.ground.tenant(tenant).and_then(|tenant| tenant.quota.records);
        let mut has = self.published.get(tenant).copied().unwrap_or_default();
        let judged = claims.iter().map(|claim| {
            let claim = claim.as_ref().map_err(Clone::clone)?;
            policy::judge(&self.ground, applicant, claim)?;
            let held = self.names.get(&claim.name);
            if held.is_some_and(|held| held.tenant != *tenant) {
                return Err(Refused::at_name(Refusal::NameHeld { name: claim.name.clone(), holder: None }));
            }
            // What it stands in the place of.
            let sets = held.into_iter().flat_map(|held| held.records.records.iter());
            let before = sets.filter(|set| set.data.rtype() == claim.data.rtype()).map(|set| set.data.count()).sum();
            let more = claim.data.count().saturating_sub(before);
            match quota {
                Some(most) if more > 0 && has + more > most as usize => {
                    Err(Refused::at_name(Refusal::QuotaExceeded { what: "records", most }))
                }
                _ => {
                    has += more;
                    Ok(())
                }
            }
        });
        judged.collect()
    }

    /// How many names are held of a Zone or a Tenant.
    pub fn held_names(&self, object: &ObjectRef) -> usize {
        let held = |status: &Status| match &status.detail {
            Detail::Tenant { held, .. } => held.iter().flat_map(HeldClaims::names).cloned().collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        if object.kind == Kind::Tenant {
            return self.status(object).map_or(0, |status| held(status).len());
        }
        let is_here = |name: &DnsName| self.ground.zone_of(name).is_some_and(|zone| zone.name == object.name);
        let names = self.statuses().flat_map(|(_, status)| held(status)).filter(is_here).count();
        let apex = self.zone(&object.name).map(|part| &part.apex);
        names + self.clusters.values().filter(|part| part.held && Some(&part.apex) == apex).count()
    }

    pub fn status(&self, object: &ObjectRef) -> Option<&Arc<Status>> {
        self.statuses.get(object)
    }

    /// Every object that the plan knows, in no order.
    pub fn statuses(&self) -> impl Iterator<Item = (&ObjectRef, &Arc<Status>)> {
        self.statuses.iter()
    }

    /// The accepted clusters, in no order.
    pub fn clusters(&self) -> impl Iterator<Item = (&ClusterName, &Arc<ClusterPart>)> {
        self.clusters.iter()
    }

    /// What tenants have by claims of their own, in no order.
    pub fn tenant_names(&self) -> impl Iterator<Item = &Arc<TenantName>> {
        self.names.values()
    }

    /// The names of addresses, in no order.
    pub fn pointers(&self) -> impl Iterator<Item = &Arc<PointerPart>> {
        self.pointers.values()
    }

    /// How many records a tenant has by claims of its own.
    pub fn published_by(&self, tenant: &ObjectName) -> usize {
        self.published.get(tenant).copied().unwrap_or_default()
    }

    pub fn cluster_count(&self) -> usize {
        self.clusters.size()
    }

    pub fn zone_count(&self) -> usize {
        self.zones.size() + self.reverse_zones.size()
    }

    /// How many objects are refused.
    pub fn refused_count(&self) -> usize {
        self.refused
    }
}

/// What an accepted zone contributes.
#[derive(Debug, Clone, PartialEq)]
pub struct ZonePart {
    pub apex: DnsName,
    pub soa: Soa,
    pub names: Vec<NameRecords>,
    /// Records that stand beside them.
    pub file: Option<Arc<ZoneFile>>,
    /// Whether anything in it is ours, the clusters' names aside; else the file's serial may count.
    pub(crate) generated: bool,
    /// Of everything that is served, but for the serial, which rises whenever this changes.
    pub digest: Digest,
    pub authoritative: bool,
    /// Whether the names of its clusters are handed to others.
    pub hand_out: bool,
    /// The pool whose addresses have their names in it; none where it is a Zone's.
    pub pool: Option<ObjectName>,
}

/// The PTR record of one address.
#[derive(Debug, Clone, PartialEq)]
pub struct PointerPart {
    /// The apex of the zone that it stands in.
    pub apex: DnsName,
    pub records: NameRecords,
}

impl PointerPart {
    pub(crate) fn answered(&self) -> (&DnsName, &[NameRecords]) {
        (&self.apex, std::slice::from_ref(&self.records))
    }

    /// The name that the address has.
    pub fn target(&self) -> Option<DnsName> {
        self.records.records.iter().find_map(|set| set.data.targets().first().map(|name| DnsName::clone(name)))
    }
}

/// RFC 1035 3.3.13, with the TTL that the record itself has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    pub ttl: u32,
    pub primary: DnsName,
    pub mailbox: DnsName,
    pub serial: u32,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
    pub minimum: u32,
}

/// What an accepted cluster contributes.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPart {
    /// The apex of the zone that `names` stand in.
    pub apex: DnsName,
    pub id: ClusterId,
    pub location: Location,
    pub nodes: Arc<[Node]>,
    /// Since when no federated traffic is sent there, as somebody wants it.
    pub drained: Option<Timestamp>,
    /// What is published of it, by whomever.
    pub names: Vec<NameRecords>,
    /// Whether we answer for them.
    pub authoritative: bool,
    /// Whether they are handed to others.
    pub hand_out: bool,
    /// The API server's route is the first. None while the door is closed.
    pub routes: Vec<(DnsName, Arc<Route>)>,
    /// What its `apps` wildcard leads to through the tunnel. It does not depend on the control plane's door.
    pub apps: Option<Apps>,
    /// What the control planes' resolver knows of it.
    pub resolver: Arc<ResolverPart>,
    /// What it holds for its tenant and for its control plane.
    pub holding: Arc<Holding>,
    /// When the last addresses of the `apps` name go, while no node is ready.
    pub(crate) withdraw_at: Option<Timestamp>,
    /// They stay although that is over, as too many others would go too.
    pub held: bool,
}

/// What comes by the `apps` wildcard of a cluster, and goes to its ingress controller through the tunnel.
#[derive(Debug, Clone, PartialEq)]
pub struct Apps {
    /// What the wildcard stands under.
    pub subtree: DnsName,
    /// TLS, by its server name; it ends in the cluster.
    pub tls: Option<Arc<Route>>,
    /// HTTP, by its host.
    pub http: Option<Arc<Host>>,
}

/// A name that a tenant claimed and has.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantName {
    pub tenant: ObjectName,
    /// The apex of the zone that it stands in.
    pub apex: DnsName,
    /// Whether we answer for it.
    pub authoritative: bool,
    /// Whether it is handed to others.
    pub hand_out: bool,
    pub records: NameRecords,
}

impl TenantName {
    /// What it leads to where it is an alias.
    pub(crate) fn alias(&self) -> Option<DnsName> {
        self.records.records.iter().find_map(|set| match &set.data {
            RecordData::Cname(target) => Some(target.clone()),
            _ => None,
        })
    }

    /// What we answer with.
    pub(crate) fn answered(&self) -> &[NameRecords] {
        if self.authoritative { std::slice::from_ref(&self.records) } else { &[] }
    }
}

impl ClusterPart {
    /// The names that we answer for.
    pub fn answered(&self) -> &[NameRecords] {
        if self.authoritative { &self.names } else { &[] }
    }

    /// The names that others are to answer for.
    pub fn handed_out(&self) -> &[NameRecords] {
        if self.hand_out { &self.names } else { &[] }
    }

    /// Whether its `apps` name has records.
    pub(crate) fn has_apps(&self) -> bool {
        self.names.last().is_some_and(|name| name.name.is_wildcard())
    }

    /// What a restart must not forget, while no node is ready.
    pub(crate) fn kept_set(&self) -> Option<KeptSet> {
        let until = self.withdraw_at?;
        // The `apps` name stands last, and has records as long as it is not withdrawn.
        let apps = self.names.last()?;
        Some(KeptSet { name: apps.name.clone(), addresses: apps.addresses(), until })
    }
}

/// The last addresses of a cluster's `apps` name, which stay for the zone's grace time when no node is ready any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSet {
    pub name: DnsName,
    pub addresses: Vec<IpAddr>,
    pub until: Timestamp,
}

/// All records of one name: the plan gives every name exactly one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRecords {
    pub name: DnsName,
    pub records: Arc<[RecordSet]>,
    /// Which of its addresses a client gets is chosen query by query.
    ///
    /// `records` hold the addresses of all members then, and the zone's digest and number follow from them alone: health and
    /// load are no content. So whoever has a copy of the zone (a secondary, ExternalDNS by a `DNSEndpoint`) has all
    /// members, and answers with those that are out, too.
    pub steered: Option<Arc<SteeredName>>,
}

/// How the addresses of a name are chosen. Where something decides that changes by the second, it stands in
/// [`Standings`](crate::steering::Standings).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeredName {
    pub steering: Steering,
    /// By the names of their clusters.
    pub members: Vec<SteeredMember>,
}

/// A cluster that a steered name can lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeredMember {
    pub cluster: ClusterName,
    pub key: MemberKey,
    pub location: Location,
    /// Of both families.
    pub addresses: Vec<IpAddr>,
    /// Why it is known not to serve the name.
    pub unready: Option<Unhealthy>,
}

impl NameRecords {
    /// Everybody who asks gets all of them.
    pub fn plain(name: DnsName, records: Arc<[RecordSet]>) -> Self {
        Self { name, records, steered: None }
    }

    /// The addresses that it leads to by itself.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let of_set = |set: &RecordSet| match &set.data {
            RecordData::A(addresses) => addresses.iter().copied().map(IpAddr::from).collect(),
            RecordData::Aaaa(addresses) => addresses.iter().copied().map(IpAddr::from).collect(),
            _ => Vec::new(),
        };
        self.records.iter().flat_map(of_set).collect()
    }
}

/// Where a connection goes, who may make it, and how many there may be.
#[derive(Debug, PartialEq, Eq)]
pub struct Route {
    pub cluster: ClusterName,
    pub tenant: ObjectName,
    /// `kube-apiserver`, the name of the control-plane service, or `ingress`.
    pub service: Arc<str>,
    /// Empty only where it is reached from inside its cluster.
    pub upstreams: Vec<SocketAddr>,
    /// Where its cluster's agent reaches it.
    pub inside: Vec<InnerTarget>,
    pub allowed_sources: Arc<[Cidr]>,
    /// For connections that select the cluster by its id.
    pub proof: Arc<Proof>,
    /// For all routes to the cluster's control plane together, or for its applications.
    pub limits: Limits,
    /// For all clusters of the tenant together.
    pub tenant_limits: Limits,
}

impl Route {
    /// What everything is called that comes by an `apps` wildcard.
    pub const INGRESS: &'static str = "ingress";

    /// Whether it goes through the tunnel.
    pub fn is_inside(&self) -> bool {
        !self.inside.is_empty()
    }

    pub fn admits(&self, client: IpAddr) -> bool {
        self.allowed_sources.iter().any(|range| range.contains(client))
    }
}

/// What we say of an object: on the object itself on a hub, through `get` from a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub conditions: Vec<Condition>,
    pub detail: Detail,
    /// The object that had first what this one wants too.
    pub lost_to: Option<ObjectRef>,
    /// Which generation of the object it speaks of, where that is known.
    pub generation: Option<i64>,
}

impl Status {
    pub(crate) fn accepted(others: impl IntoIterator<Item = Condition>, detail: Detail) -> Self {
        let accepted = Condition::new(Condition::ACCEPTED, true, "Valid", "");
        Self { conditions: std::iter::once(accepted).chain(others).collect(), detail, lost_to: None, generation: None }
    }

    pub(crate) fn refused(refusal: &Refusal) -> Self {
        let conditions = vec![Condition::refused(refusal)];
        Self { conditions, detail: Detail::None, lost_to: refusal.holder(), generation: None }
    }

    /// The object as it is now cannot be read; the rest speaks of an earlier one, which may still be served.
    pub(crate) fn broken(mut self, refusal: &Refusal) -> Self {
        self.conditions.retain(|condition| condition.kind != Condition::ACCEPTED);
        self.conditions.insert(0, Condition::refused(refusal));
        Self { lost_to: refusal.holder(), generation: None, ..self }
    }

    pub(crate) fn of_generation(self, generation: Option<i64>) -> Self {
        Self { generation, ..self }
    }

    /// With what checks say of an Ingress' members, which no plan knows: those that serve it otherwise and fail now.
    pub fn with_failing(&self, failing: Option<&BTreeSet<ClusterName>>) -> Cow<'_, Self> {
        let (Some(failing), Detail::Ingress { members, .. }) = (failing, &self.detail) else {
            return Cow::Borrowed(self);
        };
        let failing: Vec<_> = failing.iter().filter(|cluster| members.contains(cluster)).collect();
        let mut status = self.clone();
        if let Detail::Ingress { parts, .. } = &mut status.detail {
            for part in parts.iter_mut().filter(|part| part.outcome.is_ok()) {
                if let Some(cluster) = failing.iter().find(|cluster| cluster.as_str() == &*part.part) {
                    let refusal = Refusal::FailedChecks { cluster: ClusterName::clone(cluster) };
                    part.outcome = Err(Refused::new(refusal, ""));
                }
            }
        }
        Cow::Owned(status)
    }

    pub fn refusal(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == Condition::ACCEPTED && !condition.holds)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    None,
    Tenant {
        /// What is held of it, the oldest first.
        held: Vec<HeldClaims>,
        /// What it had and nobody else can have yet; what rests longest first.
        resting: Vec<(Place, Resting)>,
    },
    Zone {
        serial: u32,
        digest: Digest,
    },
    Cluster {
        api_name: DnsName,
        apps_name: DnsName,
        ready_nodes: usize,
        /// One word for a table.
        state: &'static str,
        /// While no node is ready.
        kept: Option<KeptSet>,
        /// Where its control plane meets the resolver, as its home has written it down.
        resolver: Option<ResolverPlace>,
    },
    AddressPool {
        given: usize,
        /// Those that nobody has and nobody can get yet.
        resting: usize,
        free_v4: u64,
        free_v6: u64,
        /// Those that are served, in the order of their addresses.
        zones: Vec<ReverseZone>,
    },
    AddressClaim {
        address: Option<IpAddr>,
        /// The name that the address has.
        name: Option<DnsName>,
    },
    /// Of a `DNSEndpoint`: what became of each of its endpoints, in their order.
    Records {
        /// Of what it asked for; where names are held, they come behind that.
        digest: Digest,
        parts: Vec<PartStatus>,
    },
    Ingress {
        /// The clusters that serve it.
        members: Vec<ClusterName>,
        /// What became of its paths, its certificates and its members.
        parts: Vec<IngressPart>,
        /// The records that stand for its hosts, as far as they are not another Ingress'.
        published: Vec<PublishedSet>,
        /// What it is to be like in each of the members.
        copies: Vec<IngressCopy>,
        /// Where clients meet it, as far as that is known.
        entry_points: Vec<EntryPoint>,
    },
}

impl Detail {
    /// What became of each part, where the object has parts: what it is called, and the refusal.
    pub fn parts(&self) -> Vec<(&str, Result<(), &Refused>)> {
        match self {
            Self::Records { parts, .. } => {
                parts.iter().map(|part| (&*part.part, part.outcome.as_ref().map(|_| ()))).collect()
            }
            Self::Ingress { parts, .. } => {
                parts.iter().map(|part| (&*part.part, part.outcome.as_ref().copied())).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What became of a path, a certificate, a member or an annotation of an Ingress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressPart {
    /// `host/path`, `defaultBackend`, `tls[0]`, the name of a cluster or of an annotation.
    pub part: Arc<str>,
    pub outcome: Result<(), Refused>,
}

/// What an Ingress has of its own in one cluster; all else is as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressCopy {
    pub cluster: ClusterName,
    /// None leaves it to the cluster's default.
    pub class: Option<Arc<str>>,
    /// Beside those of the Ingress, or instead.
    pub annotations: BTreeMap<String, String>,
}

/// Where clients meet an Ingress.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryPoint {
    Address(IpAddr),
    Name(DnsName),
}

/// A reverse zone, and under which number its content is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReverseZone {
    pub apex: DnsName,
    pub serial: u32,
    pub digest: Digest,
}

/// What became of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartStatus {
    /// Name and type as they were written.
    pub part: Arc<str>,
    /// Since when it has been asked for.
    pub since: Timestamp,
    pub outcome: Result<PublishedSet, Refused>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedSet {
    pub name: DnsName,
    pub set: RecordSet,
    /// Whether it is handed to others.
    pub hand_out: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub holds: bool,
    /// A fixed word: a refusal's code, or why the condition holds.
    pub reason: &'static str,
    pub message: String,
    /// When `holds` last changed.
    pub since: Timestamp,
}

impl Condition {
    /// The object is valid and clashes with nothing.
    pub const ACCEPTED: &'static str = "Accepted";
    /// The cluster's names are in DNS.
    pub const PUBLISHED: &'static str = "Published";
    /// At least one node is ready.
    pub const NODES_READY: &'static str = "NodesReady";
    /// Connections are let through to its control plane.
    pub const DOOR_OPEN: &'static str = "DoorOpen";
    /// It is known where the cluster's ingress controller is reached through the tunnel.
    pub const INGRESS_ROUTED: &'static str = "IngressRouted";
    /// The claim has an address.
    pub const ALLOCATED: &'static str = "Allocated";
    /// The address has the name that its claim gives, or the default where it gives none.
    pub const PTR_PUBLISHED: &'static str = "PtrPublished";
    /// The reverse zones of the pool are answered for.
    pub const REVERSE_SERVED: &'static str = "ReverseServed";

    /// No federated traffic is sent to the cluster, as somebody wants it; not there otherwise.
    pub const DRAINED: &'static str = "Drained";

    /// At least one cluster serves the Ingress.
    pub const PLACED: &'static str = "Placed";

    /// Objects in the tenant's namespace are its own.
    pub const NAMESPACE_OWNED: &'static str = "NamespaceOwned";
    /// Names would go in a mass, and are served on until somebody lets them go.
    pub const WITHDRAWALS_HELD: &'static str = "WithdrawalsHeld";

    /// Those that are there only while something is out of the ordinary; the others should hold.
    pub const EXCEPTIONS: [&'static str; 2] = [Self::WITHDRAWALS_HELD, Self::DRAINED];

    /// Whether it is no reason to look.
    pub fn is_well(&self) -> bool {
        self.holds != Self::EXCEPTIONS.contains(&self.kind)
    }

    pub(crate) fn new(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, holds, reason, message: message.into(), since: Timestamp::default() }
    }

    fn refused(refusal: &Refusal) -> Self {
        Self::new(Self::ACCEPTED, false, refusal.code(), refusal.to_string())
    }
}

/// The steps from one snapshot to the next, for those that keep an index of their own.
///
/// To be taken in order: zones, then names. Every name's step gives all of its records, so that no step depends on what
/// was there before.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    pub zones: Vec<ZoneChange>,
    pub names: Vec<NameChange>,
    /// The clusters that contribute something else than before, whether we answer for it or others.
    pub clusters: Vec<ClusterName>,
    /// The addresses of which a home has something else written down, or is to.
    pub addresses: Vec<IpAddr>,
    /// The hosts that are served otherwise than before, and the suffixes below which others are.
    pub hosts: Vec<DnsName>,
    /// The objects whose status is another than before.
    pub statuses: Vec<ObjectRef>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ZoneChange {
    /// The zone and every name in it are gone.
    Withdraw { apex: DnsName },
    /// A new zone, or a new SOA or zone file for one that is there. The names that the plan gives are served beside
    /// those of the file; no name has both.
    Serve { apex: DnsName, soa: Soa, file: Option<Arc<ZoneFile>> },
}

/// No records means that the name is gone.
#[derive(Debug, Clone, PartialEq)]
pub struct NameChange {
    pub apex: DnsName,
    pub name: DnsName,
    pub records: Arc<[RecordSet]>,
    pub steered: Option<Arc<SteeredName>>,
}
