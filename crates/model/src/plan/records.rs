//! What tenants' claims come to. The policy judges each by itself; here they meet: how much a tenant may have, who was
//! first at a name, what stands beside what, and which names rest after their release.
//!
//! A claim is judged again when its object, its tenant, a zone, or a cluster that its name or its targets depend upon
//! changed; a name is settled again when a claim to it was.

pub(super) mod hosts;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use self::hosts::{Hosts, leads_somewhere};
use super::brake::{Brake, Held, Scope};
use super::quarantine::Quarantine;
use super::step::Step;
use crate::claim::Claim;
use crate::fact::{Fact, Since, Timestamp};
use crate::identity::{ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::policy::{self, Applicant, Ground, Holding, Placed, RecordClaim, Refused};
use crate::record::{RecordData, RecordSet};
use crate::refusal::Refusal;
use crate::resource::{Endpoint, HeldClaims, Place, RecordClaims, Resting};
use crate::snapshot::{
    Condition, Detail, NameRecords, PartStatus, PublishedSet, Snapshot, Status, SteeredName, TenantName,
};

#[derive(Debug, Default)]
pub(super) struct Records {
    objects: BTreeMap<ObjectRef, ObjectState>,
    /// Everybody who claims a name, senior first.
    lines: BTreeMap<DnsName, Vec<Rank>>,
    /// The objects that have claims which lead to an address, or to a name.
    by_address: HashMap<IpAddr, BTreeSet<ObjectRef>>,
    by_target: BTreeMap<DnsName, BTreeSet<ObjectRef>>,
    /// By what they would lead to: the names that somebody wants to be an alias.
    aliases: HashMap<DnsName, BTreeSet<DnsName>>,
    /// The names that are to be aliases, as far as each claim by itself goes.
    is_alias: HashSet<DnsName>,
    usage: HashMap<ObjectName, Usage>,
    brake: Brake,
    pub(super) quarantine: Quarantine,
    pub(super) hosts: Hosts,
}

#[derive(Debug)]
struct ObjectState {
    since: Since,
    generation: Option<i64>,
    claims: RecordClaims,
    /// Whose it is, as it was last found out.
    tenant: Option<ObjectName>,
    /// For each endpoint.
    judged: Vec<Judged>,
}

#[derive(Debug, Clone, PartialEq)]
struct Judged {
    by_itself: Result<Placed, Refused>,
    within_quota: bool,
    /// What came of it all.
    verdict: Result<(), Refused>,
}

/// Orders claims: the earlier is the senior one, ties go by object, and within it by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    since: Since,
    object: ObjectRef,
    number: usize,
}

/// What has been found to stand at a name.
#[derive(Debug, Default)]
struct Standing {
    holder: Option<(ObjectName, Option<Placed>)>,
    /// And which object each is of.
    sets: Vec<(ObjectRef, RecordSet)>,
    /// The Ingress whose host it is.
    host: Option<ObjectRef>,
    steered: Option<Arc<SteeredName>>,
}

/// How much a tenant asks for that is good by itself, senior first.
#[derive(Debug, Default)]
struct Usage {
    records: BTreeMap<Rank, usize>,
    total: usize,
    /// Whether somebody was left out.
    is_over: bool,
}

/// What has to be judged again.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) all: bool,
    /// Whose facts changed.
    objects: BTreeSet<ObjectRef>,
    /// What else is to be looked at.
    others: BTreeSet<ObjectRef>,
    tenants: BTreeSet<ObjectName>,
    names: BTreeSet<DnsName>,
    /// Of whom more or less is held than before, or whose namespace may be another's.
    pub(super) tenants_to_tell: BTreeSet<ObjectName>,
}

/// News of an object's claims.
pub(super) type News = (ObjectRef, Option<Fact<RecordClaims>>);

impl Records {
    /// Takes in what is new, but for names that would go in a mass of those that there are.
    pub(super) fn take(
        &mut self,
        news: Vec<News>,
        before: &Snapshot,
        ground: &Ground,
        now: Timestamp,
        touched: &mut Touched,
    ) {
        let lost: Vec<Vec<(DnsName, Scope)>> =
            news.iter().map(|(object, fact)| self.lost(object, fact.as_ref(), before)).collect();
        let mut losing: BTreeMap<Scope, BTreeSet<&DnsName>> = BTreeMap::new();
        for (name, scope) in lost.iter().flatten() {
            losing.entry(scope.clone()).or_default().insert(name);
        }
        let losing = losing.into_iter().map(|(scope, names)| (scope, names.len())).collect();
        let share = |apex: &DnsName| ground.zone_of(apex).map_or(1.0, |zone| zone.max_share);
        let held_back = self.brake.hold_back(&losing, share, now);
        for ((object, fact), lost) in news.into_iter().zip(lost) {
            let held = lost.iter().filter(|(_, scope)| held_back.contains(scope));
            let held: BTreeSet<&DnsName> = held.map(|(name, _)| name).collect();
            self.hold(&object, fact, &held, now, touched);
        }
    }

    /// The names that an object has and would not have any more, and whose they are.
    fn lost(&self, object: &ObjectRef, fact: Option<&Fact<RecordClaims>>, before: &Snapshot) -> Vec<(DnsName, Scope)> {
        let Some(state) = self.objects.get(object) else { return Vec::new() };
        let still = fact.map(|fact| claimed_names(&fact.value)).unwrap_or_default();
        let has = state.claims.endpoints.iter().zip(&state.judged).filter(|(_, judged)| judged.verdict.is_ok());
        let has: BTreeSet<&DnsName> = has.filter_map(|(at, _)| Some(&at.claim.as_ref().ok()?.name)).collect();
        let lost = has.into_iter().filter(|name| !still.contains(*name));
        lost.filter_map(|name| Some((name.clone(), before.tenant_name(name)?.scope()))).collect()
    }

    /// Takes an object in with the names that are held, as they were.
    fn hold(
        &mut self,
        object: &ObjectRef,
        fact: Option<Fact<RecordClaims>>,
        held: &BTreeSet<&DnsName>,
        now: Timestamp,
        touched: &mut Touched,
    ) {
        let before = self.brake.take(object);
        touched.tenants_to_tell.extend(before.as_ref().map(|before| before.claims.tenant.clone()));
        let recalled = before.as_ref().map(|before| self.still_recalled(before, fact.as_ref())).unwrap_or_default();
        let is_recalled = held.is_empty();
        let held_since = before.as_ref().map_or(now, |before| before.claims.held_since);
        let Some(state) = self.objects.get(object).filter(|_| !held.is_empty() || !recalled.is_empty()) else {
            self.enter(object, fact, touched);
            return;
        };
        let is_held = |endpoint: &&Endpoint| {
            endpoint.claim.as_ref().is_ok_and(|claim| held.contains(&claim.name) || recalled.contains(&claim.name))
        };
        let kept: Vec<Endpoint> = state.claims.endpoints.iter().filter(is_held).cloned().collect();
        // What nobody's objects claim is not published, and so never held.
        let tenant = before.map(|before| before.claims.tenant).or_else(|| state.tenant.clone());
        let Some(tenant) = tenant else { return self.enter(object, fact, touched) };
        let claims = HeldClaims {
            object: object.clone(),
            tenant,
            since: state.since.clone(),
            held_since,
            cluster: state.claims.cluster.clone(),
            endpoints: kept,
        };
        let whole = match &fact {
            Some(fact) => with_held(Some(fact), &claims),
            None => Fact { generation: state.generation, ..with_held(None, &claims) },
        };
        touched.tenants_to_tell.insert(claims.tenant.clone());
        self.brake.hold(Held { now: fact, claims, is_recalled });
        self.enter(object, Some(whole), touched);
    }

    /// The names that somebody else held back and that have not been judged here: whether they go in a mass cannot be told.
    fn still_recalled(&self, before: &Held, fact: Option<&Fact<RecordClaims>>) -> BTreeSet<DnsName> {
        let Some(state) = self.objects.get(&before.claims.object).filter(|_| before.is_recalled) else {
            return BTreeSet::new();
        };
        let claimed = fact.map(|fact| claimed_names(&fact.value)).unwrap_or_default();
        let published = state.claims.endpoints.iter().zip(&state.judged).filter(|(_, judged)| judged.verdict.is_ok());
        let published: BTreeSet<&DnsName> =
            published.filter_map(|(endpoint, _)| Some(&endpoint.claim.as_ref().ok()?.name)).collect();
        let names = before.claims.names().into_iter();
        names.filter(|name| !claimed.contains(*name) && !published.contains(*name)).cloned().collect()
    }

    /// Takes over what somebody else held back of a tenant; `is_first` where nothing of the tenant is known yet. What was
    /// taken over and is not held there any more is let go.
    pub(super) fn recall(&mut self, tenant: &ObjectName, held: Vec<HeldClaims>, is_first: bool, touched: &mut Touched) {
        let still: BTreeSet<ObjectRef> = held.iter().map(|claims| claims.object.clone()).collect();
        let is_over =
            |held: &Held| held.is_recalled && held.claims.tenant == *tenant && !still.contains(&held.claims.object);
        for (object, held) in self.brake.release(is_over) {
            touched.tenants_to_tell.insert(held.claims.tenant);
            self.enter(&object, held.now, touched);
        }
        for claims in held.into_iter().filter(|_| is_first) {
            let object = claims.object.clone();
            let now = self.objects.get(&object).map(|state| Fact {
                since: state.since.clone(),
                generation: state.generation,
                value: state.claims.clone(),
            });
            let claimed = now.as_ref().map(|now| claimed_names(&now.value)).unwrap_or_default();
            let is_lost = |at: &Endpoint| at.claim.as_ref().is_ok_and(|claim| !claimed.contains(&claim.name));
            let endpoints: Vec<Endpoint> = claims.endpoints.iter().filter(|at| is_lost(at)).cloned().collect();
            if endpoints.is_empty() || self.brake.is_held(&object) {
                continue;
            }
            let claims = HeldClaims { endpoints, ..claims };
            touched.tenants_to_tell.insert(tenant.clone());
            self.enter(&object, Some(with_held(now.as_ref(), &claims)), touched);
            self.brake.hold(Held { now, claims, is_recalled: true });
        }
    }

    /// Lets go what is held of a tenant that is gone.
    pub(super) fn forget_held(&mut self, tenant: &ObjectName, touched: &mut Touched) {
        for (object, held) in self.brake.release(|held| held.claims.tenant == *tenant) {
            self.enter(&object, held.now, touched);
        }
    }

    /// Lets go what somebody has released since it was held.
    pub(super) fn release(&mut self, ground: &Ground, touched: &mut Touched) {
        let is_released = |held: &Held| {
            let since = held.claims.held_since;
            let of_tenant = ground.tenant(&held.claims.tenant).and_then(|tenant| tenant.released);
            let of_zone = |endpoint: &Endpoint| {
                let zone = ground.zone_of(&endpoint.claim.as_ref().ok()?.name)?;
                zone.released
            };
            let by_zones = held.claims.endpoints.iter().all(|at| of_zone(at).is_some_and(|released| released >= since));
            of_tenant.is_some_and(|released| released >= since) || by_zones
        };
        let released = self.brake.release(is_released);
        if !released.is_empty() {
            self.brake.forget_recent();
        }
        for (object, held) in released {
            touched.tenants_to_tell.insert(held.claims.tenant);
            self.enter(&object, held.now, touched);
        }
    }

    /// What is held of a tenant, the oldest first.
    pub(super) fn held_of(&self, tenant: &ObjectName) -> Vec<HeldClaims> {
        self.brake.of_tenant(tenant)
    }

    /// How many names are held.
    pub(super) fn held_names(&self) -> usize {
        self.brake.names()
    }

    /// What a restart is to know of what is held, and no longer is.
    pub(super) fn take_held(&mut self) -> Vec<(ObjectRef, Option<HeldClaims>)> {
        self.brake.take_changed()
    }

    /// Notes that a name may be somebody else's now.
    pub(super) fn touch_name(name: DnsName, touched: &mut Touched) {
        touched.names.insert(name);
    }

    /// Puts an object's new facts in the place of its old ones.
    fn enter(&mut self, object: &ObjectRef, fact: Option<Fact<RecordClaims>>, touched: &mut Touched) {
        self.leave(object, touched);
        touched.objects.insert(object.clone());
        let Some(Fact { since, generation, value: claims }) = fact else { return };
        for (rank, claim) in ranked(object, &since, &claims) {
            touched.names.insert(claim.name.clone());
            let line = self.lines.entry(claim.name.clone()).or_default();
            let place = line.partition_point(|other| *other < rank);
            line.insert(place, rank);
            for address in addresses(&claim.data) {
                self.by_address.entry(address).or_default().insert(object.clone());
            }
            for target in claim.data.targets() {
                self.by_target.entry(target.clone()).or_default().insert(object.clone());
            }
            if let RecordData::Cname(target) = &claim.data {
                self.aliases.entry(target.clone()).or_default().insert(claim.name.clone());
            }
        }
        let state = ObjectState { since, generation, claims, tenant: None, judged: Vec::new() };
        self.objects.insert(object.clone(), state);
    }

    fn leave(&mut self, object: &ObjectRef, touched: &mut Touched) {
        let Some(state) = self.objects.remove(object) else { return };
        let mut usage = state.tenant.as_ref().and_then(|tenant| self.usage.get_mut(tenant));
        touched.tenants.extend(state.tenant.clone());
        for (rank, claim) in ranked(object, &state.since, &state.claims) {
            if let Some(usage) = &mut usage {
                usage.forget(&rank);
            }
            touched.names.insert(claim.name.clone());
            if let Some(line) = self.lines.get_mut(&claim.name) {
                line.retain(|other| *other != rank);
                if line.is_empty() {
                    self.lines.remove(&claim.name);
                }
            }
            for address in addresses(&claim.data) {
                forget(&mut self.by_address, &address, object);
            }
            for target in claim.data.targets() {
                if let Some(objects) = self.by_target.get_mut(target) {
                    objects.remove(object);
                    if objects.is_empty() {
                        self.by_target.remove(target);
                    }
                }
            }
            if let RecordData::Cname(target) = &claim.data {
                forget(&mut self.aliases, target, &claim.name);
            }
        }
    }

    /// Notes what depends upon a tenant; a changed right of its may concern everybody.
    pub(super) fn touch_tenant(&self, name: &ObjectName, rights_changed: bool, touched: &mut Touched) {
        touched.all |= rights_changed;
        touched.tenants.insert(name.clone());
        let of_tenant = self.objects.iter().filter(|(_, state)| state.tenant.as_ref() == Some(name));
        touched.others.extend(of_tenant.map(|(object, _)| object.clone()));
    }

    /// Notes what depends upon what a cluster holds.
    pub(super) fn touch_cluster(&self, before: Option<&Holding>, after: Option<&Holding>, touched: &mut Touched) {
        let nodes = |holding: Option<&Holding>| -> BTreeSet<IpAddr> {
            holding.into_iter().flat_map(|holding| holding.nodes.iter().copied()).collect()
        };
        for address in nodes(before).symmetric_difference(&nodes(after)) {
            touched.others.extend(self.by_address.get(address).into_iter().flatten().cloned());
        }
        let naming = |holding: Option<&Holding>| {
            let Holding { tenant, subtree, control, .. } = holding?.clone();
            Some((tenant, subtree, control))
        };
        if naming(before) == naming(after) || self.objects.is_empty() {
            return;
        }
        for holding in [before, after].into_iter().flatten() {
            for place in holding.control.iter().chain([&holding.subtree]) {
                let names = self.lines.range(place.clone()..).take_while(|(name, _)| name.is_at_or_under(place));
                touched.others.extend(names.flat_map(|(_, line)| line.iter().map(|rank| rank.object.clone())));
                let targets = self.by_target.range(place.clone()..).take_while(|(name, _)| name.is_at_or_under(place));
                touched.others.extend(targets.flat_map(|(_, objects)| objects.iter().cloned()));
            }
            for above in std::iter::successors(holding.subtree.parent(), DnsName::parent) {
                let line = above.prepend("*").ok().and_then(|wildcard| self.lines.get(&wildcard));
                touched.others.extend(line.into_iter().flatten().map(|rank| rank.object.clone()));
            }
        }
    }

    /// Notes what depends upon whose an address is.
    pub(super) fn touch_address(&self, address: IpAddr, touched: &mut Touched) {
        touched.others.extend(self.by_address.get(&address).into_iter().flatten().cloned());
    }

    /// The names that somebody wants to be aliases of this one.
    pub(super) fn aliases_of(&self, name: &DnsName) -> impl Iterator<Item = &DnsName> {
        self.aliases.get(name).into_iter().flatten()
    }

    /// The longest TTL of all published records that lead to an address.
    pub(super) fn longest_ttl(&self, address: IpAddr) -> u32 {
        let objects = self.by_address.get(&address).into_iter().flatten();
        let states = objects.filter_map(|object| self.objects.get(object));
        let ttls = states.flat_map(|state| {
            state.claims.endpoints.iter().zip(&state.judged).filter_map(|(endpoint, judged)| {
                let claim = endpoint.claim.as_ref().ok()?;
                let placed = judged.by_itself.as_ref().ok()?;
                addresses(&claim.data).contains(&address).then_some(placed.ttl)
            })
        });
        ttls.max().unwrap_or(0)
    }

    /// Judges and settles what was touched.
    pub(super) fn settle(&mut self, mut touched: Touched, ground: &Ground, step: &mut Step) {
        if touched.all {
            touched.others.extend(self.objects.keys().cloned());
        }
        let mut told = std::mem::take(&mut touched.objects);
        for object in told.iter().chain(&touched.others) {
            self.judge(object, ground, &mut touched.tenants, &mut touched.names);
        }
        told.append(&mut touched.others);
        for tenant in &touched.tenants {
            self.apply_quota(tenant, ground, &mut touched.names);
        }
        let mut queue = touched.names;
        while let Some(name) = queue.pop_first() {
            self.settle_alias(&name, &mut queue);
            self.settle_name(&name, ground, step, &mut told);
        }
        for object in told {
            let status = self.objects.get(&object).map(|state| state.status(&object));
            match status {
                Some(status) => step.set_status(object, status),
                None => step.retract_status(object, true),
            }
        }
    }

    /// All that claim records.
    #[cfg(test)]
    pub(super) fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.objects.keys()
    }

    /// When something has to be settled again by itself.
    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.quarantine.wake()
    }

    fn judge(
        &mut self,
        object: &ObjectRef,
        ground: &Ground,
        tenants: &mut BTreeSet<ObjectName>,
        names: &mut BTreeSet<DnsName>,
    ) {
        let Some(state) = self.objects.get_mut(object) else { return };
        let namespace = object.namespace.as_ref();
        let tenant = namespace.and_then(|namespace| ground.tenant_of_namespace(namespace)).cloned();
        if state.tenant != tenant {
            if let Some(usage) = state.tenant.as_ref().and_then(|tenant| self.usage.get_mut(tenant)) {
                ranked(object, &state.since, &state.claims).for_each(|(rank, _)| usage.forget(&rank));
                tenants.extend(state.tenant.clone());
            }
            state.tenant.clone_from(&tenant);
            state.judged.clear();
        }
        let applicant = tenant.map(|tenant| Applicant { tenant, cluster: state.claims.cluster.clone() });
        let judged = state.claims.endpoints.iter().map(|endpoint| match (&endpoint.claim, &applicant) {
            (Err(refused), _) => Err(refused.clone()),
            (Ok(claim), Some(applicant)) => policy::judge(ground, applicant, claim),
            (Ok(_), None) => {
                let namespace = namespace.cloned().unwrap_or_else(|| object.name.clone());
                Err(Refused::new(Refusal::NoTenant { namespace }, "metadata.namespace"))
            }
        });
        let judged: Vec<_> = judged.collect();
        if state.judged.iter().map(|judged| &judged.by_itself).eq(&judged) && !judged.is_empty() {
            return;
        }
        if let Some(Applicant { tenant, .. }) = applicant {
            let usage = self.usage.entry(tenant.clone()).or_default();
            for (rank, claim) in ranked(object, &state.since, &state.claims) {
                usage.forget(&rank);
                if judged[rank.number].is_ok() {
                    usage.add(rank, claim.data.count());
                }
            }
            tenants.insert(tenant);
        }
        names.extend(state.claims.endpoints.iter().filter_map(|at| Some(at.claim.as_ref().ok()?.name.clone())));
        let judged = judged.into_iter().map(|by_itself| {
            let verdict = by_itself.as_ref().map(|_| ()).map_err(Clone::clone);
            Judged { by_itself, within_quota: true, verdict }
        });
        state.judged = judged.collect();
    }

    /// The most senior records that fit are within.
    fn apply_quota(&mut self, tenant: &ObjectName, ground: &Ground, names: &mut BTreeSet<DnsName>) {
        let Some(usage) = self.usage.get_mut(tenant) else { return };
        if usage.records.is_empty() {
            self.usage.remove(tenant);
            return;
        }
        let most = ground.tenant(tenant).and_then(|tenant| tenant.quota.records);
        let most = most.map_or(usize::MAX, |most| most as usize);
        let is_over = usage.total > most;
        if !is_over && !usage.is_over {
            return;
        }
        usage.is_over = is_over;
        let mut so_far = 0;
        for (rank, count) in &usage.records {
            so_far += count;
            let within_quota = so_far <= most;
            let Some(state) = self.objects.get_mut(&rank.object) else {
                self.hosts.set_quota(rank, within_quota, names);
                continue;
            };
            let (judged, endpoint) = (&mut state.judged[rank.number], &state.claims.endpoints[rank.number]);
            if judged.within_quota != within_quota {
                judged.within_quota = within_quota;
                names.extend(endpoint.claim.as_ref().ok().map(|claim| claim.name.clone()));
            }
        }
    }

    /// Finds out whether a name is to be an alias; those that lead to it may not be aliases then.
    fn settle_alias(&mut self, name: &DnsName, queue: &mut BTreeSet<DnsName>) {
        let mut line = self.lines.get(name).into_iter().flatten();
        let is_alias = line.any(|rank| {
            let (claim, judged) = self.claim(rank);
            matches!(claim.data, RecordData::Cname(_)) && judged.by_itself.is_ok() && judged.within_quota
        });
        let changed = if is_alias { self.is_alias.insert(name.clone()) } else { self.is_alias.remove(name) };
        if changed {
            queue.extend(self.aliases.get(name).into_iter().flatten().cloned());
        }
    }

    /// Decides who has a name, and what stands there.
    fn settle_name(&mut self, name: &DnsName, ground: &Ground, step: &mut Step, told: &mut BTreeSet<ObjectRef>) {
        let line = self.lines.get(name).cloned().unwrap_or_default();
        self.rest_after(name, &line, ground, step);
        let (mut standing, mut next_host) = (Standing::default(), 0);
        for rank in &line {
            self.settle_hosts(name, Some(rank), &mut next_host, &mut standing, (ground, step.now()));
            let (tenant, placed, set) = match self.admit(rank, &standing, ground, step.now()) {
                Ok(admitted) => admitted,
                Err(refused) => {
                    self.tell(rank, Err(refused), told);
                    continue;
                }
            };
            standing.sets.push((rank.object.clone(), set));
            standing.holder.get_or_insert((tenant, Some(placed)));
            self.tell(rank, Ok(()), told);
        }
        self.settle_hosts(name, None, &mut next_host, &mut standing, (ground, step.now()));
        let holder = standing.holder.filter(|_| !standing.sets.is_empty());
        let held = holder.and_then(|(tenant, placed)| {
            let Placed { apex, authoritative, hand_out, .. } = placed?;
            let mut sets: Vec<RecordSet> = standing.sets.into_iter().map(|(_, set)| set).collect();
            sets.sort_by_key(|set| set.data.rtype());
            let records = NameRecords { name: name.clone(), records: sets.into(), steered: standing.steered };
            Some(TenantName { tenant, apex, authoritative, hand_out, records })
        });
        for (counted, is_more) in [(step.name_now(name), false), (held.as_ref(), true)] {
            if let Some(counted) = counted {
                self.brake.count(&counted.scope(), is_more);
            }
        }
        step.place_name(name, held);
    }

    /// Whether a claim can stand beside those before it, and as what.
    fn admit(
        &self,
        rank: &Rank,
        standing: &Standing,
        ground: &Ground,
        now: Timestamp,
    ) -> Result<(ObjectName, Placed, RecordSet), Refused> {
        let (claim, judged) = self.claim(rank);
        let placed = judged.by_itself.clone()?;
        // Nobody's claims are not good by themselves.
        let tenant = self.objects[&rank.object].tenant.clone().unwrap_or_else(|| rank.object.name.clone());
        if !judged.within_quota {
            let most = ground.tenant(&tenant).and_then(|tenant| tenant.quota.records).unwrap_or_default();
            return Err(Refused::at_name(Refusal::QuotaExceeded { what: "records", most }));
        }
        if let Some(resting) = self.quarantine.of_name(&claim.name, &tenant, now) {
            let (name, until) = (claim.name.clone(), resting.until);
            return Err(Refused::at_name(Refusal::Quarantined { name, until }));
        }
        if let Some(refusal) = self.conflict(claim, rank, &tenant, standing) {
            return Err(Refused::at_name(refusal));
        }
        let set = RecordSet { ttl: placed.ttl, data: claim.data.clone().sorted() };
        Ok((tenant, placed, set))
    }

    fn tell(&mut self, rank: &Rank, verdict: Result<(), Refused>, told: &mut BTreeSet<ObjectRef>) {
        let Some(state) = self.objects.get_mut(&rank.object) else { return };
        if state.judged[rank.number].verdict != verdict {
            state.judged[rank.number].verdict = verdict;
            told.insert(rank.object.clone());
        }
    }

    /// A name whose tenant has given it up rests where somebody else could have it.
    fn rest_after(&mut self, name: &DnsName, line: &[Rank], ground: &Ground, step: &Step) {
        let Some(before) = step.name_before(name) else { return };
        let still = line.iter().any(|rank| {
            let (_, judged) = self.claim(rank);
            self.objects[&rank.object].tenant.as_ref() == Some(&before.tenant) && judged.by_itself.is_ok()
        });
        if !still && !self.hosts.are_wanted(name, &before.tenant) && ground.is_contested(name, &before.tenant) {
            let negative = ground.zone_of(name).map_or(0, |zone| zone.negative_ttl);
            let ttl = before.records.records.iter().map(|set| set.ttl).fold(negative, u32::max);
            let until = step.now().saturating_add(Duration::from_secs(ttl.into()));
            let resting = Resting { tenant: before.tenant.clone(), cluster: None, until };
            self.quarantine.add(Place::Name(name.clone()), resting);
        }
    }

    /// What keeps a claim that is good by itself from standing beside those before it.
    fn conflict(
        &self,
        claim: &RecordClaim,
        rank: &Rank,
        tenant: &ObjectName,
        Standing { holder, sets: accepted, host, .. }: &Standing,
    ) -> Option<Refusal> {
        let name = claim.name.clone();
        if holder.as_ref().is_some_and(|(holder, _)| holder != tenant) {
            return Some(Refusal::NameHeld { name, holder: None });
        }
        if let Some((object, _)) = accepted.iter().find(|(_, set)| set.data.rtype() == claim.data.rtype()) {
            return Some(if *object == rank.object {
                Refusal::ClaimedTwice { claim: Claim::Name(name) }
            } else {
                Refusal::NameHeld { name, holder: Some(object.clone()) }
            });
        }
        if host.is_some() && leads_somewhere(&claim.data) {
            return Some(Refusal::NameHeld { name, holder: host.clone() });
        }
        let alias = |data: &RecordData| matches!(data, RecordData::Cname(_));
        if accepted.iter().any(|(_, set)| alias(&set.data) || alias(&claim.data)) {
            return Some(Refusal::CnameAndOthers { name });
        }
        match &claim.data {
            RecordData::Cname(target) if self.is_alias.contains(target) => {
                Some(Refusal::AliasOfAlias { target: target.clone() })
            }
            _ => None,
        }
    }

    /// Only good claims are in line.
    fn claim(&self, rank: &Rank) -> (&RecordClaim, &Judged) {
        let state = &self.objects[&rank.object];
        let claim = state.claims.endpoints[rank.number].claim.as_ref();
        (claim.expect("only claims that could be read are in line"), &state.judged[rank.number])
    }
}

impl TenantName {
    fn scope(&self) -> Scope {
        (self.apex.clone(), self.tenant.clone())
    }
}

impl ObjectState {
    fn status(&self, object: &ObjectRef) -> Status {
        let endpoints = self.claims.endpoints.iter().zip(&self.judged);
        let parts: Vec<PartStatus> = endpoints
            .map(|(endpoint, judged)| PartStatus {
                part: Arc::clone(&endpoint.part),
                since: endpoint.since.unwrap_or(self.since.moment),
                outcome: match (&judged.verdict, &judged.by_itself, &endpoint.claim) {
                    (Ok(()), Ok(placed), Ok(claim)) => Ok(PublishedSet {
                        name: claim.name.clone(),
                        set: RecordSet { ttl: placed.ttl, data: claim.data.clone().sorted() },
                        hand_out: placed.hand_out,
                    }),
                    (Err(refused), ..) | (_, Err(refused), _) | (_, _, Err(refused)) => Err(refused.clone()),
                },
            })
            .collect();
        let published = parts.iter().filter(|part| part.outcome.is_ok()).count();
        let (all, message) = (published == parts.len(), format!("{published} of {} published", parts.len()));
        let detail = Detail::Records { digest: self.claims.digest, parts };
        let status = if let (None, Some(namespace)) = (&self.tenant, object.namespace.clone()) {
            Status { detail, ..Status::refused(&Refusal::NoTenant { namespace }) }
        } else {
            let reason = if all { "AllPublished" } else { "SomeRefused" };
            Status::accepted([Condition::new(Condition::PUBLISHED, all, reason, message)], detail)
        };
        status.of_generation(self.generation)
    }
}

impl Usage {
    fn add(&mut self, rank: Rank, count: usize) {
        self.total += count;
        self.records.insert(rank, count);
    }

    fn forget(&mut self, rank: &Rank) {
        self.total -= self.records.remove(rank).unwrap_or_default();
    }
}

/// What is left of an object, and what is held of it.
fn with_held(fact: Option<&Fact<RecordClaims>>, held: &HeldClaims) -> Fact<RecordClaims> {
    let HeldClaims { since, cluster, endpoints, .. } = held;
    let Some(fact) = fact else {
        return Fact::new(
            since.clone(),
            RecordClaims { cluster: cluster.clone(), endpoints: endpoints.clone(), ..RecordClaims::default() },
        );
    };
    let endpoints = fact.value.endpoints.iter().chain(endpoints).cloned().collect();
    Fact { value: RecordClaims { endpoints, ..fact.value.clone() }, ..fact.clone() }
}

fn claimed_names(claims: &RecordClaims) -> BTreeSet<DnsName> {
    claims.endpoints.iter().filter_map(|endpoint| Some(endpoint.claim.as_ref().ok()?.name.clone())).collect()
}

/// The claims of an object that could be read, and where each stands in line.
fn ranked<'a>(
    object: &'a ObjectRef,
    since: &'a Since,
    claims: &'a RecordClaims,
) -> impl Iterator<Item = (Rank, &'a RecordClaim)> {
    claims.endpoints.iter().enumerate().filter_map(move |(number, endpoint)| {
        let claim = endpoint.claim.as_ref().ok()?;
        let since = match endpoint.since {
            Some(moment) => Since { moment, tie: since.tie.clone() },
            None => since.clone(),
        };
        Some((Rank { since, object: object.clone(), number }, claim))
    })
}

fn addresses(data: &RecordData) -> Vec<IpAddr> {
    match data {
        RecordData::A(addresses) => addresses.iter().copied().map(IpAddr::from).collect(),
        RecordData::Aaaa(addresses) => addresses.iter().copied().map(IpAddr::from).collect(),
        _ => Vec::new(),
    }
}

fn forget<K: std::hash::Hash + Eq, V: Ord>(index: &mut HashMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}
