//! The shared front door: one address through which every control plane of the fleet is reached.
//!
//! [`listen`] opens the doors, `worker` has a thread's share of the connections, `connection` decides about one and
//! `relay` carries it. The readers of what a connection opens with
//! ([`proxy_header`], [`client_hello`]) do no I/O. What goes through the tunnel leaves by [`inward`]. Nothing here terminates TLS, and nothing here knows where the
//! snapshot comes from.

pub mod address;
pub mod balance;
pub mod client_hello;
mod connection;
mod deadlines;
mod decision;
mod doorway;
pub mod explain;
pub mod health;
pub mod hub;
pub mod insight;
pub mod inward;
pub mod limits;
pub mod listen;
pub mod metrics;
pub mod outer_header;
mod pipes;
pub mod proof;
pub mod proxy_header;
mod readiness;
pub mod refusal;
mod relay;
mod token;
mod upstream;
mod worker;

pub use address::{ClientAddr, PeerAddr};
pub use hub::Hub;
pub use insight::Insight;
pub use inward::{Counts, Inbound, Inward};
pub use listen::{BindError, Door, DoorKind, Serving, Settings, Terminate, Terminated, Timeouts, serve, serve_node};
pub use metrics::Metrics;
pub use refusal::Refusal;
