//! Where control planes meet the resolver: every Cluster has a port there, and a Service on the hub that leads to it.
//!
//! One resolver serves all control planes of a hub, and knows whose question it is by the port that it came to. The leader gives
//! each Cluster a port ([`ports`]), keeps a Service without a selector whose port 53 leads there, and behind it the addresses of
//! the resolver's pods ([`keep`]). `Cluster.status.resolver` has the port before anything leads to it, and the Service's address
//! once there is one: that is what pods of the control plane have as their name server.
//!
//! What is made is made with the first acceptance of a Cluster and stays as long as there is a Cluster: its address stands in
//! pods that run, and another one would not come into them.

mod keep;
mod metrics;
mod objects;
mod planes;
mod pods;
mod ports;
mod watch;

use model::ObjectName;
use model::resolver::Ports;

pub use keep::{Sides, keep};
pub use metrics::Metrics;
pub use objects::CLUSTER_LABEL;
pub(crate) use planes::slim;
pub use planes::{ControlPlane, ControlPlanes};
pub use pods::{ByAddress, follow_pods};

/// The owner of `.status.resolver` of Clusters, and of nothing else.
pub const FIELD_MANAGER: &str = "fleetgate-resolver";

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the Services of Clusters are that do not say where their control plane is: our own namespace.
    pub namespace: ObjectName,
    /// The headless Service of the resolver's pods: its namespace and its name.
    pub pods: (ObjectName, ObjectName),
    pub ports: Ports,
}
