//! Fleetgate's HTTP interfaces: health, metrics and the objects with their status, on `--admin`.

pub mod access;
pub mod listen;
pub mod objects;
pub mod state;

pub use listen::{Admin, BindError};
pub use state::{FolderState, State};
