//! The way into clusters that have no address outside: somebody else carries one end of a pair of sockets there.
//!
//! Nothing here knows of the tunnel. The other end of the pair is given away with the cluster, the target and a deadline; the
//! first octet that comes back says whether there is a connection, and what follows is the stream. So the loop of a thread waits
//! for it as it waits for any other socket, and is as little held up by it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use model::ClusterName;
use model::inside::{Denied, InnerTarget};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

/// A connection for somebody to carry into a cluster.
#[derive(Debug)]
pub struct Inbound {
    pub cluster: ClusterName,
    pub target: InnerTarget,
    /// After so long nobody waits any more.
    pub within: Duration,
    /// Does not block. To be answered with one octet first: 0 where there is a connection, or what [`Denied::octet`] says. Each
    /// direction ends by itself; dropping it ends both.
    pub stream: UnixStream,
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

    /// Begins a connection and does not wait for it.
    pub(crate) fn begin(
        &self,
        cluster: &ClusterName,
        target: &InnerTarget,
        within: Duration,
    ) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let stream = UnixStream::from(theirs);
        (self.carry)(Inbound { cluster: cluster.clone(), target: target.clone(), within, stream });
        Ok(ours)
    }
}

impl fmt::Debug for Inward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inward")
    }
}

/// What became of it; `None` as long as nobody has said so. No octet of the stream is read.
pub(crate) fn heard(socket: &OwnedFd) -> Option<Result<(), Denied>> {
    let mut octet = [0];
    loop {
        return match recv(socket, &mut octet, RecvFlags::empty()) {
            Ok((1.., _)) => Some(Denied::read(octet[0])),
            Err(Errno::AGAIN) => None,
            Err(Errno::INTR) => continue,
            // Who had it is gone without a word.
            Ok((0, _)) | Err(_) => Some(Err(Denied::LinkLost)),
        };
    }
}
