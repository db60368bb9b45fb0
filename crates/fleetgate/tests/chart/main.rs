//! The Helm chart: rendered by the real Helm, taken by a real API server, with no more rights than `docs/install.md` says.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod helm;
mod hub;
mod rendering;
mod rights;
mod roles;
mod standing;
