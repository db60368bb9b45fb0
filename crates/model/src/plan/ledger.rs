//! What outlives a plan: where the serials of every domain have come to (one that comes back, or passes to another zone,
//! goes on from there), and what a restart is to know.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::digest::Digest;
use crate::fact::{Number, Timestamp};
use crate::identity::ClusterName;
use crate::name::DnsName;
use crate::serial::{BLOCK, Content, SerialFloor, SerialState};
use crate::snapshot::{KeptSet, NameRecords, ZonePart};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    domains: HashMap<DnsName, Entry>,
    /// What has to be on disk before the plan at hand is published.
    pending: BTreeMap<DnsName, SerialFloor>,
    /// What a restart is to know of clusters without a ready node; `None` where that is over.
    kept: BTreeMap<ClusterName, Option<KeptSet>>,
}

#[derive(Debug, Default)]
struct Entry {
    serial: Option<SerialState>,
    /// What was numbered here since a hub said the first of these; at most [`BLOCK`], as a hub that lags behind by more
    /// has other troubles.
    given: VecDeque<Number>,
    /// How many names of ours are served beside the zone file, and the digest of them all.
    names: usize,
    digest: Digest,
}

impl Ledger {
    pub(super) fn resume(floors: impl IntoIterator<Item = (DnsName, SerialFloor)>) -> Self {
        let entry = |floor: SerialFloor| Entry { serial: Some(floor.into()), ..Entry::default() };
        Self { domains: floors.into_iter().map(|(apex, floor)| (apex, entry(floor))).collect(), ..Self::default() }
    }

    /// The last serial and digest; zeros for a domain that never was a zone's.
    pub(super) fn last(&self, apex: &DnsName) -> (u32, Digest) {
        let state = self.domains.get(apex).and_then(|entry| entry.serial);
        state.map_or_else(Default::default, |state| (state.serial, state.digest.unwrap_or_default()))
    }

    pub(super) fn add(&mut self, apex: &DnsName, name: &NameRecords) {
        let entry = self.entry(apex);
        entry.names += 1;
        entry.digest += Digest::of_name(name);
    }

    pub(super) fn remove(&mut self, apex: &DnsName, name: &NameRecords) {
        let entry = self.entry(apex);
        entry.names = entry.names.saturating_sub(1);
        entry.digest -= Digest::of_name(name);
    }

    /// Gives a zone the serial and the digest that its content has now.
    pub(super) fn number(&mut self, part: &mut ZonePart, now: Timestamp) {
        let of_file = part.file.as_ref().and_then(|file| file.soa()).map(|soa| soa.serial);
        let entry = self.entry(&part.apex);
        let mut digest = entry.digest;
        digest += Digest::of_soa(&part.soa, of_file);
        if let Some(file) = &part.file {
            digest += file.digest();
        }
        let content = Content { digest, of_file, verbatim: !part.generated && entry.names == 0 };
        let (state, floor) = SerialState::next(entry.serial, content, now);
        if entry.serial != Some(state) {
            entry.given.push_back(Number { serial: state.serial, digest });
            let excess = entry.given.len().saturating_sub(BLOCK as usize);
            entry.given.drain(..excess);
        }
        entry.serial = Some(state);
        (part.soa.serial, part.digest) = (state.serial, digest);
        if let Some(floor) = floor {
            self.pending.insert(part.apex.clone(), floor);
        }
    }

    /// Takes over what a hub says, which is what counts: everybody else serves by it. Only the echo of what was numbered
    /// here says nothing new, however much has been numbered since; whoever leads would go back by it.
    pub(super) fn take_over(&mut self, apex: &DnsName, number: Number) {
        let entry = self.entry(apex);
        if let Some(place) = entry.given.iter().position(|given| *given == number) {
            entry.given.drain(..place);
            return;
        }
        entry.given = VecDeque::from([number]);
        entry.serial = Some(number.into());
    }

    pub(super) fn take_pending(&mut self) -> Vec<(DnsName, SerialFloor)> {
        std::mem::take(&mut self.pending).into_iter().collect()
    }

    pub(super) fn keep(&mut self, cluster: &ClusterName, set: Option<KeptSet>) {
        self.kept.insert(cluster.clone(), set);
    }

    pub(super) fn take_kept(&mut self) -> Vec<(ClusterName, Option<KeptSet>)> {
        std::mem::take(&mut self.kept).into_iter().collect()
    }

    /// What to write down when nothing is going to be published for a while.
    pub(super) fn rest(&mut self) -> Vec<(DnsName, SerialFloor)> {
        let resting =
            self.domains.iter_mut().filter_map(|(apex, entry)| Some((apex.clone(), entry.serial.as_mut()?.rest()?)));
        let mut floors: Vec<_> = resting.collect();
        floors.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        floors
    }

    fn entry(&mut self, apex: &DnsName) -> &mut Entry {
        // Looked up by reference first: the entry is nearly always there.
        if !self.domains.contains_key(apex) {
            self.domains.insert(apex.clone(), Entry::default());
        }
        self.domains.get_mut(apex).expect("it was just put there where it was missing")
    }
}
