//! The way from one snapshot to the next: collects what a plan decided and turns it into a snapshot and its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod http;
mod reverse;

use super::ledger::Ledger;
use crate::fact::Timestamp;
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::policy::{Ground, Holding};
use crate::refusal::Refusal;
use crate::snapshot::{
    Changes, ClusterPart, Detail, NameChange, NameRecords, Route, Snapshot, Status, TenantName, ZoneChange, ZonePart,
};

/// What a cluster held before, and holds now.
pub(super) type Passage = (Option<Arc<Holding>>, Option<Arc<Holding>>);

#[derive(Debug)]
pub(super) struct Step {
    before: Arc<Snapshot>,
    now: Timestamp,
    /// `None`: it is gone, or refused.
    clusters: BTreeMap<ClusterName, Option<ClusterPart>>,
    zones: BTreeMap<ObjectName, Option<ZonePart>>,
    /// `None`: nobody has it by a claim any more.
    names: BTreeMap<DnsName, Option<TenantName>>,
    http: http::HttpStep,
    reverse: reverse::ReverseStep,
    statuses: BTreeMap<ObjectRef, Option<Status>>,
    /// Domains whose serial may be another one, whatever their content.
    renumbered: BTreeSet<DnsName>,
}

impl Step {
    pub(super) fn from(before: &Arc<Snapshot>, now: Timestamp) -> Self {
        Self {
            before: Arc::clone(before),
            now,
            clusters: BTreeMap::new(),
            zones: BTreeMap::new(),
            names: BTreeMap::new(),
            http: http::HttpStep::default(),
            reverse: reverse::ReverseStep::default(),
            statuses: BTreeMap::new(),
            renumbered: BTreeSet::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn zones_before(&self) -> impl Iterator<Item = &ObjectName> {
        self.before.zones.keys()
    }

    pub(super) fn place_zone(&mut self, name: &ObjectName, part: ZonePart) {
        self.zones.insert(name.clone(), Some(part));
    }

    pub(super) fn retract_zone(&mut self, name: &ObjectName) {
        self.zones.insert(name.clone(), None);
    }

    pub(super) fn place_cluster(&mut self, name: &ClusterName, part: ClusterPart) {
        self.clusters.insert(name.clone(), Some(part));
    }

    pub(super) fn retract_cluster(&mut self, name: &ClusterName) {
        self.clusters.insert(name.clone(), None);
    }

    /// What the clusters that were judged held before, and hold now.
    pub(super) fn holdings(&self) -> Vec<Passage> {
        let holding = |part: &ClusterPart| Arc::clone(&part.holding);
        let clusters = self.clusters.iter();
        let both = clusters.map(|(name, part)| {
            let before = self.before.clusters.get(name);
            (before.map(|part| holding(part)), part.as_ref().map(holding))
        });
        both.filter(|(before, after)| before != after).collect()
    }

    pub(super) fn name_before(&self, name: &DnsName) -> Option<&Arc<TenantName>> {
        self.before.names.get(name)
    }

    /// As it is placed so far.
    pub(super) fn name_now(&self, name: &DnsName) -> Option<&TenantName> {
        match self.names.get(name) {
            Some(placed) => placed.as_ref(),
            None => self.name_before(name).map(AsRef::as_ref),
        }
    }

    pub(super) fn place_name(&mut self, name: &DnsName, held: Option<TenantName>) {
        self.names.insert(name.clone(), held);
    }

    pub(super) fn number_again(&mut self, apex: &DnsName) {
        self.renumbered.insert(apex.clone());
    }

    pub(super) fn set_status(&mut self, object: ObjectRef, status: Status) {
        self.statuses.insert(object, Some(status));
    }

    /// Forgets the status of an object that is gone.
    pub(super) fn retract_status(&mut self, object: ObjectRef, gone: bool) {
        if gone {
            self.statuses.insert(object, None);
        }
    }

    /// Has something said of an object that cannot be read: what was said last, until [`Step::finish`] puts the refusal
    /// in front of it.
    pub(super) fn doubt_status(&mut self, object: &ObjectRef, refusal: &Refusal) {
        let before = || self.before.status(object).map(|status| Status::clone(status));
        let status = self.statuses.remove(object).unwrap_or_else(before);
        let status = status.unwrap_or_else(|| Status::refused(refusal));
        self.statuses.insert(object.clone(), Some(status));
    }

    /// With a ground if that is another than before.
    pub(super) fn finish(
        mut self,
        ledger: &mut Ledger,
        ground: Option<&Ground>,
        broken: &BTreeMap<ObjectRef, Refusal>,
    ) -> (Arc<Snapshot>, Changes) {
        let mut next = Snapshot::clone(&self.before);
        if let Some(ground) = ground {
            next.ground = ground.clone();
        }
        let mut names = NameSteps { gone: Vec::new(), set: Vec::new(), ledger };
        let changed = self.apply_zone_parts(&mut next, &mut names);
        let clusters = self.apply_cluster_parts(&mut next, &mut names);
        let claimed = self.apply_names(&mut next, &mut names);
        let (hosts, other_foreign) = self.apply_http(&mut next);
        let (reversed, addresses) = self.apply_reverse(&mut next, &mut names);
        let zones = self.number_zones(&mut next, &mut names);
        let statuses = self.apply_statuses(&mut next, broken);
        let changed = changed || claimed || reversed || !hosts.is_empty() || other_foreign || ground.is_some();
        if !changed && clusters.is_empty() && statuses.is_empty() {
            return (self.before, Changes::default());
        }
        next.revision += 1;
        (Arc::new(next), Changes { zones, names: names.in_order(), clusters, addresses, hosts, statuses })
    }

    fn apply_zone_parts(&mut self, next: &mut Snapshot, names: &mut NameSteps<'_>) -> bool {
        let mut changed = false;
        for (name, part) in &self.zones {
            let before = self.before.zones.get(name);
            if before.map(AsRef::as_ref) == part.as_ref() {
                continue;
            }
            changed = true;
            let served = |part: Option<&ZonePart>| part.filter(|part| part.authoritative).cloned();
            let (old, new) = (served(before.map(AsRef::as_ref)), served(part.as_ref()));
            names.replace(
                old.as_ref().map(|part| (&part.apex, part.names.as_slice())),
                new.as_ref().map(|part| (&part.apex, part.names.as_slice())),
            );
            match part {
                Some(part) => next.zones.insert_mut(name.clone(), Arc::new(part.clone())),
                None => _ = next.zones.remove_mut(name),
            }
        }
        changed
    }

    /// Returns the clusters whose part is another than before.
    fn apply_cluster_parts(&mut self, next: &mut Snapshot, names: &mut NameSteps<'_>) -> Vec<ClusterName> {
        let before = Arc::clone(&self.before);
        let clusters = std::mem::take(&mut self.clusters);
        let changed: Vec<_> = clusters
            .into_iter()
            .map(|(name, part)| {
                let old = before.clusters.get(&name);
                (name, old, part)
            })
            .filter(|(_, old, part)| old.map(AsRef::as_ref) != part.as_ref())
            .collect();
        // An id or a name may go from one cluster to another within one plan: first everything goes, then it comes.
        // What stays is not touched: each map that is written to costs the copy of a path through it.
        for (name, old, part) in &changed {
            let Some(old) = old else { continue };
            if part.is_none() {
                next.clusters.remove_mut(name);
            }
            if !keeps_id(old, part.as_ref()) {
                next.routes_by_id.remove_mut(&old.id);
            }
            for entry in old.routes.iter().filter(|entry| !keeps_route(part.as_ref(), entry)) {
                next.routes_by_server_name.remove_mut(&entry.0);
            }
            self.leave_apps(old, part.as_ref(), next);
        }
        let changed_names = changed.iter().map(|(name, ..)| name.clone()).collect();
        for (name, old, part) in changed {
            let old = old.map(AsRef::as_ref);
            let kept = part.as_ref().and_then(ClusterPart::kept_set);
            if old.and_then(ClusterPart::kept_set) != kept {
                names.ledger.keep(&name, kept);
            }
            names.replace(
                old.map(|part| (&part.apex, part.answered())),
                part.as_ref().map(|part| (&part.apex, part.answered())),
            );
            let Some(part) = part else { continue };
            if let Some((_, api_server)) = part.routes.first()
                && !old.is_some_and(|old| keeps_id(old, Some(&part)))
            {
                next.routes_by_id.insert_mut(part.id.clone(), Arc::clone(api_server));
            }
            for entry in part.routes.iter().filter(|entry| !keeps_route(old, entry)) {
                next.routes_by_server_name.insert_mut(entry.0.clone(), Arc::clone(&entry.1));
            }
            self.enter_apps(old, &part, next);
            next.clusters.insert_mut(name, Arc::new(part));
        }
        changed_names
    }

    fn apply_names(&mut self, next: &mut Snapshot, names: &mut NameSteps<'_>) -> bool {
        let mut changed = false;
        for (name, held) in std::mem::take(&mut self.names) {
            let before = self.before.names.get(&name);
            if before.map(AsRef::as_ref) == held.as_ref() {
                continue;
            }
            changed = true;
            count_records(next, before.map(AsRef::as_ref), held.as_ref());
            names.replace(
                before.map(|before| (&before.apex, before.answered())),
                held.as_ref().map(|held| (&held.apex, held.answered())),
            );
            match held {
                Some(held) => next.names.insert_mut(name, Arc::new(held)),
                None => _ = next.names.remove_mut(&name),
            }
        }
        changed
    }

    /// Gives every zone whose content changed its next serial, and says what becomes of the zones.
    fn number_zones(&mut self, next: &mut Snapshot, names: &mut NameSteps<'_>) -> Vec<ZoneChange> {
        let mut touched = names.apexes();
        touched.append(&mut self.renumbered);
        let mut changes = self.withdrawn_zones(next);
        let is_new =
            |name: &ObjectName, part| self.zones.contains_key(name) && self.before.zones.get(name) != Some(part);
        // By name: the order of a hash map would differ from run to run.
        let to_number: BTreeMap<ObjectName, (ZonePart, bool)> = next
            .zones
            .iter()
            .map(|(name, part)| (name, part, is_new(name, part)))
            .filter(|(_, part, is_new)| *is_new || touched.contains(&part.apex))
            .map(|(name, part, is_new)| (name.clone(), (ZonePart::clone(part), is_new)))
            .collect();
        for (name, (mut part, is_new)) in to_number {
            let before = (part.digest, part.soa.serial);
            names.ledger.number(&mut part, self.now);
            // A name that passed from one cluster to another may still lead to the same addresses.
            if !is_new && (part.digest, part.soa.serial) == before {
                continue;
            }
            if part.authoritative {
                let (apex, soa, file) = (part.apex.clone(), part.soa.clone(), part.file.clone());
                changes.push(ZoneChange::Serve { apex, soa, file });
            }
            let object = ObjectRef::cluster_scoped(Kind::Zone, name.clone());
            let status = self.statuses.remove(&object).flatten();
            let status = status.or_else(|| self.before.status(&object).map(|status| Status::clone(status)));
            if let Some(mut status) = status {
                status.detail = Detail::Zone { serial: part.soa.serial, digest: part.digest };
                self.statuses.insert(object, Some(status));
            }
            next.zones.insert_mut(name, Arc::new(part));
        }
        self.number_reverse(&touched, next, names, &mut changes);
        changes
    }

    /// A domain that passes from one zone to another stays in service: those of its names that are the same under both
    /// take no step.
    fn withdrawn_zones(&self, next: &Snapshot) -> Vec<ZoneChange> {
        if self.zones.is_empty() && self.reverse.is_empty() {
            return Vec::new();
        }
        let served = |part: &&Arc<ZonePart>| part.authoritative;
        let still: BTreeSet<&DnsName> = next.zones().filter(served).map(|part| &part.apex).collect();
        let before = self.zones.keys().filter_map(|name| self.before.zones.get(name)).filter(served);
        let before = before.chain(self.reverse.apexes().filter_map(|apex| self.before.reverse_zones.get(apex)));
        let gone = before.filter(|part| !still.contains(&part.apex));
        gone.map(|part| ZoneChange::Withdraw { apex: part.apex.clone() }).collect()
    }

    /// Returns the objects whose status is another than before.
    fn apply_statuses(&mut self, next: &mut Snapshot, broken: &BTreeMap<ObjectRef, Refusal>) -> Vec<ObjectRef> {
        let mut changed = Vec::new();
        for (object, status) in std::mem::take(&mut self.statuses) {
            let before = self.before.statuses.get(&object);
            let status = status.map(|status| match broken.get(&object) {
                Some(refusal) => status.broken(refusal),
                None => status,
            });
            let status = status.map(|status| self.date_conditions(status, before.map(AsRef::as_ref)));
            if before.map(AsRef::as_ref) == status.as_ref() {
                continue;
            }
            let is_refused =
                |status: Option<&Status>| usize::from(status.is_some_and(|status| status.refusal().is_some()));
            next.refused += is_refused(status.as_ref());
            next.refused -= is_refused(before.map(AsRef::as_ref));
            match status {
                Some(status) => next.statuses.insert_mut(object.clone(), Arc::new(status)),
                None => _ = next.statuses.remove_mut(&object),
            }
            changed.push(object);
        }
        changed
    }

    /// A condition keeps its date until it flips.
    fn date_conditions(&self, mut status: Status, before: Option<&Status>) -> Status {
        for condition in &mut status.conditions {
            let earlier = before
                .and_then(|status| status.conditions.iter().find(|old| old.kind == condition.kind))
                .filter(|old| old.holds == condition.holds);
            condition.since = earlier.map_or(self.now, |old| old.since);
        }
        status
    }
}

/// Whether the id leads to the same place before and after.
fn keeps_id(old: &ClusterPart, new: Option<&ClusterPart>) -> bool {
    let api_server = |part: &ClusterPart| part.routes.first().map(|(_, route)| Arc::clone(route));
    new.is_some_and(|new| new.id == old.id && api_server(new) == api_server(old))
}

/// Whether the other part has this very server name lead to the same place.
fn keeps_route(other: Option<&ClusterPart>, entry: &(DnsName, Arc<Route>)) -> bool {
    other.is_some_and(|other| other.routes.contains(entry))
}

struct NameSteps<'a> {
    gone: Vec<NameChange>,
    set: Vec<NameChange>,
    ledger: &'a mut Ledger,
}

impl NameSteps<'_> {
    fn replace(&mut self, old: Option<(&DnsName, &[NameRecords])>, new: Option<(&DnsName, &[NameRecords])>) {
        let within = |side: Option<(&DnsName, &[NameRecords])>, apex: &DnsName, wanted: &NameRecords, exact: bool| {
            side.is_some_and(|(other, names)| {
                other == apex && names.iter().any(|name| name.name == wanted.name && (!exact || name == wanted))
            })
        };
        if let Some((apex, names)) = old {
            for name in names.iter().filter(|name| !within(new, apex, name, true)) {
                self.ledger.remove(apex, name);
            }
            for name in names.iter().filter(|name| !within(new, apex, name, false)) {
                let records = Arc::from([].as_slice());
                self.gone.push(NameChange { apex: apex.clone(), name: name.name.clone(), records, steered: None });
            }
        }
        if let Some((apex, names)) = new {
            for name in names.iter().filter(|name| !within(old, apex, name, true)) {
                self.ledger.add(apex, name);
                let (records, steered) = (Arc::clone(&name.records), name.steered.clone());
                self.set.push(NameChange { apex: apex.clone(), name: name.name.clone(), records, steered });
            }
        }
    }

    fn apexes(&self) -> BTreeSet<DnsName> {
        self.gone.iter().chain(&self.set).map(|change| change.apex.clone()).collect()
    }

    /// A name may go from one owner to another within one plan: what comes is said last.
    fn in_order(mut self) -> Vec<NameChange> {
        self.gone.append(&mut self.set);
        self.gone
    }
}

/// Keeps how many records each tenant has.
fn count_records(next: &mut Snapshot, before: Option<&TenantName>, held: Option<&TenantName>) {
    let count = |name: &TenantName| name.records.records.iter().map(|set| set.data.count()).sum::<usize>();
    for (name, more) in before.map(|name| (name, false)).into_iter().chain(held.map(|name| (name, true))) {
        let has = next.published.get(&name.tenant).copied().unwrap_or_default();
        match if more { has + count(name) } else { has.saturating_sub(count(name)) } {
            0 => _ = next.published.remove_mut(&name.tenant),
            has => next.published.insert_mut(name.tenant.clone(), has),
        }
    }
}
