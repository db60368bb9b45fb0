//! The shared ingress as its users meet it: the real binary between a real HAProxy, real API servers and kubectl.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod agent;
mod credentials;
mod fixture;
mod kubectl;
mod node_proxy;
mod peers;
#[path = "../standalone/server.rs"]
#[expect(dead_code, reason = "shared with the tests of `standalone`, which use all of it")]
mod server;
mod slow_peers;
mod tls_backend;
mod watch;
mod wire;
