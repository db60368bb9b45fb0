//! The way into tenant clusters: both ends of the link that an agent dials to the hub.
//!
//! On a link the hub is the client of HTTP/2 and the agent its server, so that streams begin at the hub although the
//! connection begins inside. `CONNECT` is a stream of TCP (RFC 9113 8.5), `connect-udp` a datagram and its answer
//! (RFC 9298). A link belongs to the cluster that its certificate speaks for: nothing that is sent on it says for whom it is.
//!
//! [`Hub`] is what others use: all links of a process by cluster. [`Line`] is one link from the hub's end, [`server`] from the
//! agent's, and [`inside`] what an agent does there with what it is asked for.

mod alive;
pub mod capsule;
mod carry;
mod hub;
mod identity;
pub mod inside;
mod line;
mod metrics;
mod refused;
pub mod relay;
pub mod server;
mod stream;
mod target;
mod wire;

pub use carry::carry;
pub use hub::{Answer, Hub, LinkView, MAX_LINKS_PER_CLUSTER, Relay};
pub use identity::{Identity, Role};
pub use line::Line;
pub use metrics::Metrics;
pub use refused::Refused;
pub use stream::Stream;
pub use target::{Host, Target, TargetError};
pub use wire::{ALPN, DIAL_WITHIN, Greeting, Hello, tune};
