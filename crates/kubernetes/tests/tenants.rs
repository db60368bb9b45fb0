//! The nodes of real API servers reach the status of Clusters on another one.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kubernetes::kubeconfig::{Policy, SecretKey};
use kubernetes::tenants::{self, Access, FIELD_MANAGER, Last, Metrics, Settings, Subject, Wish};
use manifest::status::ClusterStatus;
use model::ClusterName;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testbed::{ApiServer, Kubernetes};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Generous: the machine may be busy with a compiler.
const WITHIN: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn nodes_reach_the_status_and_stay_while_a_cluster_is_away() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let [hub, east, west] = start(&kubernetes);
    let fleet = Fleet::on(hub, Duration::from_secs(1)).await;
    fleet.cluster("east");
    fleet.cluster("west");
    create_node(&east, "e1", "192.0.2.1");
    fleet.follow("east", Ok(east.kubeconfig())).await;
    fleet.follow("west", Ok(west.kubeconfig())).await;

    fleet.until("east", |status| nodes(status) == json!([["e1", ["192.0.2.1"], true]]) && watching(status)).await;
    // A cluster without nodes is one.
    fleet.until("west", |status| nodes(status) == json!([]) && watching(status)).await;

    create_node(&east, "e2", "192.0.2.2");
    let both = json!([["e1", ["192.0.2.1"], true], ["e2", ["192.0.2.2"], true]]);
    fleet.until("east", |status| nodes(status) == both).await;
    set_ready(&east, "e1", "False");
    fleet.until("east", |status| ready(status) == ["e2"]).await;
    east.kubectl(&["cordon", "e2"]).unwrap();
    fleet.until("east", |status| ready(status).is_empty()).await;
    set_ready(&east, "e1", "True");
    east.kubectl(&["uncordon", "e2"]).unwrap();
    fleet.until("east", |status| ready(status) == ["e1", "e2"]).await;
    east.kubectl(&["delete", "node", "e1"]).unwrap();
    let left = json!([["e2", ["192.0.2.2"], true]]);
    fleet.until("east", |status| nodes(status) == left).await;

    // One that hangs is away like one that is gone, and the others do not notice.
    signal(&east, "STOP");
    fleet.until("east", |status| reason(status) == "Unreachable").await;
    assert_eq!(nodes(&fleet.status("east").await), left);
    create_node(&west, "w1", "192.0.2.3");
    fleet.until("west", |status| ready(status) == ["w1"] && watching(status)).await;
    signal(&east, "CONT");
    let back = fleet.until("east", watching).await;
    assert_eq!(nodes(&back), left);

    drop(east);
    let away = fleet.until("east", |status| reason(status) == "Unreachable").await;
    assert_eq!(nodes(&away), left);
    assert!(message(&away).contains("key kubeconfig of Secret fleetgate-system/east"), "{away}");
    set_ready(&west, "w1", "Unknown");
    fleet.until("west", |status| ready(status).is_empty() && watching(status)).await;
    fleet.only_ours(&["east", "west"]).await;

    let metrics = fleet.metrics();
    assert!(metrics.contains("fleetgate_tenants_clusters_followed 2"), "{metrics}");
    assert!(metrics.contains("fleetgate_tenants_clusters_away 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_cluster_that_is_not_followed_any_more_nothing_is_said() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    // The hub is its own tenant here.
    let [hub] = start(&kubernetes);
    let kubeconfig = hub.kubeconfig().to_owned();
    let fleet = Fleet::on(hub, WITHIN).await;
    create_node(&fleet.hub, "n1", "192.0.2.1");
    fleet.cluster("c1");
    // Somebody else's stays.
    let other = json!({"status": {"readyNodes": 3, "conditions": [{
        "type": "Audited", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let patch =
        ["patch", "clusters.fleetgate.dev", "c1", "--subresource=status", "--type=merge", "-p", &other.to_string()];
    fleet.hub.kubectl(&patch).unwrap();
    for _ in 0..2 {
        fleet.follow("c1", Ok(&kubeconfig)).await;
        fleet.until("c1", |status| ready(status) == ["n1"] && watching(status)).await;
        let uid = fleet.object("c1").await["metadata"]["uid"].as_str().unwrap().into();
        fleet.wishes.send(Wish::Clear("c1".parse().unwrap(), uid)).unwrap();
        fleet.until("c1", |status| *status == other["status"]).await;
    }
    let metrics = fleet.metrics();
    assert!(metrics.contains("fleetgate_tenants_clusters_followed 0"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_kubeconfig_is_told_and_mended() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    // The hub is its own tenant here.
    let [hub] = start(&kubernetes);
    let good = hub.kubeconfig().to_owned();
    // Nobody is to be told of a slow machine.
    let fleet = Fleet::on(hub, WITHIN).await;
    create_node(&fleet.hub, "n1", "192.0.2.1");
    let node = json!([["n1", ["192.0.2.1"], true]]);
    let authority = good.lines().find(|line| line.contains("certificate-authority-data")).unwrap().trim().to_owned();
    let token = good.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap().to_owned();

    let changed = |from: &str, to: &str| {
        assert!(good.contains(from));
        good.replace(from, to)
    };
    let refused = [
        ("exec", changed("token:", "exec: {command: id}\n    token:"), "users[].user.exec"),
        ("auth-provider", changed("token:", "auth-provider: {name: gcp}\n    token:"), "users[].user.auth-provider"),
        ("files", changed(&authority, "certificate-authority: /etc/ca.crt"), "certificate-authority"),
        ("insecure", changed(&authority, "insecure-skip-tls-verify: true"), "insecure-skip-tls-verify"),
        ("proxy", changed(&authority, &format!("{authority}\n    proxy-url: http://10.0.0.1")), "proxy-url"),
        ("impersonation", changed("token:", "as: system:admin\n    token:"), "users[].user.as"),
        ("http", changed("https://", "http://"), "clusters[].cluster.server"),
        ("metadata", changed("https://127.0.0.1", "https://169.254.169.254"), "link-local"),
        ("broken", good.replace("users:", "users: ["), "line"),
        ("context", changed("current-context: testbed", "current-context: other"), "current-context"),
    ];
    for (name, kubeconfig, _) in &refused {
        fleet.cluster(name);
        fleet.follow(name, Ok(kubeconfig)).await;
    }
    for (name, _, expected) in &refused {
        let status = fleet.until(name, |status| reason(status) == "BadKubeconfig").await;
        assert!(message(&status).contains(expected), "{name}: {status}");
        assert!(message(&status).contains(&format!("key kubeconfig of Secret fleetgate-system/{name}")), "{status}");
        assert!(!status.to_string().contains(&token), "{name}");
    }

    // One cluster whose Secret is mended step by step; its status comes along, and its nodes stay once they were seen.
    fleet.cluster("c1");
    fleet.follow("c1", Err("Secret fleetgate-system/c1 does not exist; create it")).await;
    let status = fleet.until("c1", |status| reason(status) == "NoKubeconfig").await;
    assert_eq!(message(&status), "Secret fleetgate-system/c1 does not exist; create it");
    fleet.follow("c1", Ok(&good)).await;
    fleet.until("c1", |status| watching(status) && nodes(status) == node).await;
    fleet.follow("c1", Ok(&good.replace(&token, "not-the-token"))).await;
    let status = fleet.until("c1", |status| reason(status) == "Unauthorized").await;
    assert!(message(&status).contains("401") && !message(&status).contains("not-the-token"), "{status}");
    assert_eq!(nodes(&status), node);
    fleet.hub.kubectl(&["create", "serviceaccount", "nobody"]).unwrap();
    let nobody = fleet.hub.kubectl(&["create", "token", "nobody"]).unwrap();
    fleet.follow("c1", Ok(&good.replace(&token, nobody.trim()))).await;
    fleet.until("c1", |status| reason(status) == "Unauthorized" && message(status).contains("403")).await;
    let other = ApiServer::start(&kubernetes).unwrap();
    let other_authority =
        other.kubeconfig().lines().find(|line| line.contains("certificate-authority-data")).unwrap().trim();
    fleet.follow("c1", Ok(&good.replace(&authority, other_authority))).await;
    fleet.until("c1", |status| reason(status) == "Unreachable" && message(status).contains("certificate")).await;
    fleet.follow("c1", Ok(&good)).await;
    let status = fleet.until("c1", |status| watching(status) && nodes(status) == node).await;

    // Made anew under the same name, it is another Cluster: what was known of the old one is not written to it.
    fleet.hub.kubectl(&["delete", "clusters.fleetgate.dev", "c1"]).unwrap();
    fleet.cluster("c1");
    set_ready(&fleet.hub, "n1", "False");
    fleet.until_metric("fleetgate_tenants_write_errors_total", 1).await;
    assert_eq!(fleet.status("c1").await, Value::Null);
    fleet.follow("c1", Ok(&good)).await;
    let anew = fleet.until("c1", watching).await;
    assert_eq!(nodes(&anew), json!([["n1", ["192.0.2.1"], false]]));
    assert_ne!(status, anew);

    // The next leader finds everything as it should be and writes nothing.
    let before = fleet.resource_version("c1").await;
    let fleet = fleet.next_leader().await;
    fleet.follow("c1", Ok(&good)).await;
    set_ready(&fleet.hub, "n1", "True");
    fleet.until("c1", |status| ready(status) == ["n1"]).await;
    assert_eq!(fleet.metric("fleetgate_tenants_writes_total"), 1);
    assert_ne!(fleet.resource_version("c1").await, before);

    // Who does not lead any more writes no more.
    let fleet = fleet.next_leader().await;
    set_ready(&fleet.hub, "n1", "False");
    fleet.cluster("last");
    fleet.follow("last", Ok(&good)).await;
    fleet.until("last", watching).await;
    assert_eq!(ready(&fleet.status("c1").await), ["n1"]);
}

struct Fleet {
    hub: ApiServer,
    client: kube::Client,
    patience: Duration,
    wishes: UnboundedSender<Wish>,
    registry: Registry,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Fleet {
    async fn on(hub: ApiServer, patience: Duration) -> Self {
        hub.kubectl_apply(&manifest::crds::to_yaml()).unwrap();
        hub.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd/clusters.fleetgate.dev"]).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(hub.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Self::led_anew(hub, kube::Client::try_from(config).unwrap(), patience)
    }

    fn led_anew(hub: ApiServer, client: kube::Client, patience: Duration) -> Self {
        let (wishes, queue) = unbounded_channel();
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let stop = CancellationToken::new();
        let settings = Settings { policy: Policy { loopback: true }, patience, watch: Duration::from_secs(5) };
        let task =
            tokio::spawn(tenants::follow(client.clone(), queue, settings, metrics, Arc::default(), stop.clone()));
        Self { hub, client, patience, wishes, registry, stop, task }
    }

    async fn next_leader(self) -> Self {
        self.stop.cancel();
        self.task.await.unwrap();
        Self::led_anew(self.hub, self.client, self.patience)
    }

    fn cluster(&self, name: &str) {
        let cluster = json!({
            "apiVersion": "fleetgate.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {
                "tenant": "acme", "zone": "main",
                "controlPlane": {"kubeApiserver": {"addresses": ["192.0.2.100:6443"]}},
                "access": {"kubeconfig": {"secret": {"namespace": "fleetgate-system", "name": name}}},
            },
        });
        self.hub.kubectl_with_input(&["create", "-f", "-"], &cluster.to_string()).unwrap();
    }

    /// As the controller does: with what the Cluster says now.
    async fn follow(&self, name: &str, kubeconfig: Result<&str, &str>) {
        let object = self.object(name).await;
        let secret = SecretKey { namespace: "fleetgate-system".into(), name: name.into(), key: "kubeconfig".into() };
        let kubeconfig = kubeconfig.map(|text| text.as_bytes().into()).map_err(Into::into);
        let access = Access { uid: object["metadata"]["uid"].as_str().unwrap().into(), secret, kubeconfig };
        let status: Option<ClusterStatus> = serde_json::from_value(object["status"].clone()).unwrap();
        let last = status.as_ref().map(Last::from).unwrap_or_default();
        let name: ClusterName = name.parse().unwrap();
        self.wishes.send(Wish::Follow(name, Arc::new(Subject { access, last }))).unwrap();
    }

    async fn object(&self, name: &str) -> Value {
        let path = format!("/apis/fleetgate.dev/v1alpha1/clusters/{name}");
        self.client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
    }

    async fn status(&self, name: &str) -> Value {
        self.object(name).await["status"].take()
    }

    async fn resource_version(&self, name: &str) -> String {
        self.object(name).await["metadata"]["resourceVersion"].to_string()
    }

    async fn until(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + WITHIN;
        loop {
            let status = self.status(name).await;
            if holds(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{name} still has {status:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Our field manager has nothing beside its two fields.
    async fn only_ours(&self, names: &[&str]) {
        for name in names {
            let object = self.object(name).await;
            let managers = object["metadata"]["managedFields"].as_array().unwrap();
            let ours = managers.iter().find(|entry| entry["manager"] == FIELD_MANAGER).unwrap();
            assert_eq!(ours["subresource"], "status");
            let fields = ours["fieldsV1"]["f:status"].as_object().unwrap();
            assert_eq!(fields.keys().collect::<Vec<_>>(), ["f:conditions", "f:nodes"]);
            assert_eq!(fields["f:nodes"], json!({}), "one owner for the list, not one entry per node");
        }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
    }

    async fn until_metric(&self, name: &str, least: u64) {
        let deadline = Instant::now() + WITHIN;
        while self.metric(name) < least {
            assert!(Instant::now() < deadline, "{}", self.metrics());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn start<const N: usize>(kubernetes: &Kubernetes) -> [ApiServer; N] {
    thread::scope(|scope| {
        let starting = [(); N].map(|()| scope.spawn(|| ApiServer::start(kubernetes).unwrap()));
        starting.map(|server| server.join().unwrap())
    })
}

fn create_node(server: &ApiServer, name: &str, address: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    server.kubectl_with_input(&["create", "-f", "-"], &node.to_string()).unwrap();
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "InternalIP", "address": "169.254.1.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    patch_status(server, name, &status);
}

fn set_ready(server: &ApiServer, name: &str, ready: &str) {
    patch_status(server, name, &json!({"conditions": [{"type": "Ready", "status": ready}]}));
}

fn patch_status(server: &ApiServer, name: &str, status: &Value) {
    let patch = json!({"status": status}).to_string();
    server.kubectl(&["patch", "node", name, "--subresource=status", "--type=merge", "--patch", &patch]).unwrap();
}

/// To the API server, not to its etcd.
fn signal(server: &ApiServer, signal: &str) {
    let [id, _] = server.process_ids();
    let sent =
        Command::new("sh").args(["-c", "kill -s \"$1\" \"$2\"", "sh", signal, &id.to_string()]).status().unwrap();
    assert!(sent.success());
}

fn nodes(status: &Value) -> Value {
    let nodes = status["nodes"].as_array();
    nodes.map_or(Value::Null, |nodes| {
        nodes.iter().map(|node| json!([node["name"], node["addresses"], node["ready"]])).collect()
    })
}

fn ready(status: &Value) -> Vec<&str> {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    nodes.filter(|node| node["ready"] == true).map(|node| node["name"].as_str().unwrap()).collect()
}

fn condition(status: &Value) -> &Value {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Reachable").unwrap_or(&Value::Null)
}

fn watching(status: &Value) -> bool {
    condition(status)["status"] == "True" && reason(status) == "Watching"
}

fn reason(status: &Value) -> &str {
    condition(status)["reason"].as_str().unwrap_or_default()
}

fn message(status: &Value) -> &str {
    condition(status)["message"].as_str().unwrap_or_default()
}
