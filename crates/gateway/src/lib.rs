//! The shared front door: one address through which every control plane of the fleet is reached.
//!
//! [`listen`] accepts, `connection` decides and `relay` carries. The readers of what a connection opens with
//! ([`proxy_header`], [`client_hello`]) do no I/O. Nothing here terminates TLS, and nothing here knows where the
//! snapshot comes from.

pub mod address;
pub mod client_hello;
mod connection;
pub mod listen;
pub mod metrics;
pub mod proxy_header;
pub mod refusal;
mod relay;

pub use address::{ClientAddr, PeerAddr};
pub use connection::Timeouts;
pub use listen::{BindError, Door, DoorKind};
pub use metrics::Metrics;
pub use refusal::Refusal;
