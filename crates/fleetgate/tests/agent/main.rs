//! The agents of a tenant cluster: the real binary at both ends, a real API server, and the real ExternalDNS.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod external_dns;
mod fixture;
mod inward;
mod load;
mod overflow;
mod sync;
