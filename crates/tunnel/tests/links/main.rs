//! Both ends of links over real TLS on loopback.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod bad_frames;
mod both_ends;
mod inside;
mod liveness;
mod load;
mod streams;
