//! API servers are real, separate, and gone with their test.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use testbed::{ApiServer, KubectlError};

#[test]
fn two_servers_at_once_are_two_clusters() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let servers = ApiServer::start_many(&kubernetes, 2).unwrap();
    let [east, west] = servers.as_slice() else { panic!("as many as were asked for") };
    assert_ne!(east.address(), west.address());

    east.kubectl_apply("{apiVersion: v1, kind: Namespace, metadata: {name: only-east}}").unwrap();
    west.kubectl(&["create", "namespace", "only-west"]).unwrap();

    east.kubectl(&["get", "namespace", "only-east"]).unwrap();
    west.kubectl(&["get", "namespace", "only-west"]).unwrap();
    assert_not_found(east, "only-west");
    assert_not_found(west, "only-east");
}

fn assert_not_found(server: &ApiServer, namespace: &str) {
    match server.kubectl(&["get", "namespace", namespace]) {
        Err(KubectlError::Refused { stderr, .. }) => assert!(stderr.contains("NotFound"), "{stderr}"),
        other => panic!("{namespace} should not exist here, but: {other:?}"),
    }
}

#[test]
fn a_copied_kubeconfig_is_all_a_client_needs() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let server = ApiServer::start(&kubernetes).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("kubeconfig");
    std::fs::write(&copy, server.kubeconfig()).unwrap();

    assert_eq!(std::fs::read_to_string(server.kubeconfig_path()).unwrap(), server.kubeconfig());
    assert!(!server.kubeconfig().contains("insecure"), "{}", server.kubeconfig());
    let copy = copy.to_str().unwrap();
    let namespaces = server.kubectl(&["get", "namespaces", "--output=name", "--kubeconfig", copy]).unwrap();
    assert!(namespaces.lines().any(|line| line == "namespace/default"), "{namespaces}");
}

#[test]
fn a_panicking_test_leaves_no_process_and_no_folder() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let (report, started) = mpsc::channel();
    let test = thread::spawn(move || {
        let server = ApiServer::start(&kubernetes).unwrap();
        report.send((server.process_ids(), server.work_dir().to_owned())).unwrap();
        panic!("on purpose");
    });
    let (processes, folder) = started.recv().unwrap();
    assert!(test.join().is_err());

    for id in processes {
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "process {id} is still there");
    }
    assert!(!folder.exists(), "{} is still there", folder.display());
}
