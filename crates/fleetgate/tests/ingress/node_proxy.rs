//! A real HAProxy on the nodes: it says in a TLV which cluster they belong to.

use crate::fixture::{IN_CLUSTER_NAME, cluster_with_id, node_proxy};
use crate::server::{BASE, Fleet, ask_over_tls, connect};
use crate::tls_backend::TlsBackend;

const EAST: &str = "4c5d6e7f-0a1b-4c2d-8e3f-5a6b7c8d9e0f";
const WEST: &str = "west";

#[test]
fn tls_through_haproxy_reaches_the_cluster_of_its_nodes() {
    let Some(haproxy) = testbed::haproxy() else { return };
    // Inside, all clusters call their API server the same: nothing but the TLV tells them apart.
    let east = TlsBackend::start("east", IN_CLUSTER_NAME);
    let west = TlsBackend::start("west", IN_CLUSTER_NAME);
    let fleet = Fleet::new(&[
        ("base.yaml", BASE),
        ("c1.yaml", &cluster_with_id("c1", EAST, east.address)),
        ("c2.yaml", &cluster_with_id("c2", WEST, west.address)),
    ]);
    let server = fleet.serve();
    let nodes = node_proxy(&haproxy, server.apiserver, [EAST, WEST, "nobody"]);
    let [from_east, from_west, from_nobody] = nodes.addresses();

    for _ in 0..10 {
        for (address, backend, name) in [(from_east, &east, "east"), (from_west, &west, "west")] {
            let answer = ask_over_tls(connect(address), &backend.authority(), IN_CLUSTER_NAME).unwrap();
            assert!(answer.ends_with(name), "{answer}");
        }
    }
    assert_eq!(server.established("apiserver"), 20);

    let mixed_up = ask_over_tls(connect(from_east), &west.authority(), IN_CLUSTER_NAME).unwrap_err();
    assert!(mixed_up.to_string().contains("invalid peer certificate"), "{mixed_up}");
    ask_over_tls(connect(from_nobody), &east.authority(), IN_CLUSTER_NAME).unwrap_err();
    assert_eq!(server.outcomes("apiserver", "UnknownClusterId"), 1);
    server.terminate();
}
