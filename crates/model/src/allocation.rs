//! Who gets which address.
//!
//! A home writes every allocation down before anybody has the address, in a place that there is once for each address. So
//! what is here is of two minds: `actual` is what the home says, `wanted` is what it is asked to write down. A claim has its
//! address when both agree. Of two controllers that ask for the same, one is told of the other's allocation and asks for
//! another address.
//!
//! An address that was given stays the claim's until the claim is gone or asks for something else, whatever else happens to
//! pools, quotas and clusters. Then it rests. The claim itself, should it come back, gets it back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{AddressClaim, AddressPool, Allocation, ClaimId};
use crate::fact::{Fact, Since, Timestamp};
use crate::identity::ObjectName;
use crate::network::Cidr;
use crate::pool::{Family, Pool};

/// How long an address rests whose pool is gone: the pool may come back with its next breath.
const WITHOUT_POOL: Duration = Duration::from_hours(1);

/// All pools, claims and allocations. Judging a claim costs the same however many there are.
#[derive(Debug, Default)]
pub struct Book {
    pools: BTreeMap<ObjectName, PoolState>,
    /// The ranges of accepted pools by their first address; none lies in another.
    ranges: BTreeMap<IpAddr, (Cidr, ObjectName)>,
    claims: HashMap<ClaimId, ClaimState>,
    claims_of_pool: HashMap<ObjectName, BTreeSet<ClaimId>>,
    claims_of_namespace: HashMap<ObjectName, BTreeSet<ClaimId>>,
    entries: BTreeMap<IpAddr, Entry>,
    /// The addresses that are wanted for a claim, those that rest included.
    entries_of_claim: HashMap<ClaimId, BTreeSet<IpAddr>>,
    /// How many addresses the claims of a namespace have or are about to get.
    used: HashMap<ObjectName, u32>,
    /// When addresses have rested.
    expiries: BTreeSet<(Timestamp, IpAddr)>,
    /// Who waits for what, the most senior first.
    lines: BTreeMap<Lack, BTreeSet<Place>>,
    news: News,
    queue: BTreeSet<Place>,
    freed: BTreeSet<Lack>,
}

#[derive(Debug)]
struct PoolState {
    fact: Fact<AddressPool>,
    /// Why it is not accepted.
    refusal: Option<Overlap>,
    pool: Pool,
    resting: usize,
}

#[derive(Debug)]
struct ClaimState {
    since: Since,
    generation: Option<i64>,
    claim: AddressClaim,
    outcome: Option<Outcome>,
    waits_for: Option<Lack>,
}

/// Of one address; there while either side has something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// What the home has said that it has written down.
    pub actual: Option<Allocation>,
    /// What it is to have written down.
    pub wanted: Option<Allocation>,
}

/// Somebody's place in a line.
type Place = (Since, ClaimId);

/// What somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    Any(ObjectName, Family),
    Address(IpAddr),
    /// Of the namespace.
    Quota(ObjectName),
}

/// A pool whose range another one had first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    pub range: Cidr,
    pub holder: ObjectName,
}

/// Whether a claim may have an address at all, as others judge it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    No,
    /// As long as its namespace has fewer than that many.
    UpTo(u32),
    Any,
}

/// What a claim is judged by.
struct Terms<'a> {
    now: Timestamp,
    rights: &'a dyn Fn(&ClaimId, &AddressClaim) -> Rights,
    remembered: &'a dyn Fn(IpAddr) -> Duration,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It has the address.
    Has(IpAddr),
    /// It gets the address as soon as that is written down.
    Gets(IpAddr),
    No(No),
}

/// Why a claim gets no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum No {
    /// For a reason that others know.
    NoRights,
    UnknownPool,
    RefusedPool,
    NotInPool(IpAddr),
    Taken(IpAddr),
    Rests(IpAddr, Timestamp),
    Exhausted(Family),
    Quota(u32),
}

/// What changed since it was last asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Whose outcome is another, or whose facts are.
    pub claims: BTreeSet<ClaimId>,
    /// Whose verdict or counts are others.
    pub pools: BTreeSet<ObjectName>,
    /// Addresses of which the home is to have something else written down, or has.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether pools have other ranges or settings.
    pub ranges: bool,
}

/// How much of a pool is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Use {
    pub given: usize,
    pub resting: usize,
    pub free_v4: u64,
    pub free_v6: u64,
}

impl Book {
    /// Takes in what is to be known of a pool. All pools are judged anew: there are few.
    pub fn set_pool(&mut self, name: &ObjectName, fact: Option<Fact<AddressPool>>) {
        let unchanged = match (&fact, self.pools.get(name)) {
            (Some(fact), Some(state)) => state.fact == *fact,
            (None, None) => true,
            _ => false,
        };
        if unchanged {
            return;
        }
        match fact {
            Some(fact) => {
                // Made anew below.
                let state = PoolState { fact, refusal: None, pool: Pool::default(), resting: 0 };
                self.pools.insert(name.clone(), state);
            }
            None => _ = self.pools.remove(name),
        }
        self.judge_pools(name);
    }

    pub fn set_claim(&mut self, id: &ClaimId, fact: Option<Fact<AddressClaim>>) {
        if let Some(old) = self.claims.remove(id) {
            leave(&mut self.lines, old.waits_for.as_ref(), &(old.since, id.clone()));
            drop_from(&mut self.claims_of_pool, &old.claim.pool, id);
            drop_from(&mut self.claims_of_namespace, &id.namespace, id);
        }
        let since = fact.as_ref().map(|fact| fact.since.clone()).unwrap_or_default();
        if let Some(Fact { since, generation, value: claim }) = fact {
            self.claims_of_pool.entry(claim.pool.clone()).or_default().insert(id.clone());
            self.claims_of_namespace.entry(id.namespace.clone()).or_default().insert(id.clone());
            self.claims.insert(id.clone(), ClaimState { since, generation, claim, outcome: None, waits_for: None });
        }
        self.news.claims.insert(id.clone());
        self.queue.insert((since, id.clone()));
    }

    /// Takes in what the home has of an address.
    pub fn set_address(&mut self, address: IpAddr, actual: Option<Allocation>) {
        let before = self.entries.get(&address).cloned().unwrap_or_default();
        if before.actual == actual {
            return;
        }
        self.news.addresses.insert(address);
        let concerned = [before.wanted.as_ref(), before.actual.as_ref(), actual.as_ref()];
        let concerned: BTreeSet<ClaimId> = concerned.into_iter().flatten().map(|known| known.claim.clone()).collect();
        let wanted = match (&actual, before.wanted) {
            // What rested is forgotten; what somebody still has is to be written down again.
            (None, wanted) => wanted.filter(|wanted| !wanted.rests()),
            // The home has not come to what it was last asked yet.
            (Some(actual), Some(wanted)) if actual.claim == wanted.claim && actual.rests() != wanted.rests() => {
                Some(wanted)
            }
            (Some(actual), None) if before.actual.is_some_and(|old| old.claim == actual.claim) && actual.rests() => {
                None
            }
            // Else its word counts: whoever lost a race asks for another one.
            (Some(actual), _) => Some(actual.clone()),
        };
        self.put(address, Entry { actual, wanted });
        for claim in concerned {
            self.ask_again(&claim);
        }
    }

    /// Has the claims of a namespace judged again: its tenant is another, or may have more.
    pub fn ask_namespace(&mut self, namespace: &ObjectName) {
        for id in self.claims_of_namespace.get(namespace).cloned().unwrap_or_default() {
            self.ask_again(&id);
        }
    }

    pub fn ask_again(&mut self, id: &ClaimId) {
        let since = self.claims.get(id).map(|state| state.since.clone()).unwrap_or_default();
        self.queue.insert((since, id.clone()));
    }

    /// Judges whoever has to be, the most senior first, and then those who wait for what became free.
    ///
    /// `remembered` says how long others may remember that names led to an address.
    pub fn settle(
        &mut self,
        now: Timestamp,
        rights: &dyn Fn(&ClaimId, &AddressClaim) -> Rights,
        remembered: &dyn Fn(IpAddr) -> Duration,
    ) -> News {
        self.expire(now);
        let terms = Terms { now, rights, remembered };
        loop {
            while let Some((_, id)) = self.queue.pop_first() {
                self.judge(&id, &terms);
            }
            let Some(lack) = self.freed.pop_first() else { break };
            let Some((_, first)) = self.lines.get(&lack).and_then(BTreeSet::first).cloned() else { continue };
            self.judge(&first, &terms);
            let still_waits = self.claims.get(&first).is_some_and(|state| state.waits_for.as_ref() == Some(&lack));
            if !still_waits {
                self.freed.insert(lack);
            }
        }
        std::mem::take(&mut self.news)
    }

    /// When an address has rested.
    pub fn wake(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(at, _)| *at)
    }

    pub fn claim(&self, id: &ClaimId) -> Option<(&AddressClaim, Option<i64>)> {
        self.claims.get(id).map(|state| (&state.claim, state.generation))
    }

    pub fn claims_of(&self, namespace: &ObjectName) -> impl Iterator<Item = &ClaimId> {
        self.claims_of_namespace.get(namespace).into_iter().flatten()
    }

    pub fn outcome(&self, id: &ClaimId) -> Option<&Outcome> {
        self.claims.get(id)?.outcome.as_ref()
    }

    /// What the home is to have written down of an address.
    pub fn wanted(&self, address: IpAddr) -> Option<&Allocation> {
        self.entries.get(&address)?.wanted.as_ref()
    }

    /// What is known of an address, and what is wanted.
    pub fn entry(&self, address: IpAddr) -> Option<&Entry> {
        self.entries.get(&address)
    }

    /// All addresses that anything is known of.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.entries.keys().copied()
    }

    /// Whose an address is, by the home's word.
    pub fn owner(&self, address: IpAddr) -> Option<&ClaimId> {
        let actual = self.entries.get(&address)?.actual.as_ref()?;
        (!actual.rests()).then_some(&actual.claim)
    }

    /// The accepted pool that has the address in one of its ranges, and that range.
    pub fn pool_at(&self, address: IpAddr) -> Option<(&AddressPool, &Cidr)> {
        let (range, pool) = range_at(&self.ranges, address)?;
        Some((&self.pools.get(pool)?.fact.value, range))
    }

    /// The accepted pools.
    pub fn pools(&self) -> impl Iterator<Item = (&ObjectName, &AddressPool)> {
        let accepted = self.pools.iter().filter(|(_, state)| state.refusal.is_none());
        accepted.map(|(name, state)| (name, &state.fact.value))
    }

    /// The ranges of the accepted pools.
    pub fn ranges(&self) -> impl Iterator<Item = Cidr> {
        self.ranges.values().map(|(range, _)| *range)
    }

    pub fn pool(&self, name: &ObjectName) -> Option<(&Fact<AddressPool>, Option<&Overlap>)> {
        self.pools.get(name).map(|state| (&state.fact, state.refusal.as_ref()))
    }

    pub fn use_of(&self, pool: &ObjectName) -> Use {
        let Some(PoolState { pool, resting, .. }) = self.pools.get(pool) else { return Use::default() };
        Use {
            given: (pool.taken(Family::V4) + pool.taken(Family::V6)).saturating_sub(*resting),
            resting: *resting,
            free_v4: pool.free(Family::V4),
            free_v6: pool.free(Family::V6),
        }
    }

    /// Accepts pools by seniority, and has the claims judged of all that this changes something for.
    fn judge_pools(&mut self, changed: &ObjectName) {
        let mut by_seniority: Vec<(&Since, &ObjectName)> =
            self.pools.iter().map(|(name, state)| (&state.fact.since, name)).collect();
        by_seniority.sort_unstable();
        let names: Vec<ObjectName> = by_seniority.into_iter().map(|(_, name)| name.clone()).collect();
        self.ranges.clear();
        let mut touched = BTreeSet::from([changed.clone()]);
        for name in names {
            let ranges = Cidr::outermost(&self.pools[&name].fact.value.ranges);
            let refusal = ranges.iter().find_map(|range| self.overlap(range));
            let state = self.pools.get_mut(&name).expect("the names are those of the pools");
            if refusal.is_none() {
                self.ranges.extend(ranges.into_iter().map(|range| (range.network(), (range, name.clone()))));
            }
            if name == *changed || state.refusal != refusal {
                state.refusal = refusal;
                touched.insert(name);
            }
        }
        for name in &touched {
            self.fill(name);
            for id in self.claims_of_pool.get(name).cloned().unwrap_or_default() {
                self.ask_again(&id);
            }
        }
        self.news.pools.append(&mut touched);
        self.news.ranges = true;
    }

    /// The accepted pool that has some of the range already: the one that the range lies in, or one that lies in it.
    fn overlap(&self, range: &Cidr) -> Option<Overlap> {
        let around = range_at(&self.ranges, range.network());
        let within = self.ranges.range(range.network()..=range.last()).next().map(|(_, held)| held);
        let (_, holder) = around.or(within)?;
        Some(Overlap { range: *range, holder: holder.clone() })
    }

    /// Makes the free addresses of a pool anew from what is taken.
    fn fill(&mut self, name: &ObjectName) {
        let Some(state) = self.pools.get_mut(name) else { return };
        let ranges: &[Cidr] = if state.refusal.is_some() { &[] } else { &state.fact.value.ranges };
        let mut pool = Pool::new(ranges);
        let mut resting = 0;
        for range in Cidr::outermost(ranges) {
            for (address, entry) in self.entries.range(range.network()..=range.last()) {
                if pool.take(*address) {
                    resting += usize::from(entry.rests());
                }
            }
        }
        (state.pool, state.resting) = (pool, resting);
    }

    /// Has what rested long enough forgotten. What the home still gives to somebody first has to be released there.
    fn expire(&mut self, now: Timestamp) {
        while let Some((at, address)) = self.expiries.first().copied().filter(|(at, _)| *at <= now) {
            self.expiries.remove(&(at, address));
            let released = |entry: &&Entry| entry.actual.as_ref().is_none_or(Allocation::rests);
            if let Some(entry) = self.entries.get(&address).filter(released).cloned() {
                self.put(address, Entry { wanted: None, ..entry });
            }
        }
    }

    fn judge(&mut self, id: &ClaimId, terms: &Terms<'_>) {
        let Some(state) = self.claims.get_mut(id) else {
            self.release(id, None, terms);
            return;
        };
        let place = (state.since.clone(), id.clone());
        leave(&mut self.lines, state.waits_for.take().as_ref(), &place);
        let (since, claim) = (state.since.clone(), state.claim.clone());

        let held = self.held(id, &claim);
        self.release(id, held, terms);
        let found = held.map_or_else(|| self.find(id, &claim, (terms.rights)(id, &claim)), Ok);
        let (outcome, lack) = match found {
            Ok(address) => {
                let entry = self.entries.get(&address).cloned().unwrap_or_default();
                let has = entry.actual.as_ref().is_some_and(|actual| actual.is_held_by(id));
                if held.is_none() || entry.rests() {
                    let wanted = Allocation {
                        pool: claim.pool.clone(),
                        claim: id.clone(),
                        uid: uid_of(&since),
                        released_until: None,
                    };
                    self.put(address, Entry { wanted: Some(wanted), ..entry });
                }
                (if has { Outcome::Has(address) } else { Outcome::Gets(address) }, None)
            }
            Err((no, lack)) => (Outcome::No(no), lack),
        };
        if let Some(lack) = &lack {
            self.lines.entry(lack.clone()).or_default().insert(place);
        }
        let state = self.claims.get_mut(id).expect("nothing above takes a claim away");
        state.waits_for = lack;
        if state.outcome.as_ref() != Some(&outcome) {
            state.outcome = Some(outcome);
            self.news.claims.insert(id.clone());
        }
    }

    /// Finds an address for a claim that has none, or says why there is none and what it could wait for.
    fn find(&self, id: &ClaimId, claim: &AddressClaim, rights: Rights) -> Result<IpAddr, (No, Option<Lack>)> {
        if rights == Rights::No {
            return Err((No::NoRights, None));
        }
        let state = self.pools.get(&claim.pool).ok_or((No::UnknownPool, None))?;
        if state.refusal.is_some() {
            return Err((No::RefusedPool, None));
        }
        if let Some(address) = claim.address.filter(|address| !state.pool.has(*address)) {
            return Err((No::NotInPool(address), None));
        }
        let used = self.used.get(&id.namespace).copied().unwrap_or(0);
        if let Rights::UpTo(most) = rights
            && used >= most
        {
            return Err((No::Quota(most), Some(Lack::Quota(id.namespace.clone()))));
        }
        if let Some((own, _)) = self.fitting(id, claim).next() {
            return Ok(own);
        }
        match claim.address {
            None => {
                let lack = || Lack::Any(claim.pool.clone(), claim.family);
                state.pool.next(claim.family).ok_or_else(|| (No::Exhausted(claim.family), Some(lack())))
            }
            Some(address) if state.pool.is_free(address) => Ok(address),
            Some(address) => {
                let until = self.wanted(address).and_then(|wanted| wanted.released_until);
                let no = until.map_or(No::Taken(address), |until| No::Rests(address, until));
                Err((no, Some(Lack::Address(address))))
            }
        }
    }

    /// The address of a claim's that is what it asks for: one that it has by the home's word before one that it is to get,
    /// then the lowest.
    fn held(&self, id: &ClaimId, claim: &AddressClaim) -> Option<IpAddr> {
        let has = |entry: &Entry| entry.actual.as_ref().is_some_and(|actual| actual.is_held_by(id));
        let held = self.fitting(id, claim).filter(|(_, entry)| has(entry) || !entry.rests());
        held.min_by_key(|(_, entry)| !has(entry)).map(|(address, _)| address)
    }

    /// The addresses that were meant for a claim last and are what it asks for, resting or not.
    fn fitting(&self, id: &ClaimId, claim: &AddressClaim) -> impl Iterator<Item = (IpAddr, &Entry)> {
        let fits = |address: &IpAddr, entry: &Entry| {
            let of_pool = entry.wanted.as_ref().is_some_and(|wanted| wanted.pool == claim.pool);
            let is_wish = claim.address.is_none_or(|wish| wish == *address);
            of_pool && is_wish && Family::of(*address) == claim.family
        };
        let entries = self.entries_of_claim.get(id).into_iter().flatten();
        let entries = entries.filter_map(|address| Some((*address, self.entries.get(address)?)));
        entries.filter(move |(address, entry)| fits(address, entry))
    }

    /// Has all addresses of a claim rest but the one that it keeps. What was never written down is forgotten at once.
    fn release(&mut self, id: &ClaimId, kept: Option<IpAddr>, terms: &Terms<'_>) {
        let held = self.entries_of_claim.get(id).cloned().unwrap_or_default();
        for address in held.into_iter().filter(|address| Some(*address) != kept) {
            let Some(entry) = self.entries.get(&address).cloned().filter(|entry| !entry.rests()) else { continue };
            let wanted = match &entry.actual {
                None => None,
                Some(actual) if actual.rests() => Some(actual.clone()),
                Some(actual) => {
                    let rest = self.quarantine(actual).max((terms.remembered)(address));
                    let until = terms.now.saturating_add(rest);
                    Some(Allocation { released_until: Some(until), ..actual.clone() })
                }
            };
            self.put(address, Entry { wanted, ..entry });
        }
    }

    /// As long as the pool says.
    fn quarantine(&self, allocation: &Allocation) -> Duration {
        self.pools.get(&allocation.pool).map_or(WITHOUT_POOL, |state| state.fact.value.resting_time())
    }

    /// The only place where entries change: everything that is counted follows from here.
    fn put(&mut self, address: IpAddr, entry: Entry) {
        let before = self.entries.get(&address).cloned().unwrap_or_default();
        if before == entry {
            return;
        }
        if before.wanted != entry.wanted {
            self.news.addresses.insert(address);
        }
        if let Some(old) = &before.wanted {
            drop_from(&mut self.entries_of_claim, &old.claim, &address);
            match old.released_until {
                Some(until) => _ = self.expiries.remove(&(until, address)),
                None => self.count_down(&old.claim.namespace),
            }
        }
        if let Some(new) = &entry.wanted {
            self.entries_of_claim.entry(new.claim.clone()).or_default().insert(address);
            match new.released_until {
                Some(until) => _ = self.expiries.insert((until, address)),
                None => *self.used.entry(new.claim.namespace.clone()).or_default() += 1,
            }
        }
        let there = entry != Entry::default();
        let (rested, rests) = (before.rests(), entry.rests());
        if there {
            self.entries.insert(address, entry);
        } else {
            self.entries.remove(&address);
        }
        let Some((_, name)) = range_at(&self.ranges, address) else { return };
        let Some(state) = self.pools.get_mut(name) else { return };
        if there {
            state.pool.take(address);
        } else if state.pool.give_back(address) {
            self.freed.insert(Lack::Any(name.clone(), Family::of(address)));
            self.freed.insert(Lack::Address(address));
        }
        if state.pool.has(address) {
            state.resting = (state.resting + usize::from(rests)).saturating_sub(usize::from(rested));
        }
        self.news.pools.insert(name.clone());
        // Whoever waits for it is told that it rests now.
        if rests && !rested {
            let line = self.lines.get(&Lack::Address(address)).into_iter().flatten().cloned();
            self.queue.extend(line);
        }
    }

    fn count_down(&mut self, namespace: &ObjectName) {
        let Some(used) = self.used.get_mut(namespace) else { return };
        *used -= 1;
        if *used == 0 {
            self.used.remove(namespace);
        }
        self.freed.insert(Lack::Quota(namespace.clone()));
    }
}

impl Entry {
    /// Whether the home has something to write.
    pub fn is_unwritten(&self) -> bool {
        self.actual != self.wanted
    }

    /// Nobody has it, and nobody gets it yet. One that the home has still to forget rests too.
    fn rests(&self) -> bool {
        match (&self.wanted, &self.actual) {
            (Some(wanted), _) => wanted.rests(),
            (None, actual) => actual.is_some(),
        }
    }
}

/// Tells a claim from a later one of the same name: the UID where there is one, else the moment.
fn uid_of(since: &Since) -> Arc<str> {
    since.tie.clone().unwrap_or_else(|| since.moment.0.to_string().into())
}

fn range_at(ranges: &BTreeMap<IpAddr, (Cidr, ObjectName)>, address: IpAddr) -> Option<&(Cidr, ObjectName)> {
    let (_, held) = ranges.range(..=address).next_back()?;
    held.0.contains(address).then_some(held)
}

fn leave(lines: &mut BTreeMap<Lack, BTreeSet<Place>>, lack: Option<&Lack>, place: &Place) {
    let Some(lack) = lack else { return };
    if let Some(line) = lines.get_mut(lack) {
        line.remove(place);
        if line.is_empty() {
            lines.remove(lack);
        }
    }
}

fn drop_from<K, V>(sets: &mut HashMap<K, BTreeSet<V>>, key: &K, value: &V)
where
    K: std::hash::Hash + Eq,
    V: Ord,
{
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
