//! The HTTP doors: one address for services that run in many clusters.
//!
//! [`listen`] takes connections, `connection` has one of them, `request` decides about one request and `upstream` has the way to
//! a member. What is stripped, set and refused are pure functions ([`head`], [`headers`], [`authority`]). Nothing here knows where the
//! table comes from.

pub mod authority;
mod body;
mod certificates;
pub mod choice;
mod connection;
mod decision;
mod exchange;
pub mod explain;
mod guard;
pub mod head;
pub mod headers;
mod health;
pub mod inward;
pub mod lean;
pub mod listen;
pub mod metrics;
mod openings;
mod overflow;
mod prefixed;
pub mod refusal;
mod request;
pub mod settings;
mod tunnel;
mod upstream;

pub use explain::Insight;
pub use inward::Inward;
pub use listen::{Desk, DoorKind, Doors, Given, Running, StartError, bind, start};
pub use metrics::Metrics;
pub use overflow::Sights;
pub use refusal::Refusal;
pub use settings::{Limits, Outer, OuterHeader, Settings, Timeouts};
