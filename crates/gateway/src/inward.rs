//! The way into clusters that have no address outside: somebody else carries the client there.
//!
//! Nothing here knows of the tunnel. A copy of the client's socket is given away with the cluster, the target and a deadline, and
//! one end of a pair of sockets to talk about it: the first octet that comes back says whether there is a connection, the one that
//! is sent then says that the client is the other's, and the end of either says that it is over. So the loop of a thread waits for
//! it as it waits for any other socket, is as little held up by it, and has nothing to do with what is carried.

use std::fmt;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::ClusterName;
use model::inside::{Denied, InnerTarget};
use prometheus_client::metrics::counter::Counter;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::metrics::DoorMetrics;

/// A connection for somebody to carry into a cluster.
#[derive(Debug)]
pub struct Inbound {
    pub cluster: ClusterName,
    pub target: InnerTarget,
    /// After so long nobody waits any more.
    pub within: Duration,
    /// Does not block. Not to be read before an octet has come by `word`: another target may be tried meanwhile.
    pub client: TcpStream,
    /// What the client has sent already.
    pub first: Vec<u8>,
    /// Does not block. To be answered with one octet: 0 where there is a connection, or what [`Denied::octet`] says. Its end, from
    /// either side, is that of the connection.
    pub word: UnixStream,
    pub counts: Counts,
}

/// What is carried, told as it goes.
#[derive(Debug, Clone)]
pub struct Counts {
    to_upstream: Counter,
    to_client: Counter,
    /// In both directions, of this connection.
    moved: Arc<AtomicU64>,
}

impl Counts {
    pub(crate) fn new(metrics: &DoorMetrics) -> Self {
        let (to_upstream, to_client) = (metrics.to_upstream.clone(), metrics.to_client.clone());
        Self { to_upstream, to_client, moved: Arc::default() }
    }

    pub fn to_upstream(&self, octets: u64) {
        self.to_upstream.inc_by(octets);
        self.moved.fetch_add(octets, Ordering::Relaxed);
    }

    pub fn to_client(&self, octets: u64) {
        self.to_client.inc_by(octets);
        self.moved.fetch_add(octets, Ordering::Relaxed);
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}

/// Carries such connections.
#[derive(Clone)]
pub struct Inward {
    carry: Arc<dyn Fn(Inbound) + Send + Sync>,
    links: Arc<dyn Fn(&ClusterName) -> usize + Send + Sync>,
}

impl Inward {
    /// `carry` takes a connection at once and waits for nothing. `links` says by how many ways a cluster is reached now.
    pub fn new(
        carry: impl Fn(Inbound) + Send + Sync + 'static,
        links: impl Fn(&ClusterName) -> usize + Send + Sync + 'static,
    ) -> Self {
        Self { carry: Arc::new(carry), links: Arc::new(links) }
    }

    pub(crate) fn links(&self, cluster: &ClusterName) -> usize {
        (self.links)(cluster)
    }

    /// Begins a connection for a client, which has sent `first`, and does not wait for it.
    pub(crate) fn begin(
        &self,
        (cluster, target, within): (&ClusterName, &InnerTarget, Duration),
        (client, first): (&OwnedFd, &[u8]),
        counts: &Counts,
    ) -> Result<OwnedFd, Errno> {
        let client = rustix::io::fcntl_dupfd_cloexec(client, 0)?.into();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        (self.carry)(Inbound {
            cluster: cluster.clone(),
            target: target.clone(),
            within,
            client,
            first: first.to_vec(),
            word: theirs.into(),
            counts: counts.clone(),
        });
        Ok(ours)
    }
}

impl fmt::Debug for Inward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inward")
    }
}

/// What became of it; `None` as long as nobody has said so.
pub(crate) fn heard(word: &OwnedFd) -> Option<Result<(), Denied>> {
    let mut octet = [0];
    loop {
        return match recv(word, &mut octet, RecvFlags::empty()) {
            Ok((1.., _)) => Some(Denied::read(octet[0])),
            Err(Errno::AGAIN) => None,
            Err(Errno::INTR) => continue,
            // Who had it is gone without a word.
            Ok((0, _)) | Err(_) => Some(Err(Denied::LinkLost)),
        };
    }
}

/// The client is the other's from now on.
pub(crate) fn give(word: &OwnedFd) -> Result<(), Errno> {
    send(word, &[0], SendFlags::NOSIGNAL).map(drop)
}

/// Whether it is over.
pub(crate) fn has_ended(word: &OwnedFd) -> bool {
    loop {
        return match recv(word, &mut [0], RecvFlags::empty()) {
            Err(Errno::AGAIN) => false,
            Err(Errno::INTR) => continue,
            // There is nothing else to say.
            Ok(_) | Err(_) => true,
        };
    }
}
