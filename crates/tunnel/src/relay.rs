//! Between the processes of a hub: whoever has no link to a cluster asks one that has.
//!
//! Each process has a certificate of its own making and says its fingerprint where all hear it; who is not among those is
//! nobody, at either end ([`Keys`]). What is said is what is said on a link, with the cluster's name beside it. [`Door`] takes
//! what others ask for, and leads it to links of its own process alone: nothing is relayed twice. [`Table`] has the others.

mod door;
mod table;
mod tls;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use model::ClusterName;
use tokio::sync::watch;

pub use door::Door;
pub use table::Table;
pub use tls::{Keys, KeysError};

/// The SHA-256 of a certificate.
pub type Fingerprint = [u8; 32];

/// Those who may relay.
pub type Known = watch::Receiver<Arc<HashSet<Fingerprint>>>;

/// What a connection to a relay door is for.
const ALPN: &[u8] = b"fleetgate-relay/1";

/// Another process, as everybody is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its relay door.
    pub address: SocketAddr,
    pub certificate: Fingerprint,
    /// Those that are linked to it.
    pub clusters: Vec<ClusterName>,
}

#[cfg(test)]
mod tests;
