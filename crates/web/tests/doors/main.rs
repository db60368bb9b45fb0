//! The doors, with real sockets, real clients and backends that are none of ours.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod access;
mod backend;
mod downgrade;
mod fixture;
mod haproxy;
mod inward;
mod lean;
mod lifecycle;
mod members;
mod overflow;
mod requests;
mod slow;
mod smuggling;
mod streams;
mod tls;
