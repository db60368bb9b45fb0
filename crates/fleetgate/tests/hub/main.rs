//! The binary on a real hub: real API servers for the hub and for tenant clusters, real `kubectl`, real `dig`.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod addresses;
mod admission;
mod agents;
mod bad_input;
mod brake;
mod disk;
mod drain;
mod external_dns;
mod fixture;
mod leaders;
mod nodes;
mod outage;
mod peers;
mod placing;
mod recovery;
mod resolver;
mod roles;
mod sync;
mod tunnel;
