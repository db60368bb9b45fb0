//! A node's way to the hub: everything that comes in goes to one of the hub's doors, behind a header that names the
//! cluster.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use model::resource::Limits;
use model::snapshot::Route;
use model::{ClusterId, ProofKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::address::PeerAddr;
use crate::proof;
use crate::proxy_header::{Encoder, HeaderError, TLV_HYPERSHIFT_CLUSTER_ID};

/// Where the hub is, and how this node's cluster is named there. What is known of it may change while connections pass.
#[derive(Debug)]
pub struct Hub {
    cluster_id: ClusterId,
    /// The hub's doors as a route without conditions.
    route: ArcSwap<Route>,
    key: ArcSwapOption<ProofKey>,
    random: SystemRandom,
    trouble: Trouble,
}

/// Wakes whoever looks up the hub's names, when none of the addresses that they gave could be reached.
#[derive(Debug, Default)]
struct Trouble {
    /// Spares those who tell the lock while it has been told already.
    told: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Hub {
    pub fn new(cluster_id: ClusterId) -> Self {
        Self {
            cluster_id,
            route: ArcSwap::from_pointee(open_route("hub", Vec::new())),
            key: ArcSwapOption::empty(),
            random: SystemRandom::new(),
            trouble: Trouble::default(),
        }
    }

    /// From now on; connections that are open stay where they are.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        self.route.store(Arc::new(open_route("hub", addresses)));
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.route.load().upstreams.clone()
    }

    /// Every connection proves from now on that it holds the key.
    pub fn set_key(&self, key: ProofKey) {
        self.key.store(Some(Arc::new(key)));
    }

    /// Waits until the hub could not be reached or the time has passed.
    pub fn wait_for_trouble(&self, at_most: Duration) {
        let Trouble { told, lock, changed } = &self.trouble;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(guard, at_most, |()| !told.load(Ordering::Acquire));
        drop(waited);
        told.store(false, Ordering::Release);
    }

    /// Ends [`Hub::wait_for_trouble`].
    pub fn tell_trouble(&self) {
        let Trouble { told, lock, changed } = &self.trouble;
        if !told.swap(true, Ordering::AcqRel) {
            drop(lock.lock());
            changed.notify_all();
        }
    }

    pub(crate) fn route(&self) -> Arc<Route> {
        self.route.load_full()
    }

    /// What a connection begins with at the hub's door, to be sent in one write.
    pub(crate) fn header(&self, peer: PeerAddr, destination: SocketAddr) -> Result<Vec<u8>, HeaderError> {
        let id = self.cluster_id.as_str().as_bytes();
        let header = Encoder::proxy(peer.0, destination).tlv(TLV_HYPERSHIFT_CLUSTER_ID, id);
        let Some(key) = self.key.load_full() else { return header.finish() };
        let mut nonce = [0; proof::NONCE];
        // Without randomness the hub takes the proof for a replay, at worst: it refuses, and lets nobody in.
        if self.random.fill(&mut nonce).is_err() {
            tracing::error!("the system gives no random numbers; the hub will refuse what this node sends");
        }
        header.proof(&proof::sign(&key, id, SystemTime::now(), &nonce)).finish()
    }
}

/// What the agents' door is called where a cluster and its service are named.
pub(crate) const AGENTS: &str = "fleetgate-agents-door";

/// To something of ours, without conditions; `name` is a label.
pub(crate) fn open_route(name: &str, upstreams: Vec<SocketAddr>) -> Route {
    let everybody = ["0.0.0.0/0", "::/0"].map(|range| range.parse().expect("this is a range"));
    Route {
        cluster: name.parse().expect("this is a label"),
        tenant: name.parse().expect("a label is a name"),
        service: name.into(),
        upstreams,
        inside: Vec::new(),
        allowed_sources: everybody.into(),
        proof: Arc::default(),
        limits: Limits::default(),
        tenant_limits: Limits::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_header::{Parsed, parse};

    #[test]
    fn the_header_is_hypershifts_golden_vector() {
        let id = "a1b2c3d4-1111-2222-3333-444455556666";
        let hub = Hub::new(id.parse().unwrap());
        let header = hub.header(PeerAddr("169.254.169.1:38984".parse().unwrap()), "172.20.0.1:6443".parse().unwrap());
        let expected: Vec<u8> = [
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x33".as_slice(),
            &[0xa9, 0xfe, 0xa9, 0x01, 0xac, 0x14, 0x00, 0x01, 0x98, 0x48, 0x19, 0x2b, 0x20, 0x00, 0x24],
            id.as_bytes(),
        ]
        .concat();
        assert_eq!(header.unwrap(), expected);
    }

    #[test]
    fn with_a_key_every_header_has_a_proof_of_its_own() {
        let (hub, key) = (Hub::new("c1".parse().unwrap()), ProofKey::parse(&[7; 32]).unwrap());
        hub.set_key(key.clone());
        let header = || hub.header(PeerAddr("[::1]:1".parse().unwrap()), "[fd00::1]:6443".parse().unwrap()).unwrap();
        let replays = proof::Replays::default();
        for header in [header(), header()] {
            let Ok(Parsed::Complete { header, .. }) = parse(&header) else { panic!("the header is whole") };
            let now = SystemTime::now();
            let nonce = proof::check(header.proof.unwrap(), b"c1", std::slice::from_ref(&key), now).unwrap();
            assert_eq!(replays.take(nonce, now), Ok(()));
        }
    }

    #[test]
    fn trouble_that_was_told_before_anybody_waited_is_not_lost() {
        let hub = Hub::new("c1".parse().unwrap());
        hub.tell_trouble();
        hub.tell_trouble();
        hub.wait_for_trouble(Duration::from_hours(1));
        hub.wait_for_trouble(Duration::ZERO);
    }
}
