//! The real binary on a folder, met by real clients.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod addresses;
mod admin;
mod agents;
mod api;
mod attacks;
mod bad_input;
mod brake;
mod command_line;
mod crash;
mod demo;
mod diff;
mod drain;
mod egress;
mod explain;
mod explain_requests;
mod federation;
mod hand_over;
mod live_changes;
mod load;
mod logs;
mod members;
mod metrics;
mod overflow;
mod refusals;
mod resolver;
mod routes;
mod server;
mod terminal;
mod tunnel;
mod zones;
