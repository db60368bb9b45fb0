//! What runs in a tenant cluster. So far the node proxy: every node's own way to its API server, through the hub's
//! shared door.

pub mod node_proxy;
mod place;

pub use node_proxy::{NodeProxy, NodeProxyError, NodeProxyOptions};
pub use place::{Place, PlaceError};
