//! What the tests of this folder set up: manifests with an id, the proxy of a node, and the counters of the doors.

use std::net::SocketAddr;

use testbed::{HAProxy, RunningHAProxy};

use crate::server::{Server, cluster};

/// What pods call their API server, whichever cluster they are in.
pub(crate) const IN_CLUSTER_NAME: &str = "kubernetes.default.svc";

/// The server name that leads to a cluster of the zone in `server::BASE`.
pub(crate) fn api_name(cluster: &str) -> String {
    format!("api.{cluster}.fleet.example")
}

pub(crate) fn cluster_with_id(name: &str, id: &str, api_server: SocketAddr) -> String {
    cluster(name, api_server, 1).replace("  tenant: acme\n", &format!("  tenant: acme\n  clusterID: \"{id}\"\n"))
}

/// HAProxy as the nodes of some clusters run it: one address for each id, which it puts in front of every connection.
pub(crate) fn node_proxy<const N: usize>(
    haproxy: &HAProxy,
    apiserver: SocketAddr,
    ids: [&str; N],
) -> RunningHAProxy<N> {
    let listen = |(address, id): (&SocketAddr, &str)| {
        let server = format!("server hub {apiserver} send-proxy-v2 set-proxy-v2-tlv-fmt(0x20) \"{id}\"");
        format!("listen {id}\n bind {address}\n {server}\n")
    };
    let configuration = |addresses: [SocketAddr; N]| {
        let defaults = "defaults\n mode tcp\n timeout connect 1m\n timeout client 1h\n timeout server 1h\n";
        std::iter::once(defaults.to_owned()).chain(addresses.iter().zip(ids).map(listen)).collect()
    };
    haproxy.start(configuration).unwrap()
}

impl Server {
    /// The sum of a metric over all of its series whose labels contain `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &str) -> u64 {
        let (status, text) = self.http("/metrics", &self.admin.to_string());
        assert_eq!(status, 200, "{text}");
        let values = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let rest = series.strip_prefix(name)?;
            ((rest.is_empty() || rest.starts_with('{')) && rest.contains(labels)).then_some(value)
        });
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    }

    /// How many connections a door has let through.
    pub(crate) fn established(&self, door: &str) -> u64 {
        self.outcomes(door, "Established")
    }

    /// How many connections of a door came to this.
    pub(crate) fn outcomes(&self, door: &str, outcome: &str) -> u64 {
        let labels = format!("door=\"{door}\",outcome=\"{outcome}\"");
        self.metric("fleetgate_gateway_connections_total", &labels)
    }

    /// How many connections a door has met, whatever became of them.
    pub(crate) fn met(&self, door: &str) -> u64 {
        self.metric("fleetgate_gateway_connections_total", &format!("door=\"{door}\""))
    }
}
