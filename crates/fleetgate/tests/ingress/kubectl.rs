//! A real kubectl reaches a real API server through both doors.

use std::net::SocketAddr;

use testbed::{ApiServer, KubectlError};

use crate::fixture::{IN_CLUSTER_NAME, api_name, node_proxy};
use crate::server::{BASE, Fleet, cluster};

/// kubectl as the admin of `whose`, sent to `address` and expecting a certificate for `name` there.
pub(crate) fn kubectl_at(
    whose: &ApiServer,
    address: SocketAddr,
    name: &str,
    arguments: &[&str],
) -> Result<String, KubectlError> {
    let server = format!("--server=https://{address}");
    let name = format!("--tls-server-name={name}");
    whose.kubectl(&[&[server.as_str(), &name], arguments].concat())
}

#[test]
fn kubectl_works_through_both_doors() {
    let (Some(kubernetes), Some(haproxy)) = (testbed::kubernetes(), testbed::haproxy()) else { return };
    let c1 = ApiServer::start_named(&kubernetes, &[&api_name("c1"), IN_CLUSTER_NAME]).unwrap();
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", c1.address(), 1))]);
    let server = fleet.serve();
    let nodes = node_proxy(&haproxy, server.apiserver, ["c1"]);
    let [node] = nodes.addresses();

    // From outside, by server name, as the cluster's users come.
    let from_outside = |arguments: &[&str]| kubectl_at(&c1, server.sni, &api_name("c1"), arguments);
    from_outside(&["create", "configmap", "from-outside"]).unwrap();
    assert!(server.established("sni") >= 1);
    assert_eq!(server.established("apiserver"), 0);

    // From a node, by the node proxy's TLV, as its pods come.
    let from_node = |arguments: &[&str]| kubectl_at(&c1, node, IN_CLUSTER_NAME, arguments);
    assert_eq!(from_node(&["get", "configmap", "from-outside", "--output=name"]).unwrap(), "configmap/from-outside\n");
    from_node(&["create", "configmap", "from-node"]).unwrap();
    assert!(server.established("apiserver") >= 1);

    // It was no other API server.
    c1.kubectl(&["get", "configmap", "from-outside", "from-node"]).unwrap();
    server.terminate();
}
