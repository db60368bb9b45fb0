//! The dashboard of the real binary, walked by a real browser.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod browser;
mod fleet;
mod looks;
mod size;
mod walk;
