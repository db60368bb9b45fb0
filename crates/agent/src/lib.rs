//! What runs in a tenant cluster: the node proxy, every node's own way to its API server through the hub's shared door;
//! and who publishes the cluster's records through the agents' door ([`link`]), from `DNSEndpoint`s ([`sync`]) or as a
//! provider of ExternalDNS ([`external_dns`]); and who reports the load of its Services there ([`load`]).
//! And the way in: links to the hub over which it reaches what is inside the cluster ([`tunnel`]).

mod claims;
pub mod external_dns;
pub mod health;
mod http;
pub mod link;
pub mod load;
pub mod node_proxy;
mod place;
pub mod sync;
pub mod tunnel;

pub use link::{Link, LinkError, LinkMetrics, LinkOptions};
pub use node_proxy::{NodeProxy, NodeProxyError, NodeProxyOptions};
pub use place::{Place, PlaceError};
