//! The last queries and what became of them, for those who look for a reason.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use domain::base::iana::{OptRcode, Rtype};
use model::DnsName;
use model::name::MAX_NAME;

use crate::query::{Client, Kind, Outcome, Transport};
use crate::request::HEADER;

/// Per thread that answers: some 300 KiB each, and minutes of an ordinary server's queries.
const PER_RING: usize = 1024;

/// Cheap to clone; all clones show the same queries.
#[derive(Clone, Default)]
pub struct Recent {
    rings: Arc<Mutex<Vec<Arc<Mutex<Entries>>>>>,
}

/// One query, as it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentQuery {
    /// Since the Unix epoch.
    pub at: Duration,
    pub client: IpAddr,
    pub transport: Transport,
    pub name: DnsName,
    pub qtype: Rtype,
    pub rcode: OptRcode,
    pub kind: Kind,
    /// The zone of ours that it lies in.
    pub zone: Option<DnsName>,
    pub truncated: bool,
}

impl Recent {
    /// The newest first. Under load each thread keeps a sample.
    pub fn queries(&self) -> Vec<RecentQuery> {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut queries: Vec<RecentQuery> = rings
            .iter()
            .flat_map(|ring| ring.lock().unwrap_or_else(PoisonError::into_inner).all.clone())
            .filter_map(|entry| entry.told())
            .collect();
        queries.sort_by_key(|query| std::cmp::Reverse(query.at));
        queries
    }

    /// Room for the queries of one more thread.
    pub(crate) fn ring(&self) -> Ring {
        let entries = Arc::new(Mutex::new(Entries { all: vec![Entry::UNUSED; PER_RING].into(), next: 0 }));
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&entries));
        Ring { entries }
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recent")
    }
}

/// What one thread writes.
pub(crate) struct Ring {
    entries: Arc<Mutex<Entries>>,
}

/// Always of the same length; those that were not used yet have no name.
struct Entries {
    all: Box<[Entry]>,
    next: usize,
}

#[derive(Clone)]
struct Entry {
    at: Duration,
    client: IpAddr,
    transport: Transport,
    kind: Kind,
    truncated: bool,
    rcode: OptRcode,
    qtype: Rtype,
    length: u8,
    /// How long the zone's apex is, with which the name ends; 0 outside of every zone.
    apex: u8,
    name: [u8; MAX_NAME],
}

/// The ring, for as long as a batch of queries is answered.
pub(crate) struct Writing<'a>(Option<MutexGuard<'a, Entries>>);

impl Ring {
    /// Whoever reads at this moment has it for some microseconds; then this batch is not kept rather than held up.
    pub(crate) fn open(&self) -> Writing<'_> {
        Writing(self.entries.try_lock().ok())
    }
}

impl Writing<'_> {
    /// Writes in place: this is done for every query of a quiet server.
    pub(crate) fn push(&mut self, at: Duration, client: &Client, request: &[u8], outcome: &Outcome<'_>) {
        let Some(entries) = &mut self.0 else { return };
        let Some((length, qtype)) = outcome.question else { return };
        let next = entries.next;
        entries.next = (next + 1) % PER_RING;
        let Some(entry) = entries.all.get_mut(next) else { return };
        let (Some(place), Some(name)) = (entry.name.get_mut(..length), request.get(HEADER..HEADER + length)) else {
            return;
        };
        place.copy_from_slice(name);
        entry.length = u8::try_from(length).unwrap_or_default();
        entry.apex = outcome.apex().and_then(|apex| u8::try_from(apex.as_wire().len()).ok()).unwrap_or_default();
        entry.at = at;
        entry.client = client.address;
        entry.transport = client.transport;
        entry.kind = outcome.kind;
        entry.truncated = outcome.truncated;
        entry.rcode = outcome.rcode;
        entry.qtype = qtype;
    }
}

impl Entry {
    const UNUSED: Self = Self {
        at: Duration::ZERO,
        client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        transport: Transport::Udp,
        kind: Kind::Error,
        truncated: false,
        rcode: OptRcode::NOERROR,
        qtype: Rtype::ANY,
        length: 0,
        apex: 0,
        name: [0; MAX_NAME],
    };

    fn told(&self) -> Option<RecentQuery> {
        let name = self.name.get(..usize::from(self.length))?;
        let apex = name.len().checked_sub(self.apex.into()).and_then(|front| name.get(front..))?;
        Some(RecentQuery {
            at: self.at,
            client: self.client,
            transport: self.transport,
            name: DnsName::from_wire(name).ok()?,
            qtype: self.qtype,
            rcode: self.rcode,
            kind: self.kind,
            zone: DnsName::from_wire(apex).ok(),
            truncated: self.truncated,
        })
    }
}

pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_queries_are_kept_and_the_newest_comes_first() {
        let recent = Recent::default();
        let rings = [recent.ring(), recent.ring()];
        let client = Client { address: IpAddr::from([192, 0, 2, 1]), transport: Transport::Udp, now: 0 };
        let request = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x01A\x04test\0\0\x01\0\x01";
        for number in 0..3000 {
            let outcome = Outcome {
                rcode: OptRcode::REFUSED,
                kind: Kind::Error,
                truncated: false,
                proven: false,
                question: Some((8, Rtype::A)),
                zone: None,
            };
            rings[number % 2].open().push(Duration::from_millis(number as u64), &client, request, &outcome);
        }
        let queries = recent.queries();
        assert_eq!(queries.len(), 2 * PER_RING);
        let times: Vec<u64> = queries.iter().map(|query| u64::try_from(query.at.as_millis()).unwrap()).collect();
        assert!(times.iter().eq((3000 - 2 * PER_RING as u64..3000).rev().collect::<Vec<_>>().iter()));
        assert_eq!((queries[0].name.to_string().as_str(), queries[0].rcode), ("a.test", OptRcode::REFUSED));
    }
}
