//! One Ingress by itself: whose it is, how it is served and by which clusters, and the hosts that it may ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Federation, State, World};
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::ingress::{Backend, EntryMode, FederationPolicy, OUR_CLASS, Override};
use crate::name::DnsName;
use crate::placement::SYSTEM_NAMESPACES;
use crate::plan::ClusterState;
use crate::plan::cluster::{door_sets, member_of, ready_addresses};
use crate::plan::records::hosts::HostAsk;
use crate::plan::zone::address_sets;
use crate::policy::{self, Placed};
use crate::record::RecordSet;
use crate::refusal::Refusal;
use crate::resource::{Cluster, IngressMode};
use crate::routes::Member;
use crate::snapshot::{IngressCopy, SteeredMember, SteeredName};
use crate::steering::{MemberKey, Unhealthy};

#[derive(Debug, PartialEq)]
pub(super) struct Placing {
    pub(super) tenant: ObjectName,
    pub(super) policy: Arc<FederationPolicy>,
    /// Those that can be reached, by name.
    pub(super) members: Arc<[Arc<Member>]>,
    /// Where DNS sends clients, for each of the members.
    pub(super) addresses: Vec<Vec<IpAddr>>,
    /// The clusters that it is placed on, and what is wrong with one.
    pub(super) clusters: BTreeMap<ClusterName, Result<(), Refusal>>,
    /// What it is to be like in each of the members.
    pub(super) copies: Vec<IngressCopy>,
    /// The members that are known not to serve a backend, where there are any.
    pub(super) unready: BTreeMap<Backend, Arc<[(ClusterName, Unhealthy)]>>,
    /// What the policy says of each host by itself.
    pub(super) hosts: BTreeMap<DnsName, Result<Option<Placed>, Refusal>>,
}

impl Placing {
    /// What is to stand at the names of its hosts.
    pub(super) fn asks(&self, object: &ObjectRef, world: &World<'_>) -> Vec<HostAsk> {
        let steered = (self.policy.entry == EntryMode::Dns).then(|| Arc::new(self.steered(object)));
        let good = self.hosts.iter().filter_map(|(host, judged)| Some((host, judged.as_ref().ok()?)));
        let ask = |(host, placed): (&DnsName, &Option<Placed>)| HostAsk {
            host: host.clone(),
            placed: placed.clone(),
            sets: placed.as_ref().map_or_else(Vec::new, |placed| self.sets(placed, world)),
            steered: steered.clone(),
        };
        good.map(ask).collect()
    }

    /// What DNS chooses among.
    fn steered(&self, object: &ObjectRef) -> SteeredName {
        let members = self.members.iter().zip(&self.addresses).map(|(member, addresses)| SteeredMember {
            cluster: member.cluster.clone(),
            key: MemberKey::of(object, &member.uid),
            location: member.location.clone(),
            addresses: addresses.clone(),
            unready: self.unready_member(&member.cluster),
        });
        SteeredName { steering: self.policy.steering.clone(), members: members.collect() }
    }

    /// Of several backends the one that is not served counts: the name leads to all of them.
    fn unready_member(&self, cluster: &ClusterName) -> Option<Unhealthy> {
        let mut unready = self.unready.values().flat_map(|unready| unready.iter());
        unready.find(|(name, _)| name == cluster).map(|(_, why)| *why)
    }

    /// Where DNS sends clients now: all members, if none is known to serve.
    pub(super) fn live_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let is_ready = |member: &Member| self.unready_member(&member.cluster).is_none();
        let is_panic = !self.members.iter().any(|member| is_ready(member));
        let members = self.members.iter().zip(&self.addresses);
        let live = members.filter(move |(member, _)| is_panic || is_ready(member));
        live.flat_map(|(_, addresses)| addresses.iter().copied())
    }

    /// The gateway of the zone, or all members.
    fn sets(&self, placed: &Placed, world: &World<'_>) -> Vec<RecordSet> {
        match self.policy.entry {
            EntryMode::Vip => {
                let zone = world.ground.zone_at(&placed.apex).and_then(|zone| world.zones.get(&zone.name));
                let door = zone.and_then(|zone| zone.value.gateway.as_ref());
                door.map_or_else(Vec::new, |door| door_sets(door, placed.ttl))
            }
            EntryMode::Dns => address_sets(self.addresses.iter().flatten().copied(), placed.ttl),
        }
    }
}

impl Federation {
    /// `None` for an Ingress that is not ours.
    pub(super) fn judge(
        &mut self,
        object: &ObjectRef,
        state: &State,
        world: &World<'_>,
    ) -> Option<Result<Placing, Refusal>> {
        let policy = self.policy_of(state.ingress.class.as_ref()?, world)?;
        Some(policy.and_then(|policy| self.place_by(object, state, policy, world)))
    }

    /// How the Ingresses of a class are served; `None` for a class that is not ours.
    pub(super) fn policy_of(
        &self,
        class: &ObjectName,
        world: &World<'_>,
    ) -> Option<Result<Arc<FederationPolicy>, Refusal>> {
        let Some(fact) = self.classes.get(class) else {
            return (class.as_str() == OUR_CLASS).then(|| Ok(Arc::clone(&self.built_in)));
        };
        if !fact.value.ours {
            return None;
        }
        if fact.value.hindrance.is_some() {
            return Some(Err(Refusal::RefusedClass(class.clone())));
        }
        let Some(name) = &fact.value.policy else { return Some(Ok(Arc::clone(&self.built_in))) };
        let policy = self.policies.get(name).map(|policy| Arc::clone(&policy.value));
        Some(policy.ok_or_else(|| {
            let object = ObjectRef::cluster_scoped(Kind::FederationPolicy, name.clone());
            if world.broken.contains_key(&object) {
                Refusal::RefusedPolicy(name.clone())
            } else {
                Refusal::UnknownPolicy(name.clone())
            }
        }))
    }

    fn place_by(
        &mut self,
        object: &ObjectRef,
        state: &State,
        policy: Arc<FederationPolicy>,
        world: &World<'_>,
    ) -> Result<Placing, Refusal> {
        let namespace = object.namespace.clone().unwrap_or_else(|| object.name.clone());
        let Some(tenant) = world.ground.tenant_of_namespace(&namespace).cloned() else {
            return Err(Refusal::NoTenant { namespace });
        };
        if let Some(hindrance) = &state.ingress.hindrance {
            return Err(hindrance.clone());
        }
        let (ingress, place) = (&state.ingress, (namespace, object.name.clone()));
        let backends = ingress.backends();
        let (mut members, mut addresses, mut clusters) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (mut copies, mut unready) = (Vec::new(), BTreeMap::<&Backend, Vec<_>>::new());
        for state in accepted_clusters(&tenant, world).filter(|state| policy.selects(&state.cluster.labels)) {
            let cluster = &state.cluster;
            let name = &cluster.name;
            let mut outcome = may_be_in(&place.0).and_then(|()| is_reached(cluster, &policy));
            if outcome.is_ok() {
                members.push(self.member(state));
                addresses.push(entry_addresses(cluster));
                copies.push(copy(cluster, ingress.overrides.get(name)));
                if let Some(access) = &cluster.access {
                    outcome = access.judge(name, &place, backends.iter().copied());
                    for backend in &backends {
                        let why = access.unready(&place, backend).map(|why| (name.clone(), why));
                        unready.entry(*backend).or_default().extend(why);
                    }
                }
                if cluster.drained.is_some() {
                    outcome = Err(Refusal::Drained { cluster: name.clone() });
                    for backend in &backends {
                        let members = unready.entry(*backend).or_default();
                        members.retain(|(member, _)| member != name);
                        members.push((name.clone(), Unhealthy::Drained));
                    }
                }
            }
            clusters.insert(name.clone(), outcome);
        }
        let unready = unready.into_iter().filter(|(_, members)| !members.is_empty());
        let unready = unready.map(|(backend, members)| (backend.clone(), members.into())).collect();
        let hosts = ingress.hosts().into_iter();
        let hosts = hosts.map(|host| (host.clone(), policy::judge_host(world.ground, &tenant, host))).collect();
        Ok(Placing { tenant, policy, members: members.into(), addresses, clusters, copies, unready, hosts })
    }

    /// As it was before, where it is the same.
    fn member(&mut self, state: &ClusterState) -> Arc<Member> {
        let cluster = &state.cluster;
        let member = member_of(cluster, &state.seniority.since.uid(&cluster.name));
        if let Some(known) = self.members.get(&cluster.name).filter(|known| ***known == member) {
            return Arc::clone(known);
        }
        let member = Arc::new(member);
        self.members.insert(cluster.name.clone(), Arc::clone(&member));
        member
    }
}

/// By name.
fn accepted_clusters<'a>(tenant: &ObjectName, world: &World<'a>) -> impl Iterator<Item = &'a ClusterState> {
    let names = world.clusters_of_tenant.get(tenant).into_iter().flatten();
    let clusters = world.clusters;
    names.filter_map(|name| clusters.get(name)).filter(|state| state.accepted)
}

/// The suffixes that a tenant has, alone or not.
pub(super) fn suffixes(tenant: &ObjectName, world: &World<'_>) -> BTreeSet<DnsName> {
    let domains = world.ground.tenant(tenant).into_iter().flat_map(|tenant| tenant.domains.iter().cloned());
    let subtrees = accepted_clusters(tenant, world).filter_map(|state| match &state.draft {
        Some(Ok(draft)) => Some(draft.subtree()),
        _ => None,
    });
    domains.chain(subtrees).collect()
}

/// What is written into members never goes to Kubernetes' own namespaces.
fn may_be_in(namespace: &ObjectName) -> Result<(), Refusal> {
    let is_system = SYSTEM_NAMESPACES.contains(&namespace.as_str());
    if is_system { Err(Refusal::SystemNamespace { namespace: namespace.clone() }) } else { Ok(()) }
}

fn copy(cluster: &Cluster, other: Option<&Arc<Override>>) -> IngressCopy {
    let class = other.and_then(|other| other.class.as_ref()).map(|class| class.as_str().into());
    IngressCopy {
        cluster: cluster.name.clone(),
        class: class.or_else(|| cluster.controller.class.clone()),
        annotations: other.map(|other| other.annotations.clone()).unwrap_or_default(),
    }
}

/// Whether clients can be sent to a cluster in the way of the policy.
fn is_reached(cluster: &Cluster, policy: &FederationPolicy) -> Result<(), Refusal> {
    let name = || cluster.name.clone();
    let (is_reached, field) = match policy.entry {
        EntryMode::Dns if cluster.ingress == IngressMode::Hub => {
            return Err(Refusal::BehindTunnel { cluster: name() });
        }
        EntryMode::Dns => (!entry_addresses(cluster).is_empty(), "spec.ingress.https"),
        EntryMode::Vip => {
            let member = member_of(cluster, &Arc::default());
            let places = member.places(&policy.upstream);
            (!places.list.is_empty(), if places.is_tls { "spec.ingress.https" } else { "spec.ingress.http" })
        }
    };
    if is_reached { Ok(()) } else { Err(Refusal::NoIngressAddress { cluster: name(), field }) }
}

/// Where DNS sends clients of a cluster: to its ingress controller, or to its ready nodes where that is not said.
fn entry_addresses(cluster: &Cluster) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = match cluster.controller.https.as_slice() {
        [] => ready_addresses(cluster).collect(),
        given => given.iter().map(std::net::SocketAddr::ip).collect(),
    };
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
