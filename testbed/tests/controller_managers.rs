//! With a controller manager, Kubernetes tidies up by itself.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::thread;
use std::time::{Duration, Instant};
use testbed::ApiServer;

/// It takes a second or two; the rest is for a machine that is busy compiling.
const PATIENCE: Duration = Duration::from_mins(2);

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited for {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn owned_objects_and_namespaces_go_and_services_have_endpoint_slices() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let Some(controller_manager) = testbed::controller_manager() else { return };
    let server = ApiServer::start(&kubernetes).unwrap();
    let _controllers = controller_manager.start(&server).unwrap();

    server.kubectl(&["create", "configmap", "owner"]).unwrap();
    let uid = server.kubectl(&["get", "configmap", "owner", "--output=jsonpath={.metadata.uid}"]).unwrap();
    let owned = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: owned, namespace: default, \
         ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]}}}}"
    );
    server.kubectl_apply(&owned).unwrap();
    server.kubectl_apply(SERVICE).unwrap();
    server.kubectl(&["create", "namespace", "passing"]).unwrap();
    wait_until("a namespace has its service account", || {
        server.kubectl(&["get", "serviceaccount", "default", "--namespace=passing"]).is_ok()
    });
    wait_until("the service has endpoint slices", || {
        let label = "--selector=kubernetes.io/service-name=web";
        server.kubectl(&["get", "endpointslices", label, "--output=name"]).unwrap().contains("/web-")
    });

    server.kubectl(&["delete", "configmap", "owner"]).unwrap();
    server.kubectl(&["delete", "namespace", "passing", "--wait=false"]).unwrap();
    wait_until("what was owned is gone", || server.kubectl(&["get", "configmap", "owned"]).is_err());
    wait_until("the namespace is gone", || server.kubectl(&["get", "namespace", "passing"]).is_err());
}
