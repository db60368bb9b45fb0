//! Into clusters: two tenants whose networks have the same addresses, their control planes beside the hub, and between them
//! the real binary at every end. Network namespaces are the hosts, the cables between them can be cut.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod control_planes;
mod cut;
mod fixture;
mod refusals;
mod sidecar;
mod tenant;
