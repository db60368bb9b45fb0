//! Who is not the admin has only the rights that were granted, and only as long as the token lasts.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use testbed::{ApiServer, KubectlError};

/// The server looks at a token it knows every 10 seconds; the rest is for a machine that is busy compiling.
const PATIENCE: Duration = Duration::from_mins(1);

const READER: &str = "\
{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
- {kind: Group, name: readers, apiGroup: rbac.authorization.k8s.io}
";

/// Runs kubectl with this kubeconfig instead of the admin's.
fn kubectl_with(server: &ApiServer, kubeconfig: &str, args: &[&str]) -> Result<String, KubectlError> {
    let path = server.work_dir().join("other-kubeconfig");
    fs::write(&path, kubeconfig).unwrap();
    server.kubectl(&[&["--kubeconfig", path.to_str().unwrap()], args].concat())
}

fn assert_reads_and_nothing_more(server: &ApiServer, kubeconfig: &str) {
    kubectl_with(server, kubeconfig, &["get", "configmaps"]).unwrap();
    match kubectl_with(server, kubeconfig, &["create", "configmap", "mine"]) {
        Err(KubectlError::Refused { stderr, .. }) => assert!(stderr.contains("forbidden"), "{stderr}"),
        other => panic!("it should be forbidden, but: {other:?}"),
    }
}

#[test]
fn others_than_the_admin_have_the_rights_that_were_granted() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let server = ApiServer::start(&kubernetes).unwrap();
    server.kubectl_apply(READER).unwrap();

    assert_reads_and_nothing_more(&server, &server.kubeconfig_for_service_account("default", "reader").unwrap());
    assert_reads_and_nothing_more(&server, &server.kubeconfig_as("jane", &["readers"]));
    let token = server.service_account_token("default", "reader", Duration::from_mins(10)).unwrap();
    assert_reads_and_nothing_more(&server, &server.kubeconfig_with_token(&token));
}

#[test]
fn a_token_ends_when_it_should() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let server = ApiServer::start(&kubernetes).unwrap();
    server.kubectl_apply(READER).unwrap();
    let token_for = |taken_for| {
        let token = server.expiring_token("default", "reader", taken_for).unwrap();
        server.kubeconfig_with_token(&token)
    };
    assert_unauthorized(kubectl_with(&server, &token_for(Duration::ZERO), &["get", "configmaps"]));
    assert_reads_and_nothing_more(&server, &token_for(PATIENCE));

    let short = token_for(Duration::from_secs(2));
    let deadline = Instant::now() + PATIENCE;
    let refused = loop {
        let answer = kubectl_with(&server, &short, &["get", "configmaps"]);
        if answer.is_err() {
            break answer;
        }
        assert!(Instant::now() < deadline, "the token is taken for {PATIENCE:?}");
        thread::sleep(Duration::from_millis(200));
    };
    assert_unauthorized(refused);
}

fn assert_unauthorized(answer: Result<String, KubectlError>) {
    match answer {
        Err(KubectlError::Refused { stderr, .. }) => assert!(stderr.contains("nauthorized"), "{stderr}"),
        other => panic!("it should be refused, but: {other:?}"),
    }
}
