//! From ExternalDNS' changes to claims under a few keys, and back. Pure.
//!
//! All endpoints of a name stand under one of 256 keys, by a digest of the name: one changed name rewrites a small object,
//! and what belongs together changes together.

use std::collections::{BTreeMap, BTreeSet};

use manifest::agents::{ClaimList, Claims, MAX_ENDPOINTS};
use manifest::dns_endpoint::EndpointSpec;
use manifest::verdict::PartVerdict;
use ring::digest::{SHA256, digest};

use super::record;
use super::wire::Changes;
use crate::claims::{LARGEST_OBJECT, without_labels};
use crate::health::Refused;
use crate::link::json_size;

/// What is ours at the hub.
const PREFIX: &str = "external-dns/";

/// What one endpoint is told from others by.
type Identity = (String, String, String);

fn identity(endpoint: &EndpointSpec) -> Identity {
    (name(endpoint), endpoint.record_type.to_ascii_uppercase(), endpoint.set_identifier.clone())
}

/// As DNS compares names.
fn name(endpoint: &EndpointSpec) -> String {
    let name = &endpoint.dns_name;
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn key(endpoint: &EndpointSpec) -> String {
    format!("{PREFIX}{:02x}", digest(&SHA256, name(endpoint).as_bytes()).as_ref()[0])
}

/// As it stands at the hub: ExternalDNS keeps its labels in TXT records.
pub(super) fn claimed(endpoint: &EndpointSpec) -> EndpointSpec {
    EndpointSpec { provider_specific: Vec::new(), ..without_labels(endpoint) }
}

/// What the hub has of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    keys: BTreeMap<String, BTreeMap<Identity, (EndpointSpec, Option<PartVerdict>)>>,
}

/// What is known of an endpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged<'a> {
    /// It is there, and published or not judged yet.
    Kept,
    /// It is there and not published.
    Refused(&'a PartVerdict),
    /// It is not there, or not like this.
    Unknown,
}

/// What is to be sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) set: Vec<Claims>,
    pub(super) delete: Vec<String>,
    /// For which there is no room.
    pub(super) dropped: Vec<Refused>,
}

impl Kept {
    pub(super) fn of(list: ClaimList) -> Self {
        let mut keys: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
        for claims in list.claims.into_iter().filter(|claims| claims.key.starts_with(PREFIX)) {
            let complete = claims.verdicts.len() == claims.endpoints.len();
            let verdicts = claims.verdicts.into_iter().map(|verdict| complete.then_some(verdict));
            let verdicts = verdicts.chain(std::iter::repeat(None));
            let endpoints = claims.endpoints.into_iter().zip(verdicts);
            let bucket = keys.entry(claims.key).or_default();
            bucket.extend(endpoints.map(|(endpoint, verdict)| (identity(&endpoint), (endpoint, verdict))));
        }
        Self { keys }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.values().map(BTreeMap::len).sum()
    }

    pub(super) fn endpoints(&self) -> Vec<&EndpointSpec> {
        self.keys.values().flat_map(BTreeMap::values).map(|(endpoint, _)| endpoint).collect()
    }

    pub(super) fn judged(&self, endpoint: &EndpointSpec) -> Judged<'_> {
        let there = self.keys.get(&key(endpoint)).and_then(|bucket| bucket.get(&identity(endpoint)));
        match there {
            Some((kept, verdict)) if is_same(kept, endpoint) => match verdict {
                Some(verdict) if !verdict.published => Judged::Refused(verdict),
                _ => Judged::Kept,
            },
            _ => Judged::Unknown,
        }
    }

    /// The keys that change. What comes replaces what it has the name, type and set of, so that changes whose answer was lost
    /// may come twice.
    pub(super) fn apply(&self, changes: Changes) -> Applied {
        let (gone, come) = changes.split();
        let touched: BTreeSet<String> = gone.iter().chain(&come).map(key).collect();
        let bucket = |key: String| {
            let there = self.keys.get(&key).into_iter().flatten();
            let mut bucket = Bucket::default();
            for (identity, (endpoint, _)) in there {
                bucket.put(identity.clone(), endpoint.clone());
            }
            (key, bucket)
        };
        let mut buckets: BTreeMap<String, Bucket> = touched.into_iter().map(bucket).collect();
        let mut applied = Applied::default();
        for endpoint in &gone {
            buckets.entry(key(endpoint)).or_default().take(&identity(endpoint));
        }
        for endpoint in &come {
            let bucket = buckets.entry(key(endpoint)).or_default();
            let before = bucket.take(&identity(endpoint));
            if bucket.has_room(endpoint) {
                bucket.put(identity(endpoint), claimed(endpoint));
                continue;
            }
            // What was there stays, rather than nothing.
            if let Some(before) = before {
                bucket.put(identity(endpoint), before);
            }
            applied.dropped.push(no_room(endpoint));
        }
        for (key, bucket) in buckets {
            let there: Vec<&EndpointSpec> =
                self.keys.get(&key).into_iter().flat_map(BTreeMap::values).map(|(endpoint, _)| endpoint).collect();
            if bucket.endpoints.values().eq(there.iter().copied()) {
                continue;
            }
            if bucket.endpoints.is_empty() {
                applied.delete.push(key);
            } else {
                applied.set.push(Claims { key, endpoints: bucket.endpoints.into_values().collect() });
            }
        }
        applied
    }
}

/// What stands under one key.
#[derive(Default)]
struct Bucket {
    endpoints: BTreeMap<Identity, EndpointSpec>,
    /// In octets.
    size: usize,
}

impl Bucket {
    fn has_room(&self, endpoint: &EndpointSpec) -> bool {
        self.endpoints.len() < MAX_ENDPOINTS && self.size + json_size(&claimed(endpoint)) <= LARGEST_OBJECT
    }

    fn put(&mut self, identity: Identity, endpoint: EndpointSpec) {
        self.size += json_size(&endpoint);
        self.endpoints.insert(identity, endpoint);
    }

    fn take(&mut self, identity: &Identity) -> Option<EndpointSpec> {
        let endpoint = self.endpoints.remove(identity)?;
        self.size -= json_size(&endpoint);
        Some(endpoint)
    }
}

fn no_room(endpoint: &EndpointSpec) -> Refused {
    Refused {
        source: String::new(),
        record: record(endpoint),
        code: "TooMany".into(),
        reason: "there are too many records, or they are too large: the hub has no room for this one".into(),
        field: String::new(),
    }
}

/// As ExternalDNS compares them: the order of targets and their case mean nothing.
fn is_same(kept: &EndpointSpec, wished: &EndpointSpec) -> bool {
    let targets = |endpoint: &EndpointSpec| {
        let mut targets: Vec<String> = endpoint.targets.iter().map(|target| target.to_ascii_lowercase()).collect();
        targets.sort_unstable();
        targets
    };
    kept.record_ttl == wished.record_ttl && targets(kept) == targets(wished)
}

#[cfg(test)]
mod tests;
