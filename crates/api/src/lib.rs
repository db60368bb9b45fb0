//! Fleetgate's HTTP interfaces: health, metrics, the objects with their status, and where connections and queries would
//! go, on `--admin`; the first two for other machines too, on `--metrics`.

pub mod access;
mod explain;
pub mod listen;
pub mod objects;
pub mod state;

pub use listen::{BindError, Interface, Listener};
pub use state::{FolderState, State};
