//! The selector is no credential: whoever claims another cluster's is turned away by that cluster's API server.

use std::thread;

use testbed::{ApiServer, KubectlError};

use crate::fixture::{IN_CLUSTER_NAME, api_name, node_proxy};
use crate::kubectl::kubectl_at;
use crate::server::{BASE, Fleet, cluster};

const QUESTION: [&str; 3] = ["get", "--raw", "/api/v1/namespaces"];

#[test]
fn credentials_of_one_cluster_are_worth_nothing_at_another() {
    let (Some(kubernetes), Some(haproxy)) = (testbed::kubernetes(), testbed::haproxy()) else { return };
    let start = |name| ApiServer::start_named(&kubernetes, &[&api_name(name), IN_CLUSTER_NAME]).unwrap();
    let (a, b) = thread::scope(|scope| {
        let a = scope.spawn(|| start("a"));
        let b = start("b");
        (a.join().unwrap(), b)
    });
    let fleet = Fleet::new(&[
        ("base.yaml", BASE),
        ("a.yaml", &cluster("a", a.address(), 1)),
        ("b.yaml", &cluster("b", b.address(), 2)),
    ]);
    let server = fleet.serve();
    let nodes = node_proxy(&haproxy, server.apiserver, ["a", "b"]);
    let [with_id_a, with_id_b] = nodes.addresses();

    // Each with its own: the refusals below are not for another reason.
    kubectl_at(&a, with_id_a, IN_CLUSTER_NAME, &QUESTION).unwrap();
    kubectl_at(&b, with_id_b, IN_CLUSTER_NAME, &QUESTION).unwrap();
    kubectl_at(&b, server.sni, &api_name("b"), &QUESTION).unwrap();

    let authority_of_b = format!("--certificate-authority={}", b.authority_path().display());
    let trusting_b = [[authority_of_b.as_str()].as_slice(), &QUESTION].concat();
    for (door, address, name) in [("apiserver", with_id_b, IN_CLUSTER_NAME), ("sni", server.sni, &api_name("b"))] {
        // a's client notices that this is not a ...
        let before = server.established(door);
        assert_refused(kubectl_at(&a, address, name, &QUESTION), "certificate signed by unknown authority");
        // ... and should it not care, b does not know a's token.
        assert_refused(kubectl_at(&a, address, name, &trusting_b), "You must be logged in");
        // It was b that said so, both times: the gateway let them pass.
        assert!(server.established(door) >= before + 2, "{door}");
    }
    server.terminate();
}

fn assert_refused(outcome: Result<String, KubectlError>, because: &str) {
    match outcome {
        Err(KubectlError::Refused { stderr, .. }) => assert!(stderr.contains(because), "{stderr}"),
        other => panic!("it should be refused with {because:?}: {other:?}"),
    }
}
