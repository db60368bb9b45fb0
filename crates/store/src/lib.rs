//! The embedded home: a watched folder of manifests, and a database that remembers what was last good and who was first.
//!
//! The way of a change: [`watch`] notices it, [`home`] reads the file again and decides what it means, [`database`]
//! keeps it, and the facts go to the planner.

mod addresses;
pub mod agents;
pub mod database;
pub mod folder;
mod held;
pub mod home;
mod hub;
pub mod memory;
mod parallel;
mod ports;
pub mod seal;
pub mod watch;

pub use database::{Database, DatabaseError, Record};
pub use home::{FolderError, Home, RefusedFile, Update};
pub use memory::Memory;
pub use ports::Resolver;
pub use seal::SealKey;
