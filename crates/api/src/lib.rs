//! Fleetgate's HTTP interfaces: health, metrics, the objects with their status, and where connections and queries would
//! go, on `--admin`; the first two for other machines too, on `--metrics`. And the agents' door, on `--agents`.

pub mod access;
pub mod agents;
mod credentials;
mod dashboard;
mod drain;
mod explain;
mod extract;
pub mod history;
mod links;
pub mod listen;
mod load;
pub mod objects;
pub mod openapi;
pub mod orders;
mod overflow;
pub mod peers;
mod release;
mod resolver;
mod routes;
pub mod state;

pub use access::AdminCredential;
pub use explain::told;
pub use history::History;
pub use listen::{Interface, Listener};
pub use state::{Doors, FolderState, Meters, State};
