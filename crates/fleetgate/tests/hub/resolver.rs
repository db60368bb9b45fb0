//! Control planes are led to their resolver: by the real controller, on the real API server of a hub.

use std::collections::BTreeSet;
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Output};

use serde_json::{Value, json};
use testbed::{ApiServer, Kubernetes};

use crate::fixture::{
    PATIENCE, Server, ZONE, eventually, field, given_cluster, hub, kubeconfig_secret, watched_cluster,
};
use crate::peers::accounts;

const MUTATING: [&str; 2] = ["mutatingwebhookconfiguration", "fleetgate"];

/// A hub with a resolver of two pods, and clusters whose control planes have a namespace each.
struct Fixture {
    hub: ApiServer,
    kubectl: std::path::PathBuf,
}

impl Fixture {
    fn start(kubernetes: &Kubernetes) -> Self {
        let hub = hub(kubernetes);
        hub.kubectl_apply(ZONE).unwrap();
        for namespace in ["cluster-c1", "cluster-c2"] {
            hub.kubectl(&["create", "namespace", namespace]).unwrap();
        }
        hub.kubectl_apply(
            "apiVersion: v1\nkind: Service\nmetadata: {name: resolver, namespace: fleetgate-system}\n\
             spec: {clusterIP: None, ports: [{name: dns, port: 53, protocol: UDP}]}\n",
        )
        .unwrap();
        let fixture = Self { hub, kubectl: kubernetes.kubectl() };
        fixture.set_pods(&["10.1.0.1", "10.1.0.2"]);
        fixture
    }

    fn set_pods(&self, addresses: &[&str]) {
        let endpoints: Vec<Value> = addresses
            .iter()
            .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "resolver-1", "namespace": "fleetgate-system",
                "labels": { "kubernetes.io/service-name": "resolver" },
            },
            "addressType": "IPv4", "endpoints": endpoints, "ports": [],
        });
        self.hub.kubectl_apply(&slice.to_string()).unwrap();
    }

    fn set_cluster(&self, name: &str, namespace: Option<&str>) {
        let cluster = given_cluster(name, 7);
        let cluster = match namespace {
            Some(namespace) => cluster.replace("controlPlane: {", &format!("controlPlane: {{namespace: {namespace}, ")),
            None => cluster,
        };
        self.hub.kubectl_apply(&cluster).unwrap();
    }

    fn controller(&self) -> Server {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let url = format!("https://{address}");
        let arguments = [
            "controller",
            "--admission",
            &address,
            "--admission-url",
            &url,
            "--resolver-service",
            "resolver",
            "--resolver-ports",
            "5400-5409",
            "--resolver-hub-domain",
            "hub.local",
        ];
        Server::start_informed(self.hub.kubeconfig_path(), &arguments)
    }

    fn apply(&self, manifest: &str) -> Output {
        let file = tempfile::NamedTempFile::new_in(self.hub.work_dir()).unwrap();
        std::fs::write(file.path(), manifest).unwrap();
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.arg("--kubeconfig").arg(self.hub.kubeconfig_path()).args(["create", "-f"]).arg(file.path());
        kubectl.env("KUBERC", "off").arg("--cache-dir").arg(self.hub.work_dir().join("kubectl-cache"));
        kubectl.output().unwrap()
    }

    /// What kubectl says, warnings included, and whether it was done.
    fn make_pod(&self, namespace: &str, name: &str, cluster: &str, spec: &Value) -> (bool, String) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "labels": { "app": "kube-apiserver" } },
            "spec": { "containers": [{ "name": "main", "image": "registry.example/none" }] },
        });
        if !cluster.is_empty() {
            pod["metadata"]["labels"]["fleetgate.dev/control-plane"] = cluster.into();
        }
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        let output = self.apply(&pod.to_string());
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn object(&self, what: &[&str]) -> Option<Value> {
        let text = self.hub.kubectl(&[&["get"], what, &["-o", "json"]].concat()).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn service(&self, namespace: &str, cluster: &str) -> Option<Value> {
        self.object(&["-n", namespace, "service", &format!("fleetgate-resolver-{cluster}")])
    }

    fn slice(&self, namespace: &str, cluster: &str) -> Option<Value> {
        self.object(&["-n", namespace, "endpointslice", &format!("fleetgate-resolver-{cluster}-ipv4")])
    }

    /// Port and address of its resolver, once it has both and everything leads there.
    fn until_led(&self, namespace: &str, cluster: &str, pods: &[&str]) -> (u64, String) {
        eventually(&format!("{cluster} is led to its resolver"), || {
            let status = self.object(&["cluster", cluster])?["status"]["resolver"].clone();
            let (port, address) = (status["port"].as_u64()?, status["address"].as_str()?.to_owned());
            let service = self.service(namespace, cluster)?;
            let targets: Vec<_> =
                service["spec"]["ports"].as_array()?.iter().map(|port| port["targetPort"].as_u64()).collect();
            let slice = self.slice(namespace, cluster)?;
            let ports: Vec<_> = slice["ports"].as_array()?.iter().map(|port| port["port"].as_u64()).collect();
            let endpoints: Vec<_> =
                slice["endpoints"].as_array()?.iter().map(|one| one["addresses"][0].as_str()).collect();
            let is_led = service["spec"]["clusterIP"] == *address
                && service["spec"]["selector"].is_null()
                && targets == [Some(port), Some(port)]
                && ports == [Some(port), Some(port)]
                && endpoints == pods.iter().copied().map(Some).collect::<Vec<_>>();
            is_led.then_some((port, address))
        })
    }
}

#[test]
fn every_cluster_has_a_port_and_a_service_that_leads_there() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let fixture = Fixture::start(&kubernetes);
    let hub = &fixture.hub;
    fixture.set_cluster("c1", Some("cluster-c1"));
    fixture.set_cluster("c2", Some("cluster-c2"));
    fixture.set_cluster("c3", None);
    // Somebody else's Service has the name already.
    hub.kubectl_apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: fleetgate-resolver-c2, namespace: cluster-c2, labels: {app: theirs}}\n\
         spec: {selector: {app: theirs}, ports: [{name: web, port: 80}]}\n",
    )
    .unwrap();
    let theirs = fixture.service("cluster-c2", "c2").unwrap();
    let mut controller = fixture.controller();
    let pods = ["10.1.0.1", "10.1.0.2"];
    let c1 = fixture.until_led("cluster-c1", "c1", &pods);
    let c3 = fixture.until_led("fleetgate-system", "c3", &pods);
    let c2_port = eventually("c2 has a port", || {
        let port = field(hub, &["cluster", "c2"], ".status.resolver.port");
        port.parse::<u64>().ok()
    });
    assert_eq!(BTreeSet::from([c1.0, c3.0, c2_port]), BTreeSet::from([5400, 5401, 5402]));
    controller.process.wait_for_line("creating Service cluster-c2/fleetgate-resolver-c2", PATIENCE).unwrap();
    assert_eq!(fixture.service("cluster-c2", "c2").unwrap(), theirs, "what is not ours is not touched");
    assert_eq!(field(hub, &["cluster", "c2"], ".status.resolver.address"), "");
    hub.kubectl(&["-n", "cluster-c2", "delete", "service", "fleetgate-resolver-c2"]).unwrap();
    let c2 = fixture.until_led("cluster-c2", "c2", &pods);
    assert_eq!(c2.0, c2_port);
    let owner = fixture.service("cluster-c1", "c1").unwrap()["metadata"]["ownerReferences"].clone();
    assert_eq!((&owner[0]["kind"], &owner[0]["name"]), (&json!("Cluster"), &json!("c1")));

    // What somebody does to it is undone; the address stays.
    let service = ["-n", "cluster-c1", "service", "fleetgate-resolver-c1"];
    let patch = r#"{"spec": {"selector": {"app": "evil"}, "ports": [{"port": 53, "protocol": "UDP", "name": "dns", "targetPort": 9}]}}"#;
    hub.kubectl(&[&["patch"], &service[..], &["--type=merge", "-p", patch]].concat()).unwrap();
    assert_eq!(fixture.until_led("cluster-c1", "c1", &pods), c1);
    let slice = ["-n", "cluster-c1", "endpointslice", "fleetgate-resolver-c1-ipv4"];
    let patch = r#"{"endpoints": [{"addresses": ["10.66.6.6"], "conditions": {"ready": true}}]}"#;
    hub.kubectl(&[&["patch"], &slice[..], &["--type=merge", "-p", patch]].concat()).unwrap();
    fixture.until_led("cluster-c1", "c1", &pods);
    hub.kubectl(&[&["delete"], &slice[..]].concat()).unwrap();
    assert_eq!(fixture.until_led("cluster-c1", "c1", &pods), c1);
    let patch = r#"{"status": {"resolver": {"port": 80, "address": "10.66.6.6"}}}"#;
    hub.kubectl(&["patch", "cluster", "c3", "--subresource=status", "--type=merge", "-p", patch]).unwrap();
    assert_eq!(fixture.until_led("fleetgate-system", "c3", &pods), c3);

    // Pods of the resolver come and go; when all are gone, it stays as it was.
    fixture.set_pods(&["10.1.0.2", "10.1.0.3"]);
    let pods = ["10.1.0.2", "10.1.0.3"];
    for (namespace, cluster) in [("cluster-c1", "c1"), ("cluster-c2", "c2"), ("fleetgate-system", "c3")] {
        fixture.until_led(namespace, cluster, &pods);
    }
    fixture.set_pods(&[]);
    controller.process.wait_for_line("the resolver has no pods any more", PATIENCE).unwrap();

    // Another leader finds all in order, and writes nothing.
    let versions = || -> Vec<Value> {
        let of = |object: Option<Value>| object.unwrap()["metadata"]["resourceVersion"].clone();
        vec![
            of(fixture.service("cluster-c1", "c1")),
            of(fixture.slice("cluster-c1", "c1")),
            of(fixture.service("cluster-c2", "c2")),
        ]
    };
    let before = versions();
    controller.process.signal("KILL").unwrap();
    let controller = fixture.controller();
    fixture.set_pods(&pods);
    fixture.set_cluster("c4", Some("cluster-c1"));
    let c4 = fixture.until_led("cluster-c1", "c4", &pods);
    assert_eq!(
        (fixture.until_led("cluster-c1", "c1", &pods), fixture.until_led("cluster-c2", "c2", &pods)),
        (c1.clone(), c2)
    );
    assert_eq!(versions(), before);
    assert!(![c1.0, c2_port].contains(&c4.0), "{c4:?}");

    // With its Cluster it goes, and its port is nobody's for a while.
    hub.kubectl(&["delete", "cluster", "c1"]).unwrap();
    eventually("what led to c1's port is gone", || {
        (fixture.service("cluster-c1", "c1").is_none() && fixture.slice("cluster-c1", "c1").is_none()).then_some(())
    });
    fixture.set_cluster("c5", Some("cluster-c1"));
    let c5 = fixture.until_led("cluster-c1", "c5", &pods);
    assert_ne!(c5.0, c1.0);

    // The control plane moves: so does the Service.
    fixture.set_cluster("c5", Some("cluster-c2"));
    assert_eq!(fixture.until_led("cluster-c2", "c5", &pods).0, c5.0);
    eventually("nothing is left where it was", || fixture.service("cluster-c1", "c5").is_none().then_some(()));

    let page = include_str!("../../../../docs/metrics.md");
    let metrics = controller.get("/metrics");
    let exposed = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let exposed: Vec<&str> = exposed.filter(|name| name.starts_with("fleetgate_wiring_")).collect();
    assert_eq!(exposed.len(), 4, "{exposed:?}");
    for name in exposed {
        assert!(page.contains(&format!("| `{name}` |")), "docs/metrics.md does not have {name}");
    }
}

#[test]
fn pods_of_a_control_plane_ask_its_resolver() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let fixture = Fixture::start(&kubernetes);
    let hub = &fixture.hub;
    fixture.set_cluster("c1", Some("cluster-c1"));
    // Refused, as its zone is not there: it has no resolver, and pods all the same.
    hub.kubectl_apply(
        &given_cluster("c2", 8)
            .replace("zone: main", "zone: none")
            .replace("controlPlane: {", "controlPlane: {namespace: cluster-c2, "),
    )
    .unwrap();
    let mut controller = fixture.controller();
    let (_, address) = fixture.until_led("cluster-c1", "c1", &["10.1.0.1", "10.1.0.2"]);
    eventually("the API server is told where to ask", || {
        (field(hub, &MUTATING, ".webhooks[0].name") == "pods.fleetgate.dev").then_some(())
    });
    let dns = |namespace: &str, name: &str| {
        let pod = fixture.object(&["-n", namespace, "pod", name]).unwrap();
        (pod["spec"]["dnsPolicy"].as_str().unwrap().to_owned(), pod["spec"]["dnsConfig"].clone())
    };
    let expected = json!({
        "nameservers": [address],
        "searches": ["cluster-c1.svc.hub.local", "svc.cluster.local", "cluster.local"],
        "options": [{ "name": "ndots", "value": "3" }],
    });
    let mut number = 0;
    let name = eventually("the API server asks", || {
        number += 1;
        let name = format!("apiserver-{number}");
        let (made, said) = fixture.make_pod("cluster-c1", &name, "c1", &json!({}));
        assert!(made, "{said}");
        (dns("cluster-c1", &name).0 == "None").then_some(name)
    });
    assert_eq!(dns("cluster-c1", &name), ("None".to_owned(), expected.clone()));
    assert!(fixture.make_pod("cluster-c1", "host", "c1", &json!({ "hostNetwork": true })).0);
    assert_eq!(dns("cluster-c1", "host"), ("None".to_owned(), expected));

    // Nobody who does not ask for it.
    assert!(fixture.make_pod("cluster-c1", "other", "", &json!({})).0);
    assert_eq!(dns("cluster-c1", "other"), ("ClusterFirst".to_owned(), Value::Null));
    // Nobody elsewhere.
    let (made, said) = fixture.make_pod("acme", "thief", "c1", &json!({}));
    assert!(!made && said.contains("\"pods.fleetgate.dev\" denied the request: NotItsControlPlane: "), "{said}");
    assert!(!said.contains("cluster-c1"), "{said}");
    // No resolver yet: it starts all the same.
    let (made, said) = fixture.make_pod("cluster-c2", "early", "c2", &json!({}));
    assert!(made && said.contains("Warning: Cluster c2 has no resolver yet"), "{said}");
    assert_eq!(dns("cluster-c2", "early").0, "ClusterFirst");
    // What it says itself.
    let own = json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["10.9.9.9"] } });
    let (made, said) = fixture.make_pod("cluster-c1", "own", "c1", &own);
    assert!(made && said.contains("Warning: dnsPolicy None"), "{said}");
    assert_eq!(dns("cluster-c1", "own").1["nameservers"], json!(["10.9.9.9"]));
    let own = json!({ "dnsConfig": { "nameservers": ["10.9.9.9"], "searches": ["corp.example"] } });
    assert!(fixture.make_pod("cluster-c1", "merged", "c1", &own).0);
    let merged = dns("cluster-c1", "merged").1;
    assert_eq!((&merged["nameservers"], &merged["searches"][3]), (&json!([address]), &json!("corp.example")));

    // What somebody else does to the configuration is undone.
    let patch = r#"[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]"#;
    hub.kubectl(&[&["patch"], &MUTATING[..], &["--type=json", "-p", patch]].concat()).unwrap();
    eventually("the configuration is put right", || {
        (field(hub, &MUTATING, ".webhooks[0].failurePolicy") == "Fail").then_some(())
    });
    // Nobody answers: pods of control planes wait, all others do not.
    controller.process.signal("TERM").unwrap();
    controller.process.wait_for_exit(PATIENCE).unwrap();
    let (made, said) = fixture.make_pod("cluster-c1", "late", "c1", &json!({}));
    assert!(!made && said.contains("failed calling webhook"), "{said}");
    assert!(fixture.make_pod("cluster-c1", "any", "", &json!({})).0);
}

/// A few ports in a row that nobody has: the leader and the resolver have to be told the same ones.
fn free_ports() -> (u16, u16) {
    let is_free =
        |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok();
    let start = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().min(60_000);
    let first = (start..u16::MAX - 4).find(|first| (*first..first + 4).all(is_free)).unwrap();
    (first, first + 3)
}

fn dig(port: u16, name: &str, more: &[&str]) -> Vec<String> {
    let mut dig = Command::new("dig");
    dig.args(["@127.0.0.1", "-p", &port.to_string(), "+tries=1", "+timeout=10", name]).args(more);
    let output = dig.output().unwrap();
    let mut lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The resolver is a process of its own and holds no kubeconfig: the leader looks, with the one of `spec.access`.
#[test]
fn a_control_plane_has_dns_before_its_cluster_has_a_node() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let fixture = Fixture::start(&kubernetes);
    let hub = &fixture.hub;
    let tenant = ApiServer::start(&kubernetes).unwrap();
    tenant.kubectl(&["create", "namespace", "shop"]).unwrap();
    tenant
        .kubectl_apply(
            "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{name: https, port: 443}]}\n\
             ---\napiVersion: v1\nkind: Service\nmetadata: {name: store, namespace: shop}\n\
             spec: {clusterIP: None, ports: [{name: client, port: 2379}]}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {name: store-1, namespace: shop, labels: {kubernetes.io/service-name: store}}\n\
             addressType: IPv4\nports: [{name: client, port: 2379}]\n\
             endpoints: [{addresses: [10.2.0.1], hostname: store-0, conditions: {ready: true}}, {addresses: [10.2.0.2], conditions: {ready: false}}]\n",
        )
        .unwrap();
    let address = field(&tenant, &["-n", "shop", "service", "web"], ".spec.clusterIP");
    hub.kubectl_apply(&kubeconfig_secret("c1", tenant.kubeconfig())).unwrap();
    hub.kubectl_apply(&watched_cluster("c1").replace("controlPlane: {", "controlPlane: {namespace: cluster-c1, "))
        .unwrap();
    // Without spec.access.
    fixture.set_cluster("c2", Some("cluster-c2"));

    let [controller, _, dns] = accounts(hub);
    let (first, last) = free_ports();
    let (ports, listen) = (format!("{first}-{last}"), format!("127.0.0.1:{first}-{last}"));
    let wired = ["--resolver-service", "resolver", "--resolver-ports", &ports];
    let _controller =
        Server::start_informed(&controller, &[&["controller", "--peers", "127.0.0.1:0"], &wired[..]].concat());
    // Nobody is there for the rest of the world.
    let answering = ["dns", "--dns", "127.0.0.1:0", "--resolver", &listen, "--resolver-upstream", "127.0.0.1:9"];
    let resolver = Server::start_informed(&dns, &answering);
    let port = |cluster: &str| -> u16 {
        eventually(&format!("{cluster} has a port"), || {
            field(hub, &["cluster", cluster], ".status.resolver.port").parse().ok()
        })
    };
    let (c1, c2) = (port("c1"), port("c2"));
    assert_ne!(c1, c2);
    let web = "web.shop.svc.cluster.local";
    eventually("a Service of the tenant's is known", || (dig(c1, web, &["+short"]) == [address.clone()]).then_some(()));
    assert_eq!(dig(c1, "store.shop.svc.cluster.local", &["+short"]), ["10.2.0.1"]);
    assert_eq!(dig(c1, "store-0.store.shop.svc.cluster.local", &["+short"]), ["10.2.0.1"]);
    let status = |port: u16, name: &str| {
        let lines = dig(port, name, &["+comments"]);
        lines.iter().find_map(|line| Some(line.split_once("status: ")?.1.split(',').next()?.to_owned()))
    };
    assert_eq!(
        status(c1, "none.shop.svc.cluster.local").as_deref(),
        Some("NXDOMAIN"),
        "{}",
        resolver.process.log_tail()
    );
    // Nobody answers for c2 with what c1 has.
    assert_eq!(status(c2, web).as_deref(), Some("SERVFAIL"));
}
