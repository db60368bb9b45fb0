//! The agents' door on a hub: several processes have it, and Secrets and objects of the hub are all that they share.

#[path = "../agents/client.rs"]
pub(crate) mod client;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use testbed::ApiServer;

use crate::fixture::{Server, ZONE, eventually, fleetgate, given_cluster, hub};
use client::Bootstrap;

/// With the agents' door at an address.
pub(crate) fn controller(hub: &ApiServer, admin: &Path, agents: &str) -> Server {
    let arguments = ["controller", "--agents", agents, "--admin-credential", admin.to_str().unwrap()];
    Server::start_informed(hub.kubeconfig_path(), &arguments)
}

pub(crate) fn credential(server: &Server, admin: &Path, arguments: &[&str]) -> Output {
    let mut command = fleetgate();
    command.arg("credential").args(arguments).args(["--admin", &server.address("admin").to_string()]);
    command.arg("--admin-credential").arg(admin).output().unwrap()
}

/// A file of it.
pub(crate) fn admin_credential(folder: &Path) -> PathBuf {
    let path = folder.join("admin");
    std::fs::write(&path, "a-secret-of-at-least-32-characters").unwrap();
    path
}

/// As soon as the process has its authority and knows the cluster.
pub(crate) fn issue(server: &Server, admin: &Path, cluster: &str) -> Bootstrap {
    let issued = eventually("a credential is issued", || {
        let output = credential(server, admin, &["issue", cluster]);
        output.status.success().then_some(output.stdout)
    });
    Bootstrap::read(&issued, server.address("agents"))
}

pub(crate) fn claim(key: &str, name: &str) -> Value {
    let endpoint = json!({ "dnsName": name, "recordType": "A", "targets": ["198.51.100.1"] });
    json!({ "set": [{ "key": key, "endpoints": [endpoint] }] })
}

/// What tenants claim.
pub(crate) fn objects(hub: &ApiServer) -> Vec<Value> {
    let list = hub.kubectl(&["get", "dnsendpoints.externaldns.k8s.io", "-n", "acme", "-o", "json"]).unwrap();
    let mut list: Value = serde_json::from_str(&list).unwrap();
    list["items"].as_array_mut().map(std::mem::take).unwrap()
}

#[test]
fn processes_share_the_authority_and_what_agents_say() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let admin = admin_credential(folder.path());

    // At once, so that both make an authority.
    let [one, two] = std::thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(|| controller(&hub, &admin, "127.0.0.1:0"))).map(|thread| thread.join().unwrap())
    });
    let issued = issue(&one, &admin, "c1");
    let elsewhere = Bootstrap { door: two.address("agents"), ..issued.clone() };
    let shown = elsewhere.enrolled();
    let mut at_one = issued.connect(Some(&shown)).unwrap();
    let mut at_two = elsewhere.connect(Some(&shown)).unwrap();
    for agent in [&mut at_one, &mut at_two] {
        let answer = agent.get("/v1/cluster");
        assert_eq!(answer.json()["cluster"], "c1", "either trusts what the other signed");
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    }
    let types = hub.kubectl(&["get", "secrets", "-n", "fleetgate-system", "-o", "jsonpath={.items[*].type}"]).unwrap();
    let types: Vec<&str> = types.split_whitespace().collect();
    assert_eq!(types, ["fleetgate.dev/agent-credential", "fleetgate.dev/agents-authority"], "one of each");
    let secrets = hub
        .kubectl(&[
            "get",
            "secrets",
            "-n",
            "fleetgate-system",
            "-o",
            "go-template={{range .items}}{{range .data}}{{. | base64decode}}{{end}}{{end}}",
        ])
        .unwrap();
    assert!(!secrets.contains(issued.token.rsplit('.').next().unwrap()), "only a digest is kept");

    let answer = at_one.post("/v1/claims", &claim("sync/default/web", "web.c1.fleet.example"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["verdicts"][0]["verdicts"][0]["published"], true, "{}", answer.text);
    let [object] = <[Value; 1]>::try_from(objects(&hub)).unwrap();
    assert_eq!(object["metadata"]["labels"]["fleetgate.dev/cluster"], "c1");
    assert_eq!(object["metadata"]["annotations"]["fleetgate.dev/agent-key"], "sync/default/web");
    assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "Cluster", "it goes with its cluster");
    assert_eq!(object["spec"]["endpoints"][0]["targets"], json!(["198.51.100.1"]));
    assert_eq!(at_two.get("/v1/claims").json()["claims"][0]["key"], "sync/default/web");
    let answer = at_two.post("/v1/claims", &json!({ "delete": ["sync/default/web", "never/there"] }));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(objects(&hub), [] as [Value; 0]);

    let other = issue(&two, &admin, "c1");
    let mut untouched = other.agent();
    assert!(credential(&two, &admin, &["revoke", issued.id()]).status.success());
    assert_eq!(at_two.get("/v1/cluster").problem(), (403, "Revoked".into()), "at once where it was revoked");
    eventually("the other process hears of it", || (at_one.get("/v1/cluster").status == 403).then_some(()));
    assert_eq!(issued.enroll().0.status, 401);
    assert_eq!(untouched.get("/v1/cluster").status, 200);

    hub.kubectl(&["delete", "clusters.fleetgate.dev", "c1"]).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    let gone = eventually("the cluster is another one", || {
        Some(untouched.get("/v1/cluster")).filter(|answer| answer.status == 403)
    });
    assert_eq!(gone.code(), "ClusterGone");
    assert_eq!(other.enroll().0.status, 403, "and nobody enrols for the old one");
}
