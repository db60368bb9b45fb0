//! What the processes of a hub tell each other every second: gateways and DNS what they count and see of members, controllers that
//! follow what agents reported to them; and the leader what follows from all of it. From one to the other, never through the hub.
//!
//! The leader listens ([`Door`]) and says in its Lease where and by which certificate ([`Meeting`]). The others follow that Lease and
//! speak to whoever it names ([`Link`]): one request over TLS 1.3, whose certificate is the one that the Lease names, with the token
//! of their service account. Both bodies are lines of JSON ([`wire`]), one a second. Nobody waits for it: without, each goes by its
//! own eyes.
//!
//! In the same lines they say who carries streams into which clusters ([`Replica`]), and at the same door the leader answers
//! questions of theirs ([`Desk`], [`Asks`]).

mod ask;
mod bearer;
mod certificate;
mod connect;
mod desk;
mod lines;
mod link;
mod listen;
mod meeting;
mod metrics;
mod refusal;
mod replicas;
mod review;
mod stream;
pub mod wire;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use model::ObjectName;
use model::overflow::{Sighting, Tables};
use tokio::sync::watch;

pub use ask::{AskError, Asks};
pub use bearer::Bearer;
pub use certificate::{Identity, IdentityError};
pub use desk::{Answer, Desk, DeskError, MAX_ASKED, No};
pub use link::Link;
pub use listen::{Door, Listener, PeerView, Settings};
pub use meeting::{Fingerprint, Meeting, NoFingerprint, follow};
pub use metrics::Metrics;
pub use replicas::{MAX_LINKED, Replica, Replicas};
pub use wire::ClusterReports;

/// The number is that of the lines' language: who speaks another finds nothing here, and goes by its own eyes.
const PATH: &str = "/v1/peers";
/// Who comes: the name of an edge or controller, and what it does.
const EDGE: &str = "fleetgate-edge";
const ROLE: &str = "fleetgate-role";
/// From one line to the next, in either direction. One is sent every second.
const SILENCE: Duration = Duration::from_secs(15);
/// Some ten thousand entries with a few members each.
const MAX_LINE: usize = 8 << 20;
/// As many as the desk has room for.
const MAX_PEERS: usize = model::overflow::desk::MAX_EDGES;

/// What a process does on its hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Controller,
    Dns,
    Gateway,
    /// Everything in one.
    All,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Dns => "dns",
            Self::Gateway => "gateway",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a role is controller, dns, gateway or all")]
pub struct NoRole;

impl FromStr for Role {
    type Err = NoRole;

    fn from_str(text: &str) -> Result<Self, NoRole> {
        let all = [Self::Controller, Self::Dns, Self::Gateway, Self::All];
        all.into_iter().find(|role| role.as_str() == text).ok_or(NoRole)
    }
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// As an edge, where it is one.
    pub name: ObjectName,
    pub role: Role,
}

/// The leader's side of what is said.
pub trait Hears: Send + Sync + 'static {
    fn see(&self, edge: &ObjectName, sighting: Sighting);

    /// What agents said to a controller that follows.
    fn report(&self, reports: Vec<ClusterReports>);

    /// What everybody is told, whenever it is another.
    fn tables(&self) -> watch::Receiver<Arc<Tables>>;
}

/// Everybody else's. Neither may take long.
pub trait Speaks: Send + Sync + 'static {
    /// What is seen here, where somebody looks.
    fn sighting(&self) -> Option<Sighting>;

    /// What agents said here since this was last asked.
    fn reports(&self) -> Vec<ClusterReports>;

    fn take(&self, tables: Tables);

    /// What this process carries, or that it asks others to; none where it does neither.
    fn replica(&self) -> Option<Replica> {
        None
    }

    /// Who carries what, as the leader has heard.
    fn take_replicas(&self, _: Replicas) {}
}
