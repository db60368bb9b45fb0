//! Fleetgate's authoritative DNS server.
//!
//! A query goes [`listen`] → [`query`] → [`index`] and back; `request` and `response` know the wire. The planner's
//! [`model::Changes`] become the next [`Index`], which one writer publishes through an [`arc_swap::ArcSwap`]; readers
//! never wait for it and keep the one they have until their answer is written.

pub mod cookie;
pub mod index;
pub mod limit;
pub mod listen;
pub mod metrics;
mod name;
mod pages;
pub mod query;
pub mod recent;
mod request;
mod response;
pub mod settings;
pub mod steer;
mod subnet;
mod tree;

#[cfg(test)]
#[path = "../tests/records/mod.rs"]
mod records;

pub use cookie::CookieKeys;
pub use index::Index;
pub use limit::RateLimit;
pub use listen::{BindError, Listeners, Serving};
pub use metrics::Metrics;
pub use query::{Client, Kind, Outcome, Transport, answer, explain};
pub use recent::{Recent, RecentQuery};
pub use settings::Settings;
pub use steer::{Chosen, ChosenMember, Guides};
