//! Addresses in the plan: what becomes of claims ([`Book`] decides), whose they are to the policy, and the names that they
//! have in the reverse zones.
//!
//! An address has exactly one PTR record, from the moment its allocation is written down until it is released: the name that
//! its claim gives, if that is the tenant's own and leads back to the address in this very plan; else the pool's default.

use std::collections::btree_map::{Entry, OccupiedEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::ledger::Ledger;
use super::records::{self, Records};
use super::step::Step;
use super::zone::{EXPIRE, REFRESH, RETRY};
use crate::address::{AddressClaim, AddressPool, Allocation, ClaimId, Reverse};
use crate::allocation::{Book, News, No, Outcome, Rights, Use};
use crate::digest::Digest;
use crate::fact::{Fact, Timestamp};
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::network::Cidr;
use crate::policy::Ground;
use crate::record::{RecordData, RecordSet};
use crate::refusal::Refusal;
use crate::reverse;
use crate::snapshot::{Condition, Detail, NameRecords, PointerPart, ReverseZone, Soa, Status, ZonePart};

#[derive(Debug, Default)]
pub(super) struct Addresses {
    book: Book,
    claims_of_cluster: BTreeMap<ClusterName, BTreeSet<ClaimId>>,
    /// The claims that want their address to have a name.
    by_pointer: BTreeMap<DnsName, BTreeSet<ClaimId>>,
    /// Why the reverse zones of a pool are not served; none where they are.
    unserved: BTreeMap<ObjectName, Refusal>,
    touched: Touched,
}

/// What has to be told again.
#[derive(Debug, Default)]
struct Touched {
    claims: BTreeSet<ClaimId>,
    addresses: BTreeSet<IpAddr>,
    pools: BTreeSet<ObjectName>,
    /// Ranges or reverse zones are others.
    ranges: bool,
}

/// Who has an accepted cluster.
pub(super) type OwnerOf<'a> = &'a dyn Fn(&ClusterName) -> Option<ObjectName>;

impl Addresses {
    pub(super) fn enter_pool(&mut self, name: &ObjectName, fact: Option<Fact<AddressPool>>) {
        self.touched.pools.insert(name.clone());
        self.book.set_pool(name, fact);
    }

    pub(super) fn enter_claim(&mut self, id: &ClaimId, fact: Option<Fact<AddressClaim>>) {
        if let Some((old, _)) = self.book.claim(id) {
            let (cluster, pointer) = (old.cluster.clone(), old.ptr.clone());
            if let Some(Entry::Occupied(entry)) = cluster.map(|cluster| self.claims_of_cluster.entry(cluster)) {
                forget(entry, id);
            }
            if let Some(Entry::Occupied(entry)) = pointer.map(|pointer| self.by_pointer.entry(pointer)) {
                forget(entry, id);
            }
        }
        if let Some(Fact { value: claim, .. }) = &fact {
            if let Some(cluster) = &claim.cluster {
                self.claims_of_cluster.entry(cluster.clone()).or_default().insert(id.clone());
            }
            if let Some(pointer) = &claim.ptr {
                self.by_pointer.entry(pointer.clone()).or_default().insert(id.clone());
            }
        }
        self.touched.claims.insert(id.clone());
        self.book.set_claim(id, fact);
    }

    pub(super) fn enter_address(&mut self, address: IpAddr, actual: Option<Allocation>) {
        self.book.set_address(address, actual);
    }

    /// A namespace has another tenant, or its tenant may do something else.
    pub(super) fn touch_namespace(&mut self, namespace: &ObjectName) {
        self.touched.claims.extend(self.book.claims_of(namespace).cloned());
        self.book.ask_namespace(namespace);
    }

    /// A cluster is accepted, refused or another tenant's.
    pub(super) fn touch_cluster(&mut self, cluster: &ClusterName) {
        for id in self.claims_of_cluster.get(cluster).into_iter().flatten() {
            self.book.ask_again(id);
            self.touched.claims.insert(id.clone());
        }
    }

    /// Somebody else may claim at and below a name.
    pub(super) fn touch_suffix(&mut self, suffix: &DnsName) {
        let below = self.by_pointer.range(suffix.clone()..).take_while(|(name, _)| name.is_at_or_under(suffix));
        self.touched.claims.extend(below.flat_map(|(_, claims)| claims.iter().cloned()));
    }

    /// Zones may have taken a reverse zone's place, or given it back.
    pub(super) fn touch_zones(&mut self) {
        self.touched.ranges = true;
    }

    /// Gives and releases addresses, and tells the policy whose they are now. Returns what the home is to write down, and
    /// whether the policy has something new to go by.
    pub(super) fn settle(
        &mut self,
        owner_of: OwnerOf<'_>,
        ground: &mut Ground,
        records: &Records,
        touched: &mut records::Touched,
        now: Timestamp,
    ) -> (Vec<(IpAddr, Option<Allocation>)>, bool) {
        let rights = |id: &ClaimId, claim: &AddressClaim| match rights(id, claim, owner_of, ground) {
            Ok(Some(most)) => Rights::UpTo(most),
            Ok(None) => Rights::Any,
            Err(_) => Rights::No,
        };
        let remembered = |address: IpAddr| Duration::from_secs(records.longest_ttl(address).into());
        let News { claims, pools, addresses, ranges } = self.book.settle(now, &rights, &remembered);
        let mut other_ground = false;
        if ranges {
            ground.set_pools(self.book.ranges());
            touched.all = true;
            other_ground = true;
        }
        let mut unwritten = Vec::new();
        for address in &addresses {
            if ground.set_address(*address, self.book.owner(*address).map(|claim| claim.namespace.clone())) {
                records.touch_address(*address, touched);
                other_ground = true;
            }
            if let Some(entry) = self.book.entry(*address).filter(|entry| entry.is_unwritten()) {
                unwritten.push((*address, entry.wanted.clone()));
            }
        }
        self.touched.claims.extend(claims);
        self.touched.pools.extend(pools);
        self.touched.addresses.extend(addresses);
        self.touched.ranges |= ranges;
        (unwritten, other_ground)
    }

    /// Says what became of it all, once it is known what tenants' names lead to.
    pub(super) fn tell(
        &mut self,
        owner_of: OwnerOf<'_>,
        ground: &Ground,
        records: &Records,
        ledger: &Ledger,
        step: &mut Step,
    ) {
        let mut touched = std::mem::take(&mut self.touched);
        if touched.ranges {
            self.serve_zones(ground, ledger, step);
            touched.pools.extend(self.book.pools().map(|(name, _)| name.clone()));
            touched.addresses.extend(step.pointers_before().chain(self.book.addresses()));
        }
        for name in step.names_touched() {
            let aliases = records.aliases_of(name).chain([name]);
            let claims = aliases.filter_map(|name| self.by_pointer.get(name)).flatten();
            touched.claims.extend(claims.cloned());
        }
        touched.addresses.extend(touched.claims.iter().filter_map(|id| self.address_of(id)));
        touched.claims.extend(touched.addresses.iter().filter_map(|address| self.book.owner(*address).cloned()));

        for address in &touched.addresses {
            step.place_entry(*address, self.book.entry(*address).cloned());
            step.place_pointer(*address, self.pointer(*address, ground, step).map(|pointer| pointer.part));
        }
        for id in &touched.claims {
            let status = self.claim_status(id, owner_of, ground, step);
            match status {
                Some(status) => step.set_status(id.to_object(), status),
                None => step.retract_status(id.to_object(), true),
            }
        }
        for name in &touched.pools {
            let object = ObjectRef::cluster_scoped(Kind::AddressPool, name.clone());
            match self.pool_status(name, ledger) {
                Some(status) => step.set_status(object, status),
                None => step.retract_status(object, true),
            }
        }
    }

    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.book.wake()
    }

    fn address_of(&self, id: &ClaimId) -> Option<IpAddr> {
        match self.book.outcome(id)? {
            Outcome::Has(address) | Outcome::Gets(address) => Some(*address),
            Outcome::No(_) => None,
        }
    }

    /// Derives the reverse zones of all pools anew: there are few, and pools seldom change.
    fn serve_zones(&mut self, ground: &Ground, ledger: &Ledger, step: &mut Step) {
        let mut served = BTreeSet::new();
        self.unserved.clear();
        for (name, pool) in self.book.pools() {
            let Some(reverse) = &pool.reverse else { continue };
            let zones = reverse_zones(pool);
            if let Some(refusal) = unservable(reverse, &zones, ground) {
                self.unserved.insert(name.clone(), refusal);
                continue;
            }
            for apex in zones {
                let (serial, digest) = ledger.last(&apex);
                step.place_reverse(&apex, Some(zone_part(name, &apex, reverse, serial, digest)));
                served.insert(apex);
            }
        }
        let gone: Vec<DnsName> = step.reverse_before().filter(|apex| !served.contains(*apex)).cloned().collect();
        for apex in &gone {
            step.place_reverse(apex, None);
        }
    }

    /// The name that an address has now.
    fn pointer(&self, address: IpAddr, ground: &Ground, step: &Step) -> Option<Pointer> {
        let id = self.book.owner(address)?;
        let (claim, _) = self.book.claim(id)?;
        let (pool, range) = self.book.pool_at(address)?;
        let reverse = pool.reverse.as_ref().filter(|_| !self.unserved.contains_key(&pool.name))?;
        let given = claim.ptr.as_ref().map(|name| judge_pointer(name, address, id, ground, step));
        let (target, refusal) = match given {
            Some(Ok(name)) => (Some(name), None),
            Some(Err(refusal)) => (None, Some(refusal)),
            None => (None, None),
        };
        let target = target.or_else(|| reverse.default_name(address).ok())?;
        let reverse::Place { zone: apex, name } = reverse::place_of(range, address)?;
        let records = [RecordSet { ttl: reverse.ttl, data: RecordData::Ptr(target) }].into();
        Some(Pointer { part: PointerPart { apex, records: NameRecords::plain(name, records) }, refusal })
    }

    fn claim_status(&self, id: &ClaimId, owner_of: OwnerOf<'_>, ground: &Ground, step: &Step) -> Option<Status> {
        let (claim, generation) = self.book.claim(id)?;
        let rights = rights(id, claim, owner_of, ground);
        let outcome = self.book.outcome(id)?;
        let (address, mut conditions) = match outcome {
            Outcome::Has(address) => {
                (Some(*address), vec![Condition::new(Condition::ALLOCATED, true, "Allocated", "")])
            }
            Outcome::Gets(_) => {
                let message = "the address is being written down";
                (None, vec![Condition::new(Condition::ALLOCATED, false, "Pending", message)])
            }
            Outcome::No(_) => (None, Vec::new()),
        };
        let pointer = address.and_then(|address| self.pointer(address, ground, step));
        if address.is_some() {
            conditions.push(pointer_condition(claim, pointer.as_ref()));
        }
        let name = pointer.and_then(|pointer| pointer.part.target());
        let detail = Detail::AddressClaim { address, name };
        let refusal = match (outcome, rights) {
            (_, Err((refusal, field))) => Some((refusal, field)),
            (Outcome::No(no), Ok(_)) => Some(refusal_of(no, claim)),
            (Outcome::Has(_) | Outcome::Gets(_), Ok(_)) => None,
        };
        let status = match refusal {
            None => Status::accepted(conditions, detail),
            Some((refusal, field)) => {
                let mut status = Status::refused(&refusal);
                status.conditions.iter_mut().for_each(|told| told.message = format!("{field}: {}", told.message));
                status.conditions.extend(conditions);
                Status { detail, ..status }
            }
        };
        Some(status.of_generation(generation))
    }

    fn pool_status(&self, name: &ObjectName, ledger: &Ledger) -> Option<Status> {
        let (Fact { generation, value: pool, .. }, overlap) = self.book.pool(name)?;
        if let Some(overlap) = overlap {
            let refusal = Refusal::RangeTaken { range: overlap.range, holder: overlap.holder.clone() };
            return Some(Status::refused(&refusal).of_generation(*generation));
        }
        let (zones, condition) = match (&pool.reverse, self.unserved.get(name)) {
            (None, _) => {
                let refusal = Refusal::NoReverseNameservers;
                (Vec::new(), Condition::new(Condition::REVERSE_SERVED, false, refusal.code(), refusal.to_string()))
            }
            (Some(_), Some(refusal)) => {
                (Vec::new(), Condition::new(Condition::REVERSE_SERVED, false, refusal.code(), refusal.to_string()))
            }
            (Some(_), None) => {
                let zone = |apex: DnsName| {
                    let (serial, digest) = ledger.last(&apex);
                    ReverseZone { apex, serial, digest }
                };
                let zones = reverse_zones(pool).into_iter().map(zone).collect();
                (zones, Condition::new(Condition::REVERSE_SERVED, true, "Served", ""))
            }
        };
        let Use { given, resting, free_v4, free_v6 } = self.book.use_of(name);
        let detail = Detail::AddressPool { given, resting, free_v4, free_v6, zones };
        Some(Status::accepted([condition], detail).of_generation(*generation))
    }
}

/// The PTR record of an address, and why it is not the one that its claim gives.
struct Pointer {
    part: PointerPart,
    refusal: Option<Refusal>,
}

/// How many addresses the claim's namespace may have, or why this claim may have none, and the field at fault.
fn rights(
    id: &ClaimId,
    claim: &AddressClaim,
    owner_of: OwnerOf<'_>,
    ground: &Ground,
) -> Result<Option<u32>, (Refusal, &'static str)> {
    let tenant = ground.tenant_of_namespace(&id.namespace).and_then(|name| ground.tenant(name));
    let Some(tenant) = tenant else {
        return Err((Refusal::NoTenant { namespace: id.namespace.clone() }, "metadata.namespace"));
    };
    match &claim.cluster {
        // Whether it is another's or nobody's is not told.
        Some(cluster) if owner_of(cluster).as_ref() != Some(&tenant.name) => {
            Err((Refusal::NotYourCluster(cluster.clone()), "spec.cluster"))
        }
        _ => Ok(tenant.quota.addresses),
    }
}

fn refusal_of(no: &No, claim: &AddressClaim) -> (Refusal, &'static str) {
    let pool = claim.pool.clone();
    match *no {
        No::UnknownPool | No::NoRights => (Refusal::UnknownPool(pool), "spec.pool"),
        No::RefusedPool => (Refusal::RefusedPool(pool), "spec.pool"),
        No::NotInPool(address) => (Refusal::NotInPool { address, pool }, "spec.address"),
        No::Taken(address) => (Refusal::AddressTaken { address }, "spec.address"),
        No::Rests(address, until) => (Refusal::AddressRests { address, until }, "spec.address"),
        No::Exhausted(family) => (Refusal::PoolExhausted { pool, family: family.as_str() }, "spec.pool"),
        No::Quota(most) => (Refusal::QuotaExceeded { what: "addresses", most }, "spec"),
    }
}

/// Whether a tenant's address may have a name: it is the tenant's own, and leads to the address.
fn judge_pointer(
    name: &DnsName,
    address: IpAddr,
    id: &ClaimId,
    ground: &Ground,
    step: &Step,
) -> Result<DnsName, Refusal> {
    let tenant = ground.tenant_of_namespace(&id.namespace);
    let Some(tenant) = tenant.filter(|tenant| ground.is_tenants(tenant, name) == Some(true)) else {
        return Err(Refusal::PtrNotYours { name: name.clone() });
    };
    let leads_there = |name: &DnsName| {
        let held = step.name_now(name).filter(|held| held.tenant == *tenant)?;
        Some((held.records.addresses().contains(&address), held.alias()))
    };
    // The policy lets no alias lead to another one.
    let (direct, alias) = leads_there(name).unwrap_or_default();
    if direct || alias.and_then(|target| leads_there(&target)).is_some_and(|(direct, _)| direct) {
        Ok(name.clone())
    } else {
        Err(Refusal::PtrDoesNotResolve { name: name.clone(), address })
    }
}

fn pointer_condition(claim: &AddressClaim, pointer: Option<&Pointer>) -> Condition {
    match pointer {
        None => {
            let message = "the pool has no reverse zones that are served";
            Condition::new(Condition::PTR_PUBLISHED, false, "NoReverseZone", message)
        }
        Some(Pointer { refusal: Some(refusal), part }) => {
            let instead = part.target().map_or_else(String::new, |name| format!("; it is {name} meanwhile"));
            let message = format!("spec.ptr: {refusal}{instead}");
            Condition::new(Condition::PTR_PUBLISHED, false, refusal.code(), message)
        }
        Some(_) if claim.ptr.is_some() => Condition::new(Condition::PTR_PUBLISHED, true, "AsClaimed", ""),
        Some(_) => Condition::new(Condition::PTR_PUBLISHED, true, "Default", ""),
    }
}

/// In the order of their addresses.
fn reverse_zones(pool: &AddressPool) -> Vec<DnsName> {
    Cidr::outermost(&pool.ranges).iter().flat_map(reverse::zones_of).collect()
}

fn unservable(reverse: &Reverse, zones: &[DnsName], ground: &Ground) -> Option<Refusal> {
    if let Some((domain, holder)) = zones.iter().find_map(|apex| Some((apex, ground.zone_at(apex)?))) {
        return Some(Refusal::DomainTaken { domain: domain.clone(), holder: holder.name.clone() });
    }
    // A name server inside would need an address there, where there are only names of addresses.
    let mut servers = reverse.nameservers.iter();
    let inside = servers.find(|server| zones.iter().any(|apex| server.is_at_or_under(apex)));
    inside.map(|server| Refusal::NameserverInReverseZone(server.clone()))
}

fn zone_part(pool: &ObjectName, apex: &DnsName, reverse: &Reverse, serial: u32, digest: Digest) -> ZonePart {
    let servers = RecordSet { ttl: reverse.ttl, data: RecordData::Ns(reverse.nameservers.clone()) };
    ZonePart {
        apex: apex.clone(),
        soa: Soa {
            ttl: reverse.ttl,
            primary: reverse.nameservers.first().unwrap_or(apex).clone(),
            mailbox: reverse.domain.prepend("hostmaster").unwrap_or_else(|_| reverse.domain.clone()),
            serial,
            refresh: REFRESH,
            retry: RETRY,
            expire: EXPIRE,
            minimum: reverse.ttl,
        },
        names: vec![NameRecords::plain(apex.clone(), Arc::from([servers]))],
        file: None,
        generated: true,
        digest,
        authoritative: true,
        hand_out: false,
        pool: Some(pool.clone()),
    }
}

fn forget<K: Ord>(mut entry: OccupiedEntry<'_, K, BTreeSet<ClaimId>>, id: &ClaimId) {
    entry.get_mut().remove(id);
    if entry.get().is_empty() {
        entry.remove();
    }
}
