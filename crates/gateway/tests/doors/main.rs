//! The doors on loopback, with real sockets and real TLS on both sides.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod cluster_id;
mod explain;
mod fairness;
mod fleet;
mod inward;
mod keyed_selector;
mod lifecycle;
mod refusals;
mod server_name;
mod trusted_proxies;
