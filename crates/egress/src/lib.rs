//! The way from a control plane into its cluster: `CONNECT host:port` (RFC 9110 9.3.6) at a door of the hub's, which leads into the tunnel.
//!
//! kube-apiserver speaks it by itself (`EgressSelectorConfiguration`), others by `HTTPS_PROXY`, and what speaks neither is
//! redirected to a side-car. Whose cluster is meant stands in the client's certificate and nowhere else, and the hub never
//! dials a target by itself: the agent inside the cluster does.

mod carry;
pub mod client;
pub mod config;
mod connection;
mod guests;
mod head;
mod listen;
mod metrics;
pub mod proxy;
mod refusal;
pub mod rules;
pub mod sidecar;
mod socket;
mod tls;

use std::pin::Pin;
use std::sync::Arc;

use rustls::ServerConfig;
use tunnel::Identity;

pub use head::parse_request;
pub use listen::{Settings, serve};
pub use metrics::Metrics;
pub use refusal::Refusal;
pub use tls::server_config;

/// What the door's certificate is for; clients ask for it by this name, wherever the door is.
pub const SERVER_NAME: &str = "egress.fleetgate";

/// Who knows the credentials, and with which keys the door meets them.
pub trait Gate: Send + Sync + 'static {
    /// As they are at this moment; none before there is an authority. Certificates of clients are demanded and verified.
    fn tls(&self) -> Option<Arc<ServerConfig>>;

    /// Whether somebody who showed a good certificate, valid until `expires` in Unix seconds, is still let in.
    fn admit<'a>(&'a self, identity: &'a Identity, expires: u64) -> Admitting<'a>;
}

pub type Admitting<'a> = Pin<Box<dyn Future<Output = Result<(), NotAdmitted>> + Send + 'a>>;

/// Why somebody is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAdmitted {
    /// For good: revoked, expired, or its cluster is gone. Also ends what is open.
    Out { code: &'static str, reason: String },
    /// Nobody knows at the moment. What is open goes on.
    Unavailable,
}
