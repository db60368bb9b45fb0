//! * One reconcile: facts in, the next snapshot and the steps towards it out.
//!
//! The planner keeps what it needs to make the cost follow the change: a cluster is planned again when its own facts,
//! its tenant or any zone changed, or when somebody more senior took or freed something that it claims. The outcome
//! depends on the facts alone, never on the order in which they came; seniority decides every clash.

mod addresses;
mod brake;
mod cluster;
mod federation;
mod ledger;
mod quarantine;
mod records;
mod step;
#[cfg(test)]
mod tests;
mod zone;

pub(crate) use zone::AGENTS_LABEL;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::Allocation;
use crate::claim::{Claim, Claims, Seniority};
use crate::fact::{Fact, FactChange, Number, Timestamp};
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::policy::{Ground, Holding};
use crate::refusal::Refusal;
use crate::resource::{Cluster, HeldClaims, IngressMode, Place, RecordClaims, Resting, Tenant, Zone};
use crate::serial::SerialFloor;
use crate::snapshot::{Changes, Condition, Detail, KeptSet, Snapshot, Status};

use addresses::Addresses;
use cluster::Draft;
use federation::{Federation, World};
use ledger::Ledger;
use records::Records;
use step::Step;
use zone::Domains;

/// How often clusters are looked at whose last addresses are held: whether so many others are still without a ready node.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// As many clusters without a ready node always lose their last addresses, so that small fleets are not held up.
const FREE_CLUSTERS: usize = 2;

#[derive(Debug, Default)]
pub struct Planner {
    zones: BTreeMap<ObjectName, Fact<Zone>>,
    tenants: BTreeMap<ObjectName, Fact<Tenant>>,
    clusters: HashMap<ClusterName, ClusterState>,
    clusters_of_tenant: HashMap<ObjectName, BTreeSet<ClusterName>>,
    /// The accepted zones.
    domains: Domains,
    claims: Claims,
    /// Objects that cannot be read as they are now, and why.
    broken: BTreeMap<ObjectRef, Refusal>,
    /// When a cluster's last addresses go because no node is ready.
    withdrawals: BTreeSet<(Timestamp, ClusterName)>,
    /// Clusters that keep their last addresses for longer, and when to look at them again.
    held: BTreeSet<ClusterName>,
    look_again: Option<Timestamp>,
    /// The subtrees of clusters that went, by the facts of this plan.
    leaving: HashMap<DnsName, Resting>,
    /// In which zones too many clusters have no ready node; found out when somebody asks, for each plan anew.
    dark: HashMap<ObjectName, bool>,
    records: Records,
    /// Until when somebody has let go what is held, beside what the objects say.
    released: BTreeMap<ObjectRef, Timestamp>,
    /// Since when somebody has had clusters drained, beside what the objects say.
    drains: BTreeMap<ClusterName, Timestamp>,
    addresses: Addresses,
    federation: Federation,
    /// Who owns what, for the policy.
    ground: Ground,
    ledger: Ledger,
    /// What a hub said of zones that are not accepted yet.
    numbers: BTreeMap<ObjectName, Number>,
    reverse_numbers: BTreeMap<DnsName, Number>,
    /// What an earlier process kept of clusters that this one has not come to yet.
    kept: HashMap<ClusterName, KeptSet>,
    snapshot: Arc<Snapshot>,
}

#[derive(Debug)]
struct ClusterState {
    seniority: Seniority,
    generation: Option<i64>,
    cluster: Cluster,
    /// Since when its object wants it to be drained; `cluster` has what counts.
    drained_by_object: Option<Timestamp>,
    /// What it would be if nobody was before it; `None` until this plan has come to it.
    draft: Option<Result<Draft, Refusal>>,
    accepted: bool,
}

/// What a plan came to.
#[derive(Debug)]
pub struct Planned {
    pub snapshot: Arc<Snapshot>,
    pub changes: Changes,
    /// To be written down before the snapshot is published, so that no serial is ever served twice: the floor of each of
    /// these domains. Rarely anything: a floor is good for a block of changes.
    pub reserve: Vec<(DnsName, SerialFloor)>,
    /// To be written down soon, so that a restart does not withdraw them: the last addresses of clusters that have no ready
    /// node any more, and `None` where that is over.
    pub kept: Vec<(ClusterName, Option<KeptSet>)>,
    /// To be written down soon, so that a restart holds them on: what is held of these objects, `None` where that is over.
    pub held: Vec<(ObjectRef, Option<HeldClaims>)>,
    /// How many names are held, of claims and of clusters.
    pub held_names: usize,
    /// To be written down soon, so that a restart gives them to nobody else: what rests, `None` where that is over.
    pub resting: Vec<(Place, Option<Resting>)>,
    /// To be written down, and told as a fact once it is: what is to be known of these addresses, nothing where they are
    /// free again. On a hub the leader does so, by what the snapshot has of them.
    pub addresses: Vec<(IpAddr, Option<Allocation>)>,
    /// What a hub says anew of the content of these domains, also where that is as it was.
    pub numbers: Vec<(DnsName, Number)>,
    /// When to plan again even if no fact changes.
    pub wake: Option<Timestamp>,
}

/// What the facts of one plan touched.
#[derive(Default)]
struct Touched {
    zones: bool,
    tenants: BTreeSet<ObjectName>,
    clusters: BTreeSet<ClusterName>,
    records: records::Touched,
    /// The last word on each object that claims records.
    claims: BTreeMap<ObjectRef, Option<Fact<RecordClaims>>>,
    /// What a home says is held of a tenant.
    held: BTreeMap<ObjectName, Vec<HeldClaims>>,
}

impl Planner {
    /// Goes on from the serials of an earlier process; without them the clock has to do.
    pub fn resume(floors: impl IntoIterator<Item = (DnsName, SerialFloor)>) -> Self {
        Self { ledger: Ledger::resume(floors), ..Self::default() }
    }

    /// Takes over the addresses that an earlier process kept; before the first plan.
    pub fn recall(&mut self, kept: impl IntoIterator<Item = (ClusterName, KeptSet)>) {
        self.kept.extend(kept);
    }

    /// What to write down before the process ends, or when nothing has changed for a while: with it, the same content
    /// has the same serial after a restart. Without it the next block begins.
    pub fn rest(&mut self) -> Vec<(DnsName, SerialFloor)> {
        self.ledger.rest()
    }

    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    pub fn apply(&mut self, facts: impl IntoIterator<Item = FactChange>, now: Timestamp) -> Planned {
        let mut step = Step::from(&self.snapshot, now);
        // Who has to be judged, most senior first: a judgement depends on seniors only, so that one pass settles all.
        let mut queue = BTreeSet::new();

        let mut touched = self.absorb(facts, &mut queue, &mut step);
        let mut other_ground = false;
        if touched.zones {
            self.domains = zone::settle(&self.zones, &self.domains, &self.ledger, &mut step);
            other_ground |= self.ground.set_zones(self.domains.ground(&self.zones), self.domains.reserved());
            touched.records.all = true;
            self.addresses.touch_zones();
            self.federation.touch_all();
            touched.clusters.extend(self.clusters.keys().cloned());
        }
        for tenant in &touched.tenants {
            other_ground |= self.change_tenant(tenant, &mut touched.records);
            touched.clusters.extend(self.clusters_of_tenant.get(tenant).into_iter().flatten().cloned());
        }
        for (tenant, held) in std::mem::take(&mut touched.held) {
            let is_first = self.snapshot.status(&tenant_object(&tenant)).is_none();
            self.records.recall(&tenant, held, is_first, &mut touched.records);
        }
        // Whether names go in a mass is judged by what there was before.
        let news = std::mem::take(&mut touched.claims).into_iter().collect();
        self.records.take(news, &self.snapshot, &self.ground, now, &mut touched.records);
        self.records.release(&self.ground, &mut touched.records);
        for name in &touched.clusters {
            self.draft(name, &mut queue);
        }
        for (_, name) in self.withdrawals.range(..=(now, last_name())) {
            queue.extend(self.clusters.get(name).map(|state| state.seniority.clone()));
        }
        if self.look_again.take_if(|at| *at <= now).is_some() {
            queue.extend(self.held.iter().filter_map(|name| Some(self.clusters.get(name)?.seniority.clone())));
        }
        self.dark.clear();
        self.lapse(&mut queue, &mut touched.records, now);
        while let Some(next) = queue.pop_first() {
            self.judge(&next, &mut queue, &mut step);
        }

        other_ground |= self.hold_anew(&step, &mut touched.records);
        let (addresses, other_owners) = self.settle_addresses(&mut touched.records, now);
        other_ground |= other_owners;
        let mut to_tell = std::mem::take(&mut touched.records.tenants_to_tell);
        self.place_ingresses(&mut touched.records);
        self.records.settle(touched.records, &self.ground, &mut step);
        self.settle_ingresses(&mut step);
        to_tell.extend(self.records.quarantine.take_untold());
        for tenant in to_tell.union(&touched.tenants) {
            self.tell_tenant(tenant, &mut step);
        }
        self.addresses.tell(&owner_of(&self.clusters), &self.ground, &self.records, &self.ledger, &mut step);

        let numbers = self.take_over_numbers(&mut step);
        for (name, _) in self.kept.extract_if(|_, kept| kept.until <= now) {
            self.ledger.keep(&name, None);
        }

        let ground = other_ground.then_some(&self.ground);
        let (snapshot, changes) = step.finish(&mut self.ledger, ground, &self.broken);
        self.snapshot = Arc::clone(&snapshot);
        let (reserve, kept) = (self.ledger.take_pending(), self.ledger.take_kept());
        let (held, resting) = (self.records.take_held(), self.records.quarantine.take_changed());
        let held_names = self.records.held_names() + self.held.len();
        let withdrawal = self.withdrawals.first().map(|(at, _)| *at);
        let wake =
            [withdrawal, self.look_again, self.records.wake(), self.addresses.wake()].into_iter().flatten().min();
        Planned { snapshot, changes, reserve, kept, held, held_names, resting, addresses, numbers, wake }
    }

    fn settle_addresses(
        &mut self,
        touched: &mut records::Touched,
        now: Timestamp,
    ) -> (Vec<(IpAddr, Option<Allocation>)>, bool) {
        let owner_of = owner_of(&self.clusters);
        self.addresses.settle(&owner_of, &mut self.ground, &self.records, touched, now)
    }

    /// Before it is settled who has which name.
    fn place_ingresses(&mut self, touched: &mut records::Touched) {
        let Self { federation, records, ground, zones, clusters, clusters_of_tenant, broken, .. } = self;
        federation.place(&World { ground, zones, clusters, clusters_of_tenant, broken }, records, touched);
    }

    /// Once it is.
    fn settle_ingresses(&mut self, step: &mut Step) {
        let Self { federation, records, ground, zones, clusters, clusters_of_tenant, broken, .. } = self;
        federation.settle(&World { ground, zones, clusters, clusters_of_tenant, broken }, records, step);
    }

    fn tell_tenant(&self, name: &ObjectName, step: &mut Step) {
        let Some(fact) = self.tenants.get(name) else { return };
        let namespace = &fact.value.namespace;
        let owns = self.ground.tenant_of_namespace(namespace) == Some(name);
        let taken = format!("namespace {namespace} belongs to another Tenant, which was first");
        let namespace = (!owns).then(|| Condition::new(Condition::NAMESPACE_OWNED, false, "NamespaceTaken", taken));
        let held = self.records.held_of(name);
        let told = held.first().map(|oldest| {
            let (count, since) = (held.iter().map(|claims| claims.endpoints.len()).sum::<usize>(), oldest.held_since);
            let message = format!(
                "{count} records of {name} would go at once and are held since {since}; `fleetgate release tenant {name}` lets them go"
            );
            Condition::new(Condition::WITHDRAWALS_HELD, true, "TooManyAtOnce", message)
        });
        let resting = self.records.quarantine.rests_of(name);
        let is_plain = held.is_empty() && resting.is_empty();
        let detail = if is_plain { Detail::None } else { Detail::Tenant { held, resting } };
        let status = Status::accepted(namespace.into_iter().chain(told), detail);
        step.set_status(tenant_object(name), status.of_generation(fact.generation));
    }

    /// Has those looked at again that waited for something to rest.
    fn lapse(&mut self, queue: &mut BTreeSet<Seniority>, touched: &mut records::Touched, now: Timestamp) {
        for place in self.records.quarantine.lapse(now) {
            self.look_at(place, queue, touched);
        }
    }

    fn look_at(&self, place: Place, queue: &mut BTreeSet<Seniority>, touched: &mut records::Touched) {
        match place {
            Place::Name(name) => Records::touch_name(name, touched),
            Place::Subtree(subtree) => {
                let wants =
                    |state: &&ClusterState| matches!(&state.draft, Some(Ok(draft)) if draft.subtree() == subtree);
                queue.extend(self.clusters.values().filter(wants).map(|state| state.seniority.clone()));
            }
        }
    }

    /// Adds to what the object itself says.
    fn take_release(&mut self, object: ObjectRef, until: Timestamp, touched: &mut Touched) {
        if let Some(fact) = self.zones.get_mut(&object.name).filter(|_| object.kind == Kind::Zone) {
            fact.value.released = fact.value.released.max(Some(until));
            touched.zones = true;
        }
        if let Some(fact) = self.tenants.get_mut(&object.name).filter(|_| object.kind == Kind::Tenant) {
            fact.value.released = fact.value.released.max(Some(until));
            touched.tenants.insert(object.name.clone());
        }
        let known = self.released.entry(object).or_default();
        *known = until.max(*known);
    }

    /// Adds to what the object itself says, or takes that back.
    fn take_drain(&mut self, name: ClusterName, since: Option<Timestamp>, touched: &mut Touched) {
        match since {
            Some(since) => _ = self.drains.insert(name.clone(), since),
            None => _ = self.drains.remove(&name),
        }
        let Some(state) = self.clusters.get_mut(&name) else { return };
        let before = state.cluster.clone();
        state.cluster.drained = drained_since(&self.drains, &state.seniority, state.drained_by_object);
        self.federation.touch_cluster(Some(&before), Some(&state.cluster));
        touched.clusters.insert(name);
    }

    /// Takes over what rests.
    fn take_rest(
        &mut self,
        place: Place,
        resting: Resting,
        queue: &mut BTreeSet<Seniority>,
        touched: &mut records::Touched,
    ) {
        if self.records.quarantine.add(place.clone(), resting) {
            self.look_at(place, queue, touched);
        }
    }

    /// For how long what a cluster has would rest for all other tenants, if it went now.
    fn rest_of(&self, name: &ClusterName, now: Timestamp) -> Option<(DnsName, Resting)> {
        let part = self.snapshot.cluster(name)?;
        let negative = self.ground.zone_of(&part.holding.subtree).map_or(0, |zone| zone.negative_ttl);
        let sets = part.names.iter().flat_map(|name| name.records.iter());
        let ttl = sets.map(|set| set.ttl).fold(negative, u32::max);
        // Where nothing was published, nobody knows anything.
        let until = Some(now.saturating_add(Duration::from_secs(ttl.into()))).filter(|until| *until > now)?;
        let (tenant, cluster) = (part.holding.tenant.clone(), Some(Arc::clone(&part.holding.uid)));
        Some((part.holding.subtree.clone(), Resting { tenant, cluster, until }))
    }

    /// Whether what a cluster wants to have rests after another tenant's cluster.
    fn rests(&self, state: &ClusterState, draft: &Draft, now: Timestamp) -> Option<Refusal> {
        let (name, uid) = (draft.subtree(), state.seniority.since.uid(&state.cluster.name));
        let leaving = self.leaving.get(&name).filter(|leaving| leaving.keeps_out(&state.cluster.tenant, &uid));
        let resting = self.records.quarantine.of_subtree(&name, &state.cluster.tenant, &uid, now);
        let until = [resting, leaving].into_iter().flatten().map(|resting| resting.until).max()?;
        Some(Refusal::Quarantined { name, until })
    }

    /// Tells the policy what a tenant may do now.
    fn change_tenant(&mut self, name: &ObjectName, touched: &mut records::Touched) -> bool {
        let fact = self.tenants.get(name);
        let rights = |tenant: Option<&Tenant>| tenant.map(|tenant| (tenant.namespace.clone(), tenant.domains.clone()));
        let before = rights(self.ground.tenant(name).map(AsRef::as_ref));
        let changed = before != rights(fact.map(|fact| &fact.value));
        if fact.is_none() {
            self.records.forget_held(name, touched);
        }
        if changed {
            self.federation.touch_all();
        }
        self.records.touch_tenant(name, changed, touched);
        let namespaces = [self.ground.tenant(name).map(AsRef::as_ref), fact.map(|fact| &fact.value)];
        for tenant in namespaces.into_iter().flatten() {
            self.addresses.touch_namespace(&tenant.namespace);
            if changed {
                tenant.domains.iter().for_each(|domain| self.addresses.touch_suffix(domain));
            }
        }
        let namespaces = namespaces.map(|tenant| tenant.map(|tenant| tenant.namespace.clone()));
        let other = self.ground.set_tenant(name, fact.map(|fact| (&fact.since, &fact.value)));
        for namespace in namespaces.iter().flatten() {
            touched.tenants_to_tell.extend(self.ground.owners_of_namespace(namespace).cloned());
        }
        other
    }

    /// Tells the policy what clusters hold now. A name may go from one to another: first everything goes, then it comes.
    fn hold_anew(&mut self, step: &Step, touched: &mut records::Touched) -> bool {
        let holdings = step.holdings();
        for before in holdings.iter().filter_map(|(before, _)| before.as_ref()) {
            self.ground.remove(before);
        }
        for after in holdings.iter().filter_map(|(_, after)| after.as_ref()) {
            self.ground.add(after);
        }
        self.leaving.clear();
        for before in holdings.iter().filter_map(|(before, after)| {
            let stays = |before: &Holding| after.as_ref().is_some_and(|after| after.subtree == before.subtree);
            before.as_ref().filter(|before| !stays(before))
        }) {
            if let Some((subtree, resting)) = self.rest_of(&before.cluster, step.now()) {
                self.records.quarantine.add(Place::Subtree(subtree), resting);
            }
        }
        for (before, after) in &holdings {
            self.records.touch_cluster(before.as_deref(), after.as_deref(), touched);
            self.federation.touch_holding(before.as_deref(), after.as_deref());
            for holding in [before, after].into_iter().flatten() {
                self.addresses.touch_cluster(&holding.cluster);
                self.addresses.touch_suffix(&holding.subtree);
            }
        }
        !holdings.is_empty()
    }

    /// Takes the facts in and notes what has to be looked at again.
    fn absorb(
        &mut self,
        facts: impl IntoIterator<Item = FactChange>,
        queue: &mut BTreeSet<Seniority>,
        step: &mut Step,
    ) -> Touched {
        let mut touched = Touched::default();
        for fact in facts {
            match fact {
                FactChange::Zone(name, fact) => {
                    let object = ObjectRef::cluster_scoped(Kind::Zone, name.clone());
                    if fact.is_none() {
                        self.numbers.remove(&name);
                    }
                    touched.zones |= self.broken.remove(&object).is_some();
                    step.retract_status(object.clone(), fact.is_none());
                    let fact = fact.map(|mut fact| {
                        fact.value.released = fact.value.released.max(self.released.get(&object).copied());
                        fact
                    });
                    touched.zones |= replace(&mut self.zones, name, fact);
                }
                FactChange::Tenant(name, fact) => {
                    let object = ObjectRef::cluster_scoped(Kind::Tenant, name.clone());
                    let mended = self.broken.remove(&object).is_some();
                    let fact = fact.map(|mut fact| {
                        fact.value.released = fact.value.released.max(self.released.get(&object).copied());
                        fact
                    });
                    step.retract_status(object.clone(), fact.is_none());
                    if replace(&mut self.tenants, name.clone(), fact) || mended {
                        touched.tenants.insert(name);
                    }
                }
                FactChange::Cluster(name, Some(fact)) => {
                    self.broken.remove(&cluster_object(&name));
                    self.enter(fact, queue, step.now());
                    touched.clusters.insert(name);
                }
                FactChange::Cluster(name, None) => {
                    self.broken.remove(&cluster_object(&name));
                    self.leave(&name, queue, step);
                    touched.clusters.remove(&name);
                }
                FactChange::Records(object, fact) => {
                    self.broken.remove(&object);
                    touched.claims.insert(object, fact);
                }
                FactChange::AddressPool(name, fact) => {
                    self.broken.remove(&ObjectRef::cluster_scoped(Kind::AddressPool, name.clone()));
                    self.addresses.enter_pool(&name, fact);
                }
                FactChange::AddressClaim(id, fact) => {
                    self.broken.remove(&id.to_object());
                    self.addresses.enter_claim(&id, fact);
                }
                FactChange::Address(address, allocation) => self.addresses.enter_address(address, allocation),
                FactChange::Released(object, until) => self.take_release(object, until, &mut touched),
                FactChange::Drained(name, since) => self.take_drain(name, since, &mut touched),
                FactChange::Held(tenant, held) => _ = touched.held.insert(tenant, held),
                FactChange::Resting(resting) => {
                    for (place, resting) in resting.into_iter().filter(|(_, resting)| resting.until > step.now()) {
                        self.take_rest(place, resting, queue, &mut touched.records);
                    }
                }
                FactChange::ReverseNumber(apex, number) => _ = self.reverse_numbers.insert(apex, number),
                FactChange::Ingress(object, fact) => {
                    self.broken.remove(&object);
                    self.federation.enter(&object, fact);
                }
                FactChange::IngressClass(name, fact) => {
                    self.broken.remove(&ObjectRef::cluster_scoped(Kind::IngressClass, name.clone()));
                    self.federation.enter_class(&name, fact);
                }
                FactChange::FederationPolicy(name, fact) => {
                    self.broken.remove(&ObjectRef::cluster_scoped(Kind::FederationPolicy, name.clone()));
                    self.federation.enter_policy(&name, fact);
                }
                FactChange::Certificate(secret, certificate) => {
                    self.broken.remove(&secret);
                    self.federation.enter_certificate(&secret, certificate);
                }
                FactChange::Other(object, _) => {
                    self.broken.remove(&object);
                    step.retract_status(object.clone(), true);
                    // It may have been one.
                    if object.kind == Kind::Secret {
                        self.federation.enter_certificate(&object, None);
                    }
                }
                FactChange::Broken(object, refusal) => {
                    step.doubt_status(&object, &refusal);
                    // Clusters that name an object without a good fact are told that it is refused, not missing.
                    match object.kind {
                        Kind::Zone => touched.zones |= !self.zones.contains_key(&object.name),
                        Kind::Tenant => _ = touched.tenants.insert(object.name.clone()),
                        Kind::FederationPolicy => self.federation.touch_policy(&object.name),
                        _ => {}
                    }
                    self.broken.insert(object, refusal);
                }
                FactChange::Number(zone, number) => {
                    self.numbers.remove(&zone);
                    self.numbers.extend(number.map(|number| (zone, number)));
                }
            }
        }
        touched
    }

    /// Puts a cluster in, or its new facts in the place of its old ones.
    fn enter(&mut self, fact: Fact<Cluster>, queue: &mut BTreeSet<Seniority>, now: Timestamp) {
        let Fact { since, generation, value: mut cluster } = fact;
        let seniority = Seniority { since, cluster: cluster.name.clone() };
        let drained_by_object = cluster.drained;
        cluster.drained = drained_since(&self.drains, &seniority, drained_by_object);
        if self.clusters.get(&cluster.name).is_some_and(|state| state.seniority != seniority) {
            // Another one in its place: nobody saw that it had gone.
            self.leaving.extend(self.rest_of(&cluster.name, now));
        }
        let of_tenant = self.clusters_of_tenant.entry(cluster.tenant.clone()).or_default();
        of_tenant.insert(cluster.name.clone());
        let Some(state) = self.clusters.get_mut(&cluster.name) else {
            self.federation.touch_cluster(None, Some(&cluster));
            let state =
                ClusterState { seniority, generation, cluster, drained_by_object, draft: None, accepted: false };
            self.clusters.insert(state.cluster.name.clone(), state);
            return;
        };
        self.federation.touch_cluster(Some(&state.cluster), Some(&cluster));
        if state.cluster.tenant != cluster.tenant {
            forget_tenant(&mut self.clusters_of_tenant, &state.cluster);
        }
        if state.seniority != seniority {
            self.federation.touch_cluster(Some(&state.cluster), None);
            // Its claims stand in their lines under the old seniority.
            release(&mut self.claims, state, queue);
            state.draft = None;
            state.seniority = seniority;
        }
        state.generation = generation;
        state.cluster = cluster;
        state.drained_by_object = drained_by_object;
    }

    fn leave(&mut self, name: &ClusterName, queue: &mut BTreeSet<Seniority>, step: &mut Step) {
        step.retract_status(cluster_object(name), true);
        let Some(state) = self.clusters.remove(name) else { return };
        self.leaving.extend(self.rest_of(name, step.now()));
        self.federation.touch_cluster(Some(&state.cluster), None);
        release(&mut self.claims, &state, queue);
        forget_tenant(&mut self.clusters_of_tenant, &state.cluster);
        self.unschedule(name);
        step.retract_cluster(name);
    }

    /// Works out what a cluster claims, and moves its place in the lines when that changed.
    fn draft(&mut self, name: &ClusterName, queue: &mut BTreeSet<Seniority>) {
        let Some(state) = self.clusters.get_mut(name) else { return };
        let ground = cluster::Ground {
            zones: &self.zones,
            tenants: &self.tenants,
            domains: &self.domains,
            broken: &self.broken,
        };
        let draft = Some(cluster::draft(&state.cluster, &ground));
        if claims_of(draft.as_ref()) != claims_of(state.draft.as_ref()) {
            release(&mut self.claims, state, queue);
            for claim in claims_of(draft.as_ref()) {
                self.claims.register(claim, &state.seniority);
                queue.extend(self.claims.juniors(claim, &state.seniority).cloned());
            }
        }
        state.draft = draft;
        queue.insert(state.seniority.clone());
    }

    /// Accepts or refuses one cluster; everybody senior to it has been judged.
    fn judge(&mut self, who: &Seniority, queue: &mut BTreeSet<Seniority>, step: &mut Step) {
        let is_braked = self.is_one_of_many_dark(&who.cluster);
        // It may have been put in the queue before its own facts took it away or changed its seniority.
        let Some(state) = self.clusters.get(&who.cluster).filter(|state| state.seniority == *who) else { return };
        let Some(draft) = &state.draft else { return };
        let verdict = match draft {
            Ok(draft) => {
                let refusal = self.first_holder(draft, who).or_else(|| self.rests(state, draft, step.now()));
                refusal.map_or(Ok(draft), Err)
            }
            Err(refusal) => Err(refusal.clone()),
        };
        let accepts = verdict.is_ok();
        if accepts != state.accepted {
            for claim in claims_of(state.draft.as_ref()) {
                queue.extend(self.claims.juniors(claim, who).cloned());
            }
        }

        let (object, generation) = (cluster_object(&who.cluster), state.generation);
        let (withdraw_at, held) = match verdict {
            Ok(draft) => {
                let zone = &self.zones[&state.cluster.zone].value;
                let tenant = &self.tenants[&state.cluster.tenant].value;
                let before = self.snapshot.cluster(&who.cluster);
                let recalled = self.kept.remove(&who.cluster);
                if recalled.is_some() {
                    self.ledger.keep(&who.cluster, None);
                }
                let recalled = recalled.as_ref().or(state.cluster.kept.as_ref());
                let last = cluster::LastSet { before, recalled, is_braked };
                let uid = state.seniority.since.uid(&who.cluster);
                let part = cluster::part(&state.cluster, draft, zone, tenant, &last, uid, step.now());
                let status = cluster::status(&state.cluster, draft, zone, &part);
                step.set_status(object, status.of_generation(generation));
                let keeps = (part.withdraw_at, part.held);
                step.place_cluster(&who.cluster, part);
                keeps
            }
            Err(refusal) => {
                step.set_status(object, Status::refused(&refusal).of_generation(generation));
                step.retract_cluster(&who.cluster);
                (None, false)
            }
        };
        self.unschedule(&who.cluster);
        if held {
            self.held.insert(who.cluster.clone());
            self.look_again.get_or_insert(step.now().saturating_add(LOOK_AGAIN));
        } else {
            self.withdrawals.extend(withdraw_at.map(|at| (at, who.cluster.clone())));
        }
        if let Some(state) = self.clusters.get_mut(&who.cluster) {
            if state.accepted != accepts {
                self.federation.touch_cluster(None, Some(&state.cluster));
            }
            state.accepted = accepts;
        }
    }

    /// Of the zones that are accepted; those of others wait for it.
    fn take_over_numbers(&mut self, step: &mut Step) -> Vec<(DnsName, Number)> {
        let mut taken = Vec::new();
        let accepted = |zone: &ObjectName| {
            let zone = &self.zones.get(zone)?.value;
            self.domains.accepts(zone).then_some(&zone.domain)
        };
        self.numbers.retain(|zone, number| {
            let Some(apex) = accepted(zone) else { return true };
            self.ledger.take_over(apex, *number);
            step.number_again(apex);
            taken.push((apex.clone(), *number));
            false
        });
        self.reverse_numbers.retain(|apex, number| {
            if !step.has_reverse(apex) {
                return true;
            }
            self.ledger.take_over(apex, *number);
            step.number_again(apex);
            taken.push((apex.clone(), *number));
            false
        });
        taken
    }

    fn first_holder(&self, draft: &Draft, who: &Seniority) -> Option<Refusal> {
        draft.claims.iter().find_map(|claim| {
            let holder = self.claims.seniors(claim, who).find(|senior| self.clusters[&senior.cluster].accepted)?;
            Some(Refusal::Taken { claim: claim.clone(), holder: holder.cluster.clone() })
        })
    }

    /// Whether a cluster has no ready node, and so many others of its zone neither that a common cause is likelier than
    /// that they are all meant to go. Only those count that are still served: what went one by one is gone.
    fn is_one_of_many_dark(&mut self, name: &ClusterName) -> bool {
        let Some(state) = self.clusters.get(name) else { return false };
        let Some(zone) = self.zones.get(&state.cluster.zone).map(|fact| &fact.value) else { return false };
        if is_lit(&state.cluster) {
            return false;
        }
        if let Some(dark) = self.dark.get(&zone.name) {
            return *dark;
        }
        let (mut all, mut dark) = (0_usize, 0_usize);
        for (name, state) in &self.clusters {
            let cluster = &state.cluster;
            if cluster.zone != zone.name || cluster.ingress != IngressMode::Nodes {
                continue;
            }
            let is_served = || {
                let before = self.snapshot.cluster(name).is_some_and(|part| part.has_apps());
                before || cluster.kept.is_some() || self.kept.contains_key(name)
            };
            if is_lit(cluster) {
                all += 1;
            } else if is_served() {
                all += 1;
                dark += 1;
            }
        }
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let allowed = (all as f64 * zone.max_share) as usize;
        let is_dark = dark > allowed.max(FREE_CLUSTERS);
        self.dark.insert(zone.name.clone(), is_dark);
        is_dark
    }

    fn unschedule(&mut self, name: &ClusterName) {
        self.held.remove(name);
        let scheduled = self.snapshot.cluster(name).and_then(|part| part.withdraw_at);
        if let Some(at) = scheduled {
            self.withdrawals.remove(&(at, name.clone()));
        }
    }
}

/// Whether its applications are reached somewhere.
fn is_lit(cluster: &Cluster) -> bool {
    cluster::ready_addresses(cluster).next().is_some()
}

/// What counts of what an object says and what somebody ordered beside it, which is not for a later cluster of that name.
fn drained_since(
    drains: &BTreeMap<ClusterName, Timestamp>,
    who: &Seniority,
    by_object: Option<Timestamp>,
) -> Option<Timestamp> {
    by_object.or_else(|| drains.get(&who.cluster).copied().filter(|since| *since >= who.since.moment))
}

fn cluster_object(name: &ClusterName) -> ObjectRef {
    ObjectRef::cluster_scoped(Kind::Cluster, name.into())
}

fn tenant_object(name: &ObjectName) -> ObjectRef {
    ObjectRef::cluster_scoped(Kind::Tenant, name.clone())
}

/// Whose a cluster is, of those that are accepted.
fn owner_of(clusters: &HashMap<ClusterName, ClusterState>) -> impl Fn(&ClusterName) -> Option<ObjectName> + '_ {
    |name| clusters.get(name).filter(|state| state.accepted).map(|state| state.cluster.tenant.clone())
}

fn claims_of(draft: Option<&Result<Draft, Refusal>>) -> &[Claim] {
    match draft {
        Some(Ok(draft)) => &draft.claims,
        Some(Err(_)) | None => &[],
    }
}

/// Takes a cluster out of its lines; those behind it may move up.
fn release(claims: &mut Claims, state: &ClusterState, queue: &mut BTreeSet<Seniority>) {
    for claim in claims_of(state.draft.as_ref()) {
        queue.extend(claims.juniors(claim, &state.seniority).cloned());
        claims.unregister(claim, &state.seniority);
    }
}

fn forget_tenant(clusters_of_tenant: &mut HashMap<ObjectName, BTreeSet<ClusterName>>, cluster: &Cluster) {
    if let Some(names) = clusters_of_tenant.get_mut(&cluster.tenant) {
        names.remove(&cluster.name);
        if names.is_empty() {
            clusters_of_tenant.remove(&cluster.tenant);
        }
    }
}

/// Whether it made a difference.
fn replace<T: PartialEq>(facts: &mut BTreeMap<ObjectName, Fact<T>>, name: ObjectName, fact: Option<Fact<T>>) -> bool {
    match fact {
        Some(fact) if facts.get(&name) == Some(&fact) => false,
        Some(fact) => {
            facts.insert(name, fact);
            true
        }
        None => facts.remove(&name).is_some(),
    }
}

/// Sorts behind every cluster name: a label is at most 63 characters long.
fn last_name() -> ClusterName {
    "z".repeat(63).parse().expect("63 letters are a DNS label")
}
