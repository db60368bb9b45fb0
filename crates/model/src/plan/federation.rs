//! Federated ingress: which Ingresses are ours, which clusters serve them, and which hosts and paths each has.
//!
//! It goes in two steps around the settling of names. First every Ingress that something changed for is placed by itself: its
//! tenant, its policy, its members, and the hosts that it may ask for. Then, when it is known who has which host, the paths
//! of all Ingresses that share one are merged, the senior one's first, and everybody is told.
//!
//! Members are only ever clusters of the tenant whose namespace the Ingress is in.

mod merge;
mod placing;
mod status;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::ClusterState;
use super::records::{self, Records};
use super::step::Step;
use crate::fact::{Fact, Since};
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::ingress::{Certificate, EntryMode, FederationPolicy, Ingress, IngressClass};
use crate::name::DnsName;
use crate::policy::{Ground, Holding};
use crate::refusal::Refusal;
use crate::resource::{Access, Cluster, Zone};
use crate::routes::Member;
use crate::snapshot::Status;

use merge::Merged;
use placing::Placing;

#[derive(Debug, Default)]
pub(super) struct Federation {
    objects: BTreeMap<ObjectRef, State>,
    classes: BTreeMap<ObjectName, Fact<IngressClass>>,
    policies: BTreeMap<ObjectName, Fact<Arc<FederationPolicy>>>,
    /// By their Secrets.
    certificates: HashMap<ObjectRef, Result<Arc<Certificate>, Refusal>>,
    /// For classes that name no policy.
    built_in: Arc<FederationPolicy>,
    /// The clusters that serve anything, shared by all entries.
    members: HashMap<ClusterName, Arc<Member>>,
    by_class: HashMap<ObjectName, BTreeSet<ObjectRef>>,
    by_secret: HashMap<ObjectRef, BTreeSet<ObjectRef>>,
    by_host: BTreeMap<DnsName, BTreeSet<ObjectRef>>,
    /// Those that are placed.
    by_tenant: HashMap<ObjectName, BTreeSet<ObjectRef>>,
    /// The suffixes of tenants that serve every host of their own, and whether that is theirs alone: only below those they do.
    everywhere: HashMap<ObjectName, BTreeMap<DnsName, bool>>,
    /// The same the other way around.
    suffix_owners: HashMap<DnsName, BTreeSet<ObjectName>>,
    touched: Touched,
}

#[derive(Debug)]
struct State {
    since: Since,
    generation: Option<i64>,
    ingress: Ingress,
    /// `None`: it is not ours, or this plan has not come to it yet.
    placing: Option<Result<Placing, Refusal>>,
}

/// What has to be looked at again.
#[derive(Debug, Default)]
struct Touched {
    all: bool,
    /// To be placed again.
    objects: BTreeSet<ObjectRef>,
    /// To be merged again.
    hosts: BTreeSet<DnsName>,
    /// Whose rules without a host are to be merged again.
    tenants: BTreeSet<ObjectName>,
    /// To be told again.
    statuses: BTreeSet<ObjectRef>,
}

/// What an Ingress stands upon.
pub(super) struct World<'a> {
    pub(super) ground: &'a Ground,
    pub(super) zones: &'a BTreeMap<ObjectName, Fact<Zone>>,
    pub(super) clusters: &'a HashMap<ClusterName, ClusterState>,
    pub(super) clusters_of_tenant: &'a HashMap<ObjectName, BTreeSet<ClusterName>>,
    pub(super) broken: &'a BTreeMap<ObjectRef, Refusal>,
}

impl Federation {
    /// Puts an Ingress' new facts in the place of its old ones.
    pub(super) fn enter(&mut self, object: &ObjectRef, fact: Option<Fact<Ingress>>) {
        self.leave(object);
        let Some(Fact { since, generation, value: ingress }) = fact else { return };
        if let Some(class) = &ingress.class {
            self.by_class.entry(class.clone()).or_default().insert(object.clone());
        }
        for secret in secrets(object, &ingress) {
            self.by_secret.entry(secret).or_default().insert(object.clone());
        }
        for host in ingress.hosts() {
            self.by_host.entry(host.clone()).or_default().insert(object.clone());
        }
        self.objects.insert(object.clone(), State { since, generation, ingress, placing: None });
    }

    fn leave(&mut self, object: &ObjectRef) {
        self.touched.objects.insert(object.clone());
        self.touched.statuses.insert(object.clone());
        let Some(state) = self.objects.remove(object) else { return };
        if let Some(class) = &state.ingress.class {
            forget(&mut self.by_class, class, object);
        }
        for secret in secrets(object, &state.ingress) {
            forget(&mut self.by_secret, &secret, object);
        }
        for host in state.ingress.hosts() {
            self.touched.hosts.insert(host.clone());
            if let Some(objects) = self.by_host.get_mut(host) {
                objects.remove(object);
                if objects.is_empty() {
                    self.by_host.remove(host);
                }
            }
        }
        self.displace(object, state.placing.as_ref(), state.ingress.is_everywhere());
    }

    /// Forgets where an Ingress was placed.
    fn displace(&mut self, object: &ObjectRef, placing: Option<&Result<Placing, Refusal>>, is_everywhere: bool) {
        if let Some(Ok(placing)) = placing {
            forget(&mut self.by_tenant, &placing.tenant, object);
            if is_everywhere {
                self.touched.tenants.insert(placing.tenant.clone());
            }
        }
    }

    pub(super) fn enter_class(&mut self, name: &ObjectName, fact: Option<Fact<IngressClass>>) {
        self.touched.statuses.insert(ObjectRef::cluster_scoped(Kind::IngressClass, name.clone()));
        if super::replace(&mut self.classes, name.clone(), fact) {
            self.touched.objects.extend(self.by_class.get(name).into_iter().flatten().cloned());
        }
    }

    pub(super) fn enter_policy(&mut self, name: &ObjectName, fact: Option<Fact<Arc<FederationPolicy>>>) {
        super::replace(&mut self.policies, name.clone(), fact);
        self.touch_policy(name);
    }

    /// Whether it is there, or can be read, may be otherwise than before.
    pub(super) fn touch_policy(&mut self, name: &ObjectName) {
        self.touched.statuses.insert(ObjectRef::cluster_scoped(Kind::FederationPolicy, name.clone()));
        let naming = self.classes.iter().filter(|(_, class)| class.value.policy.as_ref() == Some(name));
        for (class, _) in naming {
            self.touched.statuses.insert(ObjectRef::cluster_scoped(Kind::IngressClass, class.clone()));
            self.touched.objects.extend(self.by_class.get(class).into_iter().flatten().cloned());
        }
    }

    pub(super) fn enter_certificate(
        &mut self,
        secret: &ObjectRef,
        certificate: Option<Result<Arc<Certificate>, Refusal>>,
    ) {
        self.touched.statuses.insert(secret.clone());
        match certificate {
            Some(certificate) => _ = self.certificates.insert(secret.clone(), certificate),
            None => _ = self.certificates.remove(secret),
        }
        for object in self.by_secret.get(secret).into_iter().flatten() {
            let Some(state) = self.objects.get(object) else { continue };
            self.touched.hosts.extend(state.ingress.hosts().into_iter().cloned());
            if let Some(Ok(placing)) = &state.placing {
                self.touched.tenants.insert(placing.tenant.clone());
            }
            self.touched.statuses.insert(object.clone());
        }
    }

    /// A zone, or what a tenant may have, is another one.
    pub(super) fn touch_all(&mut self) {
        self.touched.all = true;
    }

    /// Notes that a cluster has come, changed or gone; with both, only where it is otherwise than before.
    pub(super) fn touch_cluster(&mut self, before: Option<&Cluster>, after: Option<&Cluster>) {
        let is_same_member = match (before, after) {
            (Some(before), Some(after)) => {
                before.tenant == after.tenant
                    && before.labels == after.labels
                    && before.location == after.location
                    && before.controller == after.controller
                    && before.ingress == after.ingress
                    && before.drained == after.drained
            }
            _ => false,
        };
        let is_same_for_dns = before.map(|cluster| &cluster.nodes) == after.map(|cluster| &cluster.nodes);
        let accesses = [before, after].map(|cluster| cluster.and_then(|cluster| cluster.access.as_ref()));
        if is_same_member && is_same_for_dns {
            self.touch_placements(after, accesses);
            return;
        }
        if let (Some(before), None) = (before, after) {
            self.members.remove(&before.name);
        }
        for cluster in [before, after].into_iter().flatten() {
            for object in self.by_tenant.get(&cluster.tenant).into_iter().flatten() {
                let is_dns = |state: &State| matches!(&state.placing, Some(Ok(placing)) if placing.policy.entry == EntryMode::Dns);
                if !is_same_member || self.objects.get(object).is_some_and(is_dns) {
                    self.touched.objects.insert(object.clone());
                }
            }
        }
    }

    /// Notes what is otherwise in a cluster that is otherwise the same.
    fn touch_placements(&mut self, cluster: Option<&Cluster>, accesses: [Option<&Access>; 2]) {
        let Some(objects) = cluster.and_then(|cluster| self.by_tenant.get(&cluster.tenant)) else { return };
        let is_as_before = |object: &ObjectRef| {
            let place = object.namespace.clone().map(|namespace| (namespace, object.name.clone()));
            let [before, after] = accesses.map(|access| {
                let access = access?;
                Some((access.reachable, access.placements.is_cut, access.placements.ingresses.get(place.as_ref()?)))
            });
            before == after
        };
        self.touched.objects.extend(objects.iter().filter(|object| !is_as_before(object)).cloned());
    }

    /// Notes what depends upon what a cluster holds.
    pub(super) fn touch_holding(&mut self, before: Option<&Holding>, after: Option<&Holding>) {
        let naming = |holding: Option<&Holding>| {
            let Holding { tenant, subtree, control, .. } = holding?.clone();
            Some((tenant, subtree, control))
        };
        if self.objects.is_empty() || naming(before) == naming(after) {
            return;
        }
        for holding in [before, after].into_iter().flatten() {
            for place in holding.control.iter().chain([&holding.subtree]) {
                let hosts = self.by_host.range(place.clone()..).take_while(|(host, _)| host.is_at_or_under(place));
                self.touched.objects.extend(hosts.flat_map(|(_, objects)| objects.iter().cloned()));
            }
            for above in std::iter::successors(Some(holding.subtree.clone()), DnsName::parent) {
                let wildcard = above.prepend("*").ok().and_then(|wildcard| self.by_host.get(&wildcard));
                self.touched.objects.extend(wildcard.into_iter().flatten().cloned());
                self.touched.tenants.extend(self.suffix_owners.get(&above).into_iter().flatten().cloned());
            }
            if self.everywhere.contains_key(&holding.tenant) {
                self.touched.tenants.insert(holding.tenant.clone());
            }
        }
    }

    /// Places those that something changed for, and puts their hosts in line.
    pub(super) fn place(&mut self, world: &World<'_>, records: &mut Records, touched: &mut records::Touched) {
        if std::mem::take(&mut self.touched.all) {
            self.touched.objects.extend(self.objects.keys().cloned());
            self.touched.tenants.extend(self.everywhere.keys().cloned());
        }
        for object in std::mem::take(&mut self.touched.objects) {
            let Some(mut state) = self.objects.remove(&object) else {
                records.drop_hosts(&object, touched);
                continue;
            };
            let is_everywhere = state.ingress.is_everywhere();
            self.displace(&object, state.placing.as_ref(), is_everywhere);
            let placing = self.judge(&object, &state, world);
            match &placing {
                Some(Ok(placing)) => {
                    let asks = placing.asks(&object, world);
                    records.claim_hosts(&object, &state.since, &placing.tenant, asks, touched);
                    self.by_tenant.entry(placing.tenant.clone()).or_default().insert(object.clone());
                    self.touched.tenants.extend(is_everywhere.then(|| placing.tenant.clone()));
                }
                Some(Err(_)) | None => records.drop_hosts(&object, touched),
            }
            state.placing = placing;
            self.touched.hosts.extend(state.ingress.hosts().into_iter().cloned());
            self.touched.statuses.insert(object.clone());
            self.objects.insert(object, state);
        }
    }

    /// Merges what was touched, now that it is known who has which host, and says what became of everything.
    pub(super) fn settle(&mut self, world: &World<'_>, records: &mut Records, step: &mut Step) {
        let Touched { mut hosts, tenants, mut statuses, .. } = std::mem::take(&mut self.touched);
        hosts.append(&mut records.hosts.take_changed());
        let mut merged = HashMap::new();
        for host in hosts {
            let line = records.hosts.line(&host);
            statuses.extend(line.iter().map(|claim| claim.object().clone()));
            match self.merge_host(&host, records) {
                None => step.place_host(&host, None),
                Some(all) => {
                    step.place_host(&host, Some(all.host.clone()));
                    merged.insert(host, all);
                }
            }
        }
        // A suffix may go from one tenant to another: first everything goes, then it comes.
        for tenant in &tenants {
            self.leave_everywhere(tenant, step);
        }
        let mut everywhere = HashMap::new();
        for tenant in tenants {
            let objects = self.everywhere_of(&tenant);
            statuses.extend(objects.iter().cloned());
            everywhere.extend(self.serve_everywhere(&tenant, &objects, world, step).map(|all| (tenant, all)));
        }
        let mut seen = status::Seen { merged, everywhere };
        for object in statuses {
            let is_foreign = self.objects.get(&object).is_some_and(|state| state.placing.is_none());
            step.set_foreign(&object, is_foreign);
            match self.status(&object, records, world, &mut seen) {
                Some(status) => step.set_status(object, status),
                None => step.retract_status(object, true),
            }
        }
    }

    /// The placed Ingresses of a tenant that serve hosts which they do not name, senior first.
    fn everywhere_of(&self, tenant: &ObjectName) -> Vec<ObjectRef> {
        let objects = self.by_tenant.get(tenant).into_iter().flatten();
        let mut objects: Vec<&ObjectRef> =
            objects.filter(|object| self.objects[*object].ingress.is_everywhere()).collect();
        objects.sort_by_key(|object| (&self.objects[*object].since, *object));
        objects.into_iter().cloned().collect()
    }

    fn leave_everywhere(&mut self, tenant: &ObjectName, step: &mut Step) {
        for (suffix, is_alone) in self.everywhere.remove(tenant).unwrap_or_default() {
            forget(&mut self.suffix_owners, &suffix, tenant);
            if is_alone {
                step.place_elsewhere(&suffix, None);
            }
        }
    }

    /// Has a tenant's rules without a host serve below every suffix that is the tenant's alone.
    fn serve_everywhere(
        &mut self,
        tenant: &ObjectName,
        objects: &[ObjectRef],
        world: &World<'_>,
        step: &mut Step,
    ) -> Option<Merged> {
        if objects.is_empty() {
            return None;
        }
        let all = self.merge(None, tenant, &objects.iter().collect::<Vec<_>>());
        let host = Arc::new(all.host.clone());
        let is_alone = |suffix: DnsName| {
            let is_alone = !world.ground.others_below(tenant, &suffix);
            (suffix, is_alone)
        };
        let suffixes: BTreeMap<DnsName, bool> = placing::suffixes(tenant, world).into_iter().map(is_alone).collect();
        for (suffix, is_alone) in &suffixes {
            self.suffix_owners.entry(suffix.clone()).or_default().insert(tenant.clone());
            if *is_alone {
                step.place_elsewhere(suffix, Some(Arc::clone(&host)));
            }
        }
        self.everywhere.insert(tenant.clone(), suffixes);
        Some(all)
    }

    /// What is said of anything that is not an Ingress.
    fn plain_status(&self, object: &ObjectRef, world: &World<'_>) -> Option<Status> {
        let accepted = |generation| Status::accepted([], crate::snapshot::Detail::None).of_generation(generation);
        match object.kind {
            Kind::FederationPolicy => {
                let fact = self.policies.get(&object.name).map(|fact| accepted(fact.generation));
                fact.or_else(|| world.broken.get(object).map(Status::refused))
            }
            Kind::IngressClass => {
                let Some(fact) = self.classes.get(&object.name) else {
                    return world.broken.get(object).map(Status::refused);
                };
                let Some(policy) = self.policy_of(&object.name, world) else {
                    return world.broken.get(object).map(Status::refused);
                };
                let refusal = fact.value.hindrance.clone().or_else(|| policy.err());
                let refused = refusal.map(|refusal| Status::refused(&refusal).of_generation(fact.generation));
                Some(refused.unwrap_or_else(|| accepted(fact.generation)))
            }
            _ => match self.certificates.get(object) {
                Some(Ok(_)) => Some(accepted(None)),
                Some(Err(refusal)) => Some(Status::refused(refusal)),
                None => world.broken.get(object).map(Status::refused),
            },
        }
    }

    /// All Ingresses of which something is said.
    #[cfg(test)]
    pub(super) fn told(&self) -> impl Iterator<Item = ObjectRef> {
        let ours = |object: &ObjectRef| self.objects[object].placing.is_some();
        let classes = self.classes.iter().filter(|(_, class)| class.value.ours);
        let classes = classes.map(|(name, _)| ObjectRef::cluster_scoped(Kind::IngressClass, name.clone()));
        let policies = self.policies.keys().map(|name| ObjectRef::cluster_scoped(Kind::FederationPolicy, name.clone()));
        let certificates = self.certificates.keys().cloned();
        self.objects
            .keys()
            .filter(move |object| ours(object))
            .cloned()
            .chain(classes)
            .chain(policies)
            .chain(certificates)
    }
}

/// The Secrets that an Ingress names, which live beside it.
fn secrets<'a>(object: &'a ObjectRef, ingress: &'a Ingress) -> impl Iterator<Item = ObjectRef> + 'a {
    ingress.tls.iter().filter_map(|tls| Some(secret(object, tls.secret.as_ref().ok()?)))
}

fn secret(beside: &ObjectRef, name: &ObjectName) -> ObjectRef {
    ObjectRef { kind: Kind::Secret, namespace: beside.namespace.clone(), name: name.clone() }
}

fn forget<K: Hash + Eq, V: Ord>(index: &mut HashMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}
