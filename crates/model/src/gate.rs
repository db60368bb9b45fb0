//! Between the plan and DNS on a hub: changed content of a zone waits until the hub has a number for it, so that all
//! replicas serve the same content under the same serial.
//!
//! Every process plans by itself, in batches of its own, and only the leader numbers what comes of it. Numbers are worth a
//! short wait and no more: what is older than that goes out under the serial before, and has its number when it comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::digest::Digest;
use crate::fact::{Number, Timestamp};
use crate::name::DnsName;
use crate::plan::Planned;
use crate::snapshot::{Changes, NameChange, Snapshot, Soa, ZoneChange};
use crate::zone_file::ZoneFile;

/// A leader that is well answers within some ten milliseconds, and takes five seconds to be replaced, for which no name
/// should wait. It also bounds what is held.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// How much older than the plan's own guess, which is the clock's second, a serial is while nobody has ever numbered the
/// zone: the first number is then newer, whoever's clock it comes from and however long ago it was guessed.
const UNNUMBERED: u32 = 86_400;

#[derive(Debug, Default)]
pub struct Gate {
    domains: BTreeMap<DnsName, Domain>,
}

/// What is held of one domain, and what is known of it.
#[derive(Debug, Default)]
struct Domain {
    /// The hub's last word.
    number: Option<Number>,
    /// What was let through last, with its serial.
    shown: Option<Content>,
    /// What waits, oldest first.
    queue: VecDeque<Step>,
}

#[derive(Debug)]
struct Content {
    soa: Soa,
    file: Option<Arc<ZoneFile>>,
    digest: Digest,
}

/// From one content to the next.
#[derive(Debug)]
struct Step {
    since: Timestamp,
    content: Content,
    names: Vec<NameChange>,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what was planned and returns what DNS may serve now: zones and names, as nothing else waits. To be asked
    /// after every plan, also after one that changed nothing: that may have brought a number, or been made because of
    /// [`Gate::wake`].
    pub fn pass(&mut self, planned: &Planned, now: Timestamp) -> Changes {
        let mut released = Changes::default();
        for (apex, number) in &planned.numbers {
            self.domains.entry(apex.clone()).or_default().number = Some(*number);
        }
        for (apex, change) in by_domain(&planned.changes, &planned.snapshot) {
            let domain = self.domains.entry(apex.clone()).or_default();
            match change {
                Change::Withdrawn => {
                    // Everything that waits was on the way to being withdrawn.
                    domain.queue.clear();
                    domain.shown = None;
                    released.zones.push(ZoneChange::Withdraw { apex });
                }
                Change::Content(content, names) => domain.enter(content, names, now, &mut released),
            }
        }
        // There are few zones; each plan looks at them all too.
        for (apex, domain) in &mut self.domains {
            domain.release(apex, now, &mut released);
        }
        released
    }

    /// When to be asked again even if nothing was planned.
    pub fn wake(&self) -> Option<Timestamp> {
        self.domains.values().filter_map(Domain::due).min()
    }
}

impl Domain {
    /// Puts a change at the end of the queue, unless it leaves the content as it was.
    fn enter(&mut self, content: Option<Content>, mut names: Vec<NameChange>, now: Timestamp, released: &mut Changes) {
        let tail = self.queue.back().map(|step| &step.content).or(self.shown.as_ref()).map(|content| content.digest);
        match (content, self.queue.back_mut()) {
            (Some(content), _) if tail != Some(content.digest) => {
                self.queue.push_back(Step { since: now, content, names });
            }
            // A name that passed from one owner to another as it was, or a new guess of the serial.
            (content, Some(last)) => {
                last.names.append(&mut names);
                if let Some(content) = content {
                    last.content = content;
                }
            }
            (_, None) => released.names.append(&mut names),
        }
    }

    /// Lets through what has a number, and whatever has waited long enough.
    fn release(&mut self, apex: &DnsName, now: Timestamp, released: &mut Changes) {
        if let Some(number) = self.number {
            let numbered = self.queue.iter().rposition(|step| step.content.digest == number.digest);
            match (numbered, &mut self.shown) {
                (Some(last), _) => self.show(last + 1, Some(number.serial), apex, released),
                // It went out before its number came.
                (None, Some(shown)) if shown.digest == number.digest && shown.soa.serial != number.serial => {
                    shown.soa.serial = number.serial;
                    released.zones.push(shown.serve(apex));
                }
                _ => {}
            }
        }
        if self.due().is_some_and(|due| now >= due) {
            let last = self.shown.as_ref().map(|shown| shown.soa.serial);
            let serial = last.or(self.number.map(|number| number.serial));
            self.show(self.queue.len(), serial, apex, released);
        }
    }

    /// Lets the oldest of the queue through, under this serial or else under one that nobody has given yet.
    fn show(&mut self, count: usize, serial: Option<u32>, apex: &DnsName, released: &mut Changes) {
        for Step { mut content, mut names, .. } in self.queue.drain(..count) {
            content.soa.serial = serial.unwrap_or_else(|| content.soa.serial.wrapping_sub(UNNUMBERED));
            released.names.append(&mut names);
            self.shown = Some(content);
        }
        released.zones.extend(self.shown.as_ref().map(|shown| shown.serve(apex)));
    }

    fn due(&self) -> Option<Timestamp> {
        self.queue.front().map(|step| step.since.saturating_add(PATIENCE))
    }
}

impl Content {
    fn serve(&self, apex: &DnsName) -> ZoneChange {
        ZoneChange::Serve { apex: apex.clone(), soa: self.soa.clone(), file: self.file.clone() }
    }
}

/// What a plan changed in one domain.
enum Change {
    Withdrawn,
    /// No content where it is as it was.
    Content(Option<Content>, Vec<NameChange>),
}

fn by_domain(changes: &Changes, snapshot: &Snapshot) -> BTreeMap<DnsName, Change> {
    let mut domains = BTreeMap::new();
    for change in &changes.zones {
        if let ZoneChange::Serve { apex, soa, file } = change {
            let digest = snapshot.zone_at(apex).map(|part| part.digest);
            let (soa, file, digest) = (soa.clone(), file.clone(), digest.unwrap_or_default());
            domains.insert(apex.clone(), Change::Content(Some(Content { soa, file, digest }), Vec::new()));
        }
    }
    for change in &changes.names {
        let domain = domains.entry(change.apex.clone()).or_insert_with(|| Change::Content(None, Vec::new()));
        if let Change::Content(_, names) = domain {
            names.push(change.clone());
        }
    }
    // It takes its names along.
    let withdrawn = changes.zones.iter().filter_map(|change| match change {
        ZoneChange::Withdraw { apex } => Some((apex.clone(), Change::Withdrawn)),
        ZoneChange::Serve { .. } => None,
    });
    domains.extend(withdrawn);
    domains
}
