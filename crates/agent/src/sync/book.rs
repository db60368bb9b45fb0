//! What is known of both sides, and what follows from it: which claims to send, which to delete, and what to say of each
//! `DNSEndpoint`. Pure.
//!
//! A key is deleted when its object is known to be gone: because the cluster said so, or because a whole list lacks it. A
//! list that failed says nothing, and a list that is suddenly empty is not believed at once. Keys of namespaces that are
//! not followed are somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kubernetes::sources::{Followed, News, Place, Source, Written};
use manifest::agents::{ClaimChanges, ClaimList, ClaimVerdict, Claims, VerdictList};
use manifest::verdict::{JudgedObject, PartVerdict, VerdictSpec};

use super::keys;
use crate::claims::{Digest, digest_of};
use crate::health::Refused;

/// How long claims stay that an empty list lacks. A cluster that lost its storage, or whose API server answers before it has
/// any, shows nothing at all. Long enough for somebody to be woken up and mend it.
pub(super) const DOUBT: Duration = Duration::from_hours(1);
/// As many as the kind holds.
const MOST_PARTS: usize = 1000;

/// One namespace, or all of them.
struct Scope {
    namespace: Option<String>,
    listed: Listed,
    verdicts: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    Never,
    Whole,
    /// Since when the list has been empty.
    Empty(Instant),
}

/// Whether the kind Verdict is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unknown,
    There,
    Absent,
}

struct Entry {
    source: Source,
    /// In the order of its endpoints.
    keys: Vec<(String, Digest)>,
}

/// What the hub has under a key.
struct Kept {
    digest: Digest,
    /// As the hub says it: its verdicts with another one are about something else.
    told: String,
}

pub(super) struct Book {
    scopes: Vec<Scope>,
    sources: BTreeMap<Place, Entry>,
    /// What the hub has of ours; `None` while that is not known.
    kept: Option<BTreeMap<String, Kept>>,
    /// Objects that the cluster said were deleted, by the base of their keys.
    gone: BTreeSet<String>,
    /// What the hub does not take at all, and why.
    rejected: BTreeMap<String, (Digest, PartVerdict)>,
    verdicts: BTreeMap<String, Vec<PartVerdict>>,
    written: BTreeMap<Place, Written>,
    /// Of which something may have to be said.
    unsaid: BTreeSet<Place>,
}

/// How what is wanted is said in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Saying {
    pub(super) source: Source,
    pub(super) spec: VerdictSpec,
    /// By an Event, where the kind Verdict is not installed.
    pub(super) as_event: bool,
    /// Something of it was refused when it was last said.
    pub(super) was_refused: bool,
}

impl Book {
    pub(super) fn new(namespaces: &[Option<String>]) -> Self {
        let scope = |namespace: &Option<String>| Scope {
            namespace: namespace.clone(),
            listed: Listed::Never,
            verdicts: Kind::Unknown,
        };
        Self {
            scopes: namespaces.iter().map(scope).collect(),
            sources: BTreeMap::new(),
            kept: None,
            gone: BTreeSet::new(),
            rejected: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            written: BTreeMap::new(),
            unsaid: BTreeSet::new(),
        }
    }

    pub(super) fn hear(&mut self, news: News, now: Instant) {
        match news {
            News::Sources(number, followed) => self.hear_sources(number, followed, now),
            News::Verdicts(number, followed) => self.hear_verdicts(number, followed),
        }
    }

    fn hear_sources(&mut self, number: usize, followed: Followed<Source>, now: Instant) {
        match followed {
            Followed::Listed(sources) => {
                let scope = &mut self.scopes[number];
                scope.listed = match (sources.is_empty(), scope.listed) {
                    (false, _) => Listed::Whole,
                    (true, Listed::Empty(since)) => Listed::Empty(since),
                    (true, _) => Listed::Empty(now),
                };
                let scope = &self.scopes[number];
                self.sources.retain(|place, _| !scope.has(&place.namespace));
                for source in sources {
                    self.put(source);
                }
            }
            Followed::Changed(source) => self.put(source),
            Followed::Gone(place) => {
                self.sources.remove(&place);
                self.written.remove(&place);
                self.gone.insert(keys::base(&place));
                self.forget_gone();
            }
            // What is known stays.
            Followed::Away(_) | Followed::Absent => {}
        }
    }

    fn put(&mut self, source: Source) {
        let place = source.place.clone();
        self.gone.remove(&keys::base(&place));
        self.unsaid.insert(place.clone());
        let claims = source.endpoints.as_ref().map_or_else(|_| Vec::new(), |endpoints| keys::claims(&place, endpoints));
        let keys = claims.iter().map(|claims| (claims.key.clone(), digest_of(&claims.endpoints))).collect();
        self.sources.insert(place, Entry { source, keys });
    }

    fn hear_verdicts(&mut self, number: usize, followed: Followed<Written>) {
        let scope = &mut self.scopes[number];
        match followed {
            Followed::Listed(written) => {
                scope.verdicts = Kind::There;
                let scope = &self.scopes[number];
                self.written.retain(|place, _| !scope.has(&place.namespace));
                self.written.extend(written.into_iter().map(|written| (written.place.clone(), written)));
                self.unsaid.extend(self.sources.keys().filter(|place| scope.has(&place.namespace)).cloned());
            }
            Followed::Changed(written) => {
                self.unsaid.insert(written.place.clone());
                self.written.insert(written.place.clone(), written);
            }
            Followed::Gone(place) => {
                self.written.remove(&place);
                self.unsaid.insert(place);
            }
            // It is said again and again as long as it holds.
            Followed::Absent if scope.verdicts != Kind::Absent => {
                scope.verdicts = Kind::Absent;
                let scope = &self.scopes[number];
                self.written.retain(|place, _| !scope.has(&place.namespace));
                self.unsaid.extend(self.sources.keys().filter(|place| scope.has(&place.namespace)).cloned());
            }
            Followed::Absent | Followed::Away(_) => {}
        }
    }

    /// Whether everything has been listed once.
    pub(super) fn is_listed(&self) -> bool {
        self.scopes.iter().all(|scope| scope.listed != Listed::Never)
    }

    pub(super) fn knows_hub(&self) -> bool {
        self.kept.is_some()
    }

    /// The hub may have something else than we think.
    pub(super) fn forget_hub(&mut self) {
        self.kept = None;
    }

    /// What the hub has.
    pub(super) fn load(&mut self, list: ClaimList) {
        let ours = list.claims.into_iter().filter(|claims| claims.key.starts_with(keys::PREFIX));
        let mut kept = BTreeMap::new();
        self.verdicts.clear();
        for claims in ours {
            let digest = digest_of(&claims.endpoints);
            kept.insert(claims.key.clone(), Kept { digest, told: claims.digest });
            if !claims.verdicts.is_empty() {
                self.verdicts.insert(claims.key, claims.verdicts);
            }
        }
        self.kept = Some(kept);
        self.forget_gone();
        self.rejected.clear();
        self.unsaid.extend(self.sources.keys().cloned());
    }

    /// What the hub lacks, and what it has too much of.
    pub(super) fn changes(&self, now: Instant) -> (Vec<Claims>, Vec<String>) {
        let Some(kept) = &self.kept else { return (Vec::new(), Vec::new()) };
        let is_rejected = |key: &str, digest: &Digest| self.rejected.get(key).is_some_and(|(of, _)| of == digest);
        let mut set = Vec::new();
        for entry in self.sources.values() {
            let has = |key: &str, digest: &Digest| kept.get(key).is_some_and(|kept| kept.digest == *digest);
            let lacks = |(key, digest): &(String, Digest)| !has(key, digest) && !is_rejected(key, digest);
            if let Ok(endpoints) = &entry.source.endpoints
                && entry.keys.iter().any(lacks)
            {
                let lacking: BTreeSet<&str> =
                    entry.keys.iter().filter(|key| lacks(key)).map(|(key, _)| key.as_str()).collect();
                let claims = keys::claims(&entry.source.place, endpoints);
                set.extend(claims.into_iter().filter(|claims| lacking.contains(claims.key.as_str())));
            }
        }
        let wanted: BTreeSet<&str> =
            self.sources.values().flat_map(|entry| &entry.keys).map(|(key, _)| key.as_str()).collect();
        // Of an object that cannot be read the last good claims stay.
        let unread = self.sources.values().filter(|entry| entry.source.endpoints.is_err());
        let unread: BTreeSet<String> = unread.map(|entry| keys::base(&entry.source.place)).collect();
        let present: BTreeSet<String> = self.sources.keys().map(keys::base).collect();
        let too_much = kept.keys().filter(|key| {
            let base = keys::base_of(key);
            !wanted.contains(key.as_str())
                && !unread.contains(base)
                && (self.gone.contains(base) || present.contains(base) || self.is_lacking(key, now))
        });
        (set, too_much.cloned().collect())
    }

    /// Whether a list that is believed lacks the key's object.
    fn is_lacking(&self, key: &str, now: Instant) -> bool {
        let Some(namespace) = keys::namespace_of(key) else { return false };
        let scope = self.scopes.iter().find(|scope| scope.has(namespace));
        scope.is_some_and(|scope| match scope.listed {
            Listed::Never => false,
            Listed::Whole => true,
            Listed::Empty(since) => now.saturating_duration_since(since) >= DOUBT,
        })
    }

    /// How many claims stay only because a list that is suddenly empty is not believed.
    pub(super) fn doubted(&self, now: Instant) -> usize {
        let is_empty = |key: &str| {
            let namespace = keys::namespace_of(key).unwrap_or_default();
            let scope = self.scopes.iter().find(|scope| scope.has(namespace));
            scope.is_some_and(|scope| matches!(scope.listed, Listed::Empty(_)))
        };
        let kept = self.kept.iter().flat_map(BTreeMap::keys);
        let present: BTreeSet<String> = self.sources.keys().map(keys::base).collect();
        kept.filter(|key| {
            let base = keys::base_of(key);
            is_empty(key) && !present.contains(base) && !self.gone.contains(base) && !self.is_lacking(key, now)
        })
        .count()
    }

    /// The hub has taken these.
    pub(super) fn sent(&mut self, changes: &ClaimChanges, answer: VerdictList) {
        let kept = self.kept.get_or_insert_default();
        let told: BTreeMap<&str, &str> =
            answer.verdicts.iter().map(|verdict| (verdict.key.as_str(), verdict.digest.as_str())).collect();
        for claims in &changes.set {
            let told = told.get(claims.key.as_str()).copied().unwrap_or_default().to_owned();
            kept.insert(claims.key.clone(), Kept { digest: digest_of(&claims.endpoints), told });
            // Those that were there are of other endpoints.
            self.verdicts.remove(&claims.key);
            self.rejected.remove(&claims.key);
        }
        for key in &changes.delete {
            kept.remove(key);
            self.verdicts.remove(key);
            self.rejected.remove(key);
        }
        self.forget_gone();
        for verdict in answer.verdicts {
            self.judge(verdict);
        }
    }

    /// Of what the hub has nothing, nothing needs to be known.
    fn forget_gone(&mut self) {
        let Some(kept) = &self.kept else { return };
        let has_part = |base: &str| {
            let parts = format!("{base}/");
            kept.range(parts.clone()..).next().is_some_and(|(key, _)| key.starts_with(&parts))
        };
        self.gone.retain(|base| kept.contains_key(base) || has_part(base));
    }

    /// The hub does not take this one key at all.
    pub(super) fn reject(&mut self, changes: &ClaimChanges, code: &str, reason: &str) {
        for claims in &changes.set {
            let (code, reason) = (code.to_owned(), reason.to_owned());
            let verdict = PartVerdict { part: "*".into(), code, reason, ..PartVerdict::default() };
            self.rejected.insert(claims.key.clone(), (digest_of(&claims.endpoints), verdict));
            self.mark(&claims.key);
        }
    }

    /// The verdicts on all claims. Whether the hub has the claims that we think it has.
    pub(super) fn judged(&mut self, list: VerdictList) -> bool {
        let ours = list.verdicts.into_iter().filter(|verdict| verdict.key.starts_with(keys::PREFIX));
        let (mut there, mut is_same) = (0, true);
        for verdict in ours {
            there += 1;
            is_same &= self.judge(verdict);
        }
        is_same && self.kept.as_ref().is_some_and(|kept| kept.len() == there)
    }

    /// Whether it is about what we think the hub has; else it says nothing.
    fn judge(&mut self, ClaimVerdict { key, digest, verdicts }: ClaimVerdict) -> bool {
        let kept = self.kept.as_ref().and_then(|kept| kept.get(&key));
        if kept.is_none_or(|kept| kept.told != digest) {
            return false;
        }
        let before = self.verdicts.get(&key);
        if before.is_some_and(|before| *before == verdicts) || (before.is_none() && verdicts.is_empty()) {
            return true;
        }
        self.mark(&key);
        self.verdicts.insert(key, verdicts);
        true
    }

    fn mark(&mut self, key: &str) {
        let base = keys::base_of(key);
        let Some(namespace) = keys::namespace_of(key) else { return };
        let name = base.rsplit('/').next().unwrap_or_default();
        let place = Place { namespace: namespace.to_owned(), name: name.to_owned() };
        if self.sources.contains_key(&place) {
            self.unsaid.insert(place);
        } else {
            // One whose name was too long for a key.
            self.unsaid.extend(self.sources.keys().filter(|place| keys::base(place) == base).cloned());
        }
    }

    /// Of at most so many objects, what is to be said of them. Those of which nothing is known yet wait for the hub.
    pub(super) fn sayings(&mut self, most: usize) -> Vec<Saying> {
        let mut sayings = Vec::new();
        while sayings.len() < most
            && let Some(place) = self.unsaid.pop_first()
        {
            let Some(saying) = self.saying(&place) else { continue };
            sayings.push(saying);
        }
        sayings
    }

    fn saying(&self, place: &Place) -> Option<Saying> {
        let source = &self.sources.get(place)?.source;
        let scope = self.scopes.iter().find(|scope| scope.has(&place.namespace))?;
        let spec = self.verdict(place)?;
        let as_event = match scope.verdicts {
            // It is marked again when it is known.
            Kind::Unknown => return None,
            Kind::There => false,
            Kind::Absent => true,
        };
        let is_said = |written: &Written| written.owner == source.uid && written.spec == spec;
        let written = self.written.get(place);
        if written.is_some_and(is_said) {
            return None;
        }
        let was_refused = written.is_some_and(|written| written.spec.refused > 0);
        Some(Saying { source: source.clone(), spec, as_event, was_refused })
    }

    /// `None` until the hub has said something of all of it, as it is now.
    fn verdict(&self, place: &Place) -> Option<VerdictSpec> {
        let entry = self.sources.get(place)?;
        let kept = self.kept.as_ref()?;
        let mut parts = Vec::new();
        match &entry.source.endpoints {
            Err(reason) => {
                let (code, reason) = ("Unreadable".into(), reason.clone());
                parts.push(PartVerdict { part: "*".into(), code, reason, ..PartVerdict::default() });
            }
            Ok(endpoints) => {
                for claims in keys::claims(place, endpoints) {
                    let digest = digest_of(&claims.endpoints);
                    if let Some((_, verdict)) = self.rejected.get(&claims.key).filter(|(of, _)| *of == digest) {
                        parts.push(verdict.clone());
                        continue;
                    }
                    kept.get(&claims.key).filter(|kept| kept.digest == digest)?;
                    let verdicts = self.verdicts.get(&claims.key)?;
                    if verdicts.len() != claims.endpoints.len() {
                        return None;
                    }
                    parts.extend(verdicts.iter().cloned());
                }
            }
        }
        let count = |published| {
            let parts = parts.iter().filter(|part| part.published == published);
            u32::try_from(parts.count()).unwrap_or(u32::MAX)
        };
        let (published, refused) = (count(true), count(false));
        // Those that are refused come first where not all have room: the others need no reading.
        if parts.len() > MOST_PARTS {
            parts.sort_by_key(|part| part.published);
            parts.truncate(MOST_PARTS);
        }
        let object = JudgedObject { kind: "DNSEndpoint".into(), generation: entry.source.generation };
        Some(VerdictSpec { object, beside: None, published, refused, parts })
    }

    /// It was said; an Event leaves nothing behind to see that by.
    pub(super) fn said(&mut self, saying: Saying) {
        let place = saying.source.place;
        self.written.insert(place.clone(), Written { place, owner: saying.source.uid, spec: saying.spec });
    }

    /// It could not be said, and is to be tried again.
    pub(super) fn unsaid(&mut self, saying: &Saying) {
        self.unsaid.insert(saying.source.place.clone());
    }

    pub(super) fn has_unsaid(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// How many objects there are, how many endpoints of theirs are published, and how many refused.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let parts = self.verdicts.values().flatten();
        let published = parts.clone().filter(|part| part.published).count();
        (self.sources.len(), published, parts.count() - published + self.rejected.len())
    }

    pub(super) fn refused(&self, most: usize) -> Vec<Refused> {
        let rejected = self.rejected.iter().map(|(key, (_, part))| (key, part));
        let judged = self.verdicts.iter().flat_map(|(key, parts)| parts.iter().map(move |part| (key, part)));
        let refused = rejected.chain(judged).filter(|(_, part)| !part.published);
        refused.take(most).map(|(key, part)| refusal(keys::base_of(key), part)).collect()
    }
}

fn refusal(source: &str, part: &PartVerdict) -> Refused {
    Refused {
        source: source.trim_start_matches(keys::PREFIX).to_owned(),
        record: part.part.clone(),
        code: part.code.clone(),
        reason: part.reason.clone(),
        field: part.field.clone(),
    }
}

impl Scope {
    fn has(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|of| of == namespace)
    }
}

#[cfg(test)]
mod tests;
