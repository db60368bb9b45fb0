//! Fleetgate's HTTP interfaces: health, metrics, the objects with their status, and where connections and queries would
//! go, on `--admin`.

pub mod access;
mod explain;
pub mod listen;
pub mod objects;
pub mod state;

pub use listen::{Admin, BindError};
pub use state::{FolderState, State};
