//! A hub with Fleetgate's resources, tenant clusters with nodes, and the processes that serve them.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testbed::{ApiServer, Kubernetes, Process};

/// Long enough for the slowest machine: reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

pub(crate) const ZONE: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [127.0.0.1]}]
  gateway: {addresses: [192.0.2.10]}
  publish: [authoritative, dnsEndpoint]
  withdrawal: {grace: 1s}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {namespace: acme}
";

/// A cluster whose nodes are watched, with its kubeconfig in a Secret of the same name.
pub(crate) fn watched_cluster(name: &str) -> String {
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: acme
  zone: main
  controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:9\"]}}}}
  access: {{kubeconfig: {{secret: {{namespace: fleetgate-system, name: {name}}}}}}}
"
    )
}

/// A cluster with one node that is given: 198.51.100.`node`.
pub(crate) fn given_cluster(name: &str, node: u8) -> String {
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: acme
  zone: main
  controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:9\"]}}}}
  nodes: [{{name: n1, addresses: [198.51.100.{node}]}}]
"
    )
}

pub(crate) fn kubeconfig_secret(name: &str, kubeconfig: &str) -> String {
    let indented = format!("    {}\n", kubeconfig.trim_end().replace('\n', "\n    "));
    format!(
        "\
apiVersion: v1
kind: Secret
metadata: {{name: {name}, namespace: fleetgate-system}}
stringData:
  kubeconfig: |
{indented}"
    )
}

/// A hub that knows Fleetgate's resources and ExternalDNS'.
pub(crate) fn hub(kubernetes: &Kubernetes) -> ApiServer {
    let hub = ApiServer::start(kubernetes).unwrap();
    prepare(&hub);
    hub
}

pub(crate) fn prepare(hub: &ApiServer) {
    for namespace in ["fleetgate-system", "fleetgate-publish", "acme"] {
        hub.kubectl(&["create", "namespace", namespace]).unwrap();
    }
    hub.kubectl_apply(&manifest::crds::to_yaml()).unwrap();
    hub.kubectl_apply(include_str!("../dnsendpoint-crd.yaml")).unwrap();
    hub.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).unwrap();
}

/// A tenant's cluster that knows ExternalDNS' resources and verdicts, with a namespace `shop`, and the rights of agents there.
pub(crate) fn prepare_tenant(tenant: &ApiServer) {
    tenant.kubectl(&["create", "namespace", "shop"]).unwrap();
    tenant.kubectl_apply(&manifest::crds::to_yaml()).unwrap();
    tenant.kubectl_apply(include_str!("../dnsendpoint-crd.yaml")).unwrap();
    tenant.kubectl_apply(include_str!("../../../../deploy/agent/sync.yaml")).unwrap();
    tenant.kubectl_apply(include_str!("../../../../deploy/agent/external-dns.yaml")).unwrap();
    tenant.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).unwrap();
}

/// A node, ready or not, with one address that the world can reach.
pub(crate) fn set_node(cluster: &ApiServer, name: &str, address: &str, ready: bool) {
    let node = format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n");
    cluster.kubectl_apply(&node).unwrap();
    let status = serde_json::json!({ "status": {
        "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
        "addresses": [{ "type": "ExternalIP", "address": address }, { "type": "InternalIP", "address": "10.0.0.7" }],
    }});
    cluster
        .kubectl(&["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status.to_string()])
        .unwrap();
}

pub(crate) fn fleetgate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleetgate"))
}

/// One process of Fleetgate on a hub.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) ready: Value,
}

impl Server {
    /// `arguments` begin with the role. Waits until it listens.
    pub(crate) fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        Self::start_as(fleetgate(), kubeconfig, arguments)
    }

    /// `command` becomes the binary with what it is given.
    pub(crate) fn start_as(mut command: Command, kubeconfig: &Path, arguments: &[&str]) -> Self {
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
        command.args(["--admin", "127.0.0.1:0", "--log-format", "json", "--allow-loopback"]);
        let mut process = Process::start(&command).unwrap();
        let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
        Self { ready: serde_json::from_str(&line).unwrap(), process }
    }

    /// And until it knows the fleet.
    pub(crate) fn start_informed(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let server = Self::start(kubeconfig, arguments);
        eventually("the process knows the fleet", || server.get("/readyz").contains("200 OK").then_some(()));
        server
    }

    pub(crate) fn address(&self, of: &str) -> SocketAddr {
        self.ready[of].as_str().unwrap_or_else(|| panic!("no {of} in {}", self.ready)).parse().unwrap()
    }

    /// What `dig +short` prints, sorted.
    pub(crate) fn resolve(&self, name: &str, kind: &str) -> Vec<String> {
        let mut lines: Vec<String> = self.dig(&["+short", name, kind]).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub(crate) fn serial(&self, zone: &str) -> u32 {
        let soa = self.dig(&["+short", zone, "SOA"]);
        soa.split_whitespace().nth(2).and_then(|serial| serial.parse().ok()).unwrap_or_else(|| panic!("{soa:?}"))
    }

    fn dig(&self, arguments: &[&str]) -> String {
        let dns = self.address("dns");
        let mut dig = Command::new("dig");
        dig.arg(format!("@{}", dns.ip())).args(["-p", &dns.port().to_string(), "+tries=3", "+timeout=5"]);
        let output = testbed::dig(dig.args(arguments)).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The whole answer of the admin interface.
    pub(crate) fn get(&self, path: &str) -> String {
        use std::io::{Read as _, Write as _};
        let admin = self.address("admin");
        let mut stream = TcpStream::connect(admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Asks again and again until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until a name has exactly these addresses.
pub(crate) fn wait_for_answer(server: &Server, name: &str, addresses: &[&str]) {
    let mut last = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        last = server.resolve(name, "A");
        if last == addresses {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{name} is {last:?}, not {addresses:?}; {}", server.process.log_tail());
}

/// One field of an object, by its path.
pub(crate) fn field(hub: &ApiServer, object: &[&str], path: &str) -> String {
    let path = format!("jsonpath={{{path}}}");
    hub.kubectl(&[&["get"], object, &["-o", &path]].concat()).unwrap_or_default()
}

pub(crate) fn data_folder() -> TempDir {
    tempfile::tempdir().unwrap()
}
