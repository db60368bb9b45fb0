//! A hub on a folder, a tenant's cluster, and the agents between them; all can be killed and started again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testbed::{ApiServer, Kubernetes, Process};

/// Long enough for the slowest machine: reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Two tenants with a cluster each; what tenants may point at are documentation addresses.
const FLEET: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [127.0.0.1]}]
  gateway: {addresses: [192.0.2.10]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {targets: {allow: [203.0.113.0/24]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: rival}
spec: {}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec:
  tenant: acme
  zone: main
  controlPlane: {kubeApiserver: {addresses: [\"127.0.0.1:9\"]}}
  nodes: [{name: n1, addresses: [198.51.100.11]}]
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c2}
spec:
  tenant: rival
  zone: main
  controlPlane: {kubeApiserver: {addresses: [\"127.0.0.1:9\"]}}
  nodes: [{name: n1, addresses: [198.51.100.12]}]
";

/// What the wildcard of c1 leads to, where nothing else is.
pub(crate) const NODE: &str = "198.51.100.11";

pub(crate) fn fleetgate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleetgate"))
}

/// A hub, its folder and its database.
pub(crate) struct Hub {
    root: TempDir,
    process: Process,
    /// What it is started with beside what every hub is.
    more: Vec<String>,
    pub(crate) agents: SocketAddr,
    admin: SocketAddr,
    dns: SocketAddr,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) sni: Option<SocketAddr>,
}

impl Hub {
    pub(crate) fn start() -> Self {
        Self::serving(FLEET, &[])
    }

    /// Of a certain fleet, and with more doors than agents' and DNS.
    pub(crate) fn serving(fleet: &str, more: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("fleet")).unwrap();
        fs::write(root.path().join("fleet/fleet.yaml"), fleet).unwrap();
        fs::write(root.path().join("admin"), "an-admin-credential-of-some-length").unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
        let (process, ready) = start(&Self::command(&root, any, &more));
        let address = |field: &str| ready[field].as_str().expect(field).parse().unwrap();
        let http = ready["http"].as_str().map(|http| http.parse().unwrap());
        let sni = ready["sni"].as_str().map(|sni| sni.parse().unwrap());
        Self { agents: address("agents"), admin: address("admin"), dns: address("dns"), http, sni, process, more, root }
    }

    fn command(root: &TempDir, agents: SocketAddr, more: &[String]) -> Command {
        let mut command = fleetgate();
        command.arg("serve").arg("--fleet").arg(root.path().join("fleet")).arg("--data").arg(root.path().join("data"));
        command.arg("--admin-credential").arg(root.path().join("admin")).args(["--agents", &agents.to_string()]);
        command.args(["--dns", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json"]);
        command.args(more);
        command
    }

    /// As a power cut would.
    pub(crate) fn kill(&mut self) {
        self.process.end();
    }

    /// Where it was, as far as agents know.
    pub(crate) fn start_again(&mut self) {
        let (process, ready) = start(&Self::command(&self.root, self.agents, &self.more));
        let address = |field: &str| ready[field].as_str().expect(field).parse().unwrap();
        (self.process, self.admin, self.dns) = (process, address("admin"), address("dns"));
    }

    fn credential(&self, arguments: &[&str]) -> Output {
        let mut command = fleetgate();
        command.arg("credential").args(arguments).args(["--admin", &self.admin.to_string()]);
        command.arg("--admin-credential").arg(self.root.path().join("admin")).output().unwrap()
    }

    /// Writes a bootstrap file for c1, where the one before is.
    pub(crate) fn issue(&self) -> PathBuf {
        self.issue_for("c1")
    }

    pub(crate) fn issue_for(&self, cluster: &str) -> PathBuf {
        let path = self.root.path().join(format!("bootstrap-{cluster}.json"));
        let printed = eventually("a credential", || {
            // The authority is made just after the process is ready.
            let output = self.credential(&["issue", cluster]);
            output.status.success().then_some(output.stdout)
        });
        fs::write(&path, printed).unwrap();
        path
    }

    pub(crate) fn revoke_all(&self) {
        let list = self.credential(&["list", "-o", "json"]);
        let list: Value = serde_json::from_slice(&list.stdout).unwrap();
        for item in list["items"].as_array().unwrap() {
            assert!(self.credential(&["revoke", item["id"].as_str().unwrap()]).status.success());
        }
    }

    /// What it has logged since it was last started.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// What its --admin answers.
    pub(crate) fn get(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let (status, body) = ask(self.admin, &request);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// What `fleetgate explain` prints.
    pub(crate) fn explain(&self, arguments: &[&str]) -> String {
        let mut command = fleetgate();
        command.arg("explain").args(arguments).args(["--admin", &self.admin.to_string()]);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Where the agents of a cluster keep what they keep.
    pub(crate) fn state_folder(&self) -> PathBuf {
        self.root.path().join("state")
    }

    pub(crate) fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// What `dig +short` prints, sorted.
    pub(crate) fn resolve(&self, name: &str, kind: &str) -> Vec<String> {
        let (server, port) = (format!("@{}", self.dns.ip()), self.dns.port().to_string());
        let mut dig = Command::new("dig");
        dig.args([&server, "-p", &port, "+time=30", "+tries=1", "+short", name, kind]);
        let output = testbed::dig(&mut dig).expect("dig is there: testbed/install installs it");
        assert!(output.status.success(), "{output:?}");
        let mut lines: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub(crate) fn wait_for(&self, name: &str, addresses: &[&str]) {
        eventually(&format!("{name} is {addresses:?}"), || (self.resolve(name, "A") == addresses).then_some(()));
    }
}

/// An agent: its command line with the addresses that it got, so that it can be started again.
pub(crate) struct Agent {
    command: Vec<String>,
    pub(crate) process: Process,
    pub(crate) started: Value,
}

impl Agent {
    /// `role` and what is only of it.
    pub(crate) fn start(hub: &Hub, bootstrap: &Path, role: &[&str]) -> Self {
        Self::start_in(&hub.state_folder(), hub, bootstrap, role)
    }

    /// One of several clusters', which share nothing.
    pub(crate) fn start_in(state: &Path, hub: &Hub, bootstrap: &Path, role: &[&str]) -> Self {
        let mut command: Vec<String> = ["agent"].iter().chain(role).map(|&word| word.to_owned()).collect();
        let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
        add("--hub", hub.agents.to_string());
        add("--bootstrap", bootstrap.display().to_string());
        add("--state", state.display().to_string());
        add("--log-format", "json".into());
        let (process, started) = run(&command);
        // Where it listens it listens again.
        for option in ["listen", "health"] {
            if let Some(at) = command.iter().position(|word| *word == format!("--{option}")) {
                started[option].as_str().unwrap().clone_into(&mut command[at + 1]);
            }
        }
        Self { command, process, started }
    }

    pub(crate) fn kill(&mut self) {
        self.process.end();
    }

    pub(crate) fn start_again(&mut self) {
        (self.process, self.started) = run(&self.command);
    }

    pub(crate) fn address(&self, of: &str) -> SocketAddr {
        self.started[of].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn wait_until_ready(&self) {
        eventually("the agent is ready", || (self.get("health", "/readyz").0 == 200).then_some(()));
    }

    pub(crate) fn get(&self, of: &str, path: &str) -> (u16, String) {
        self.send(of, &format!("GET {path} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n"))
    }

    /// With the media type of ExternalDNS.
    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, String) {
        let media_type = "application/external.dns.webhook+json;version=1";
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\ncontent-type: {media_type}");
        self.send("listen", &format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}"))
    }

    fn send(&self, of: &str, request: &str) -> (u16, String) {
        ask(self.address(of), request)
    }

    /// Ends in order.
    pub(crate) fn terminate(mut self) {
        self.process.signal("TERM").unwrap();
        let status = self.process.wait_for_exit(PATIENCE).unwrap();
        assert!(status.success(), "{status}\n{}", self.process.log_tail());
    }
}

/// The status and the body of an answer after which the connection is closed.
fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn run(command: &[String]) -> (Process, Value) {
    let mut process = Process::start(fleetgate().args(command)).unwrap();
    let line = process.wait_for_line("\"message\":\"started\"", PATIENCE).unwrap();
    (process, serde_json::from_str(&line).unwrap())
}

pub(crate) fn start(command: &Command) -> (Process, Value) {
    let mut process = Process::start(command).unwrap();
    let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
    (process, serde_json::from_str(&line).unwrap())
}

/// A tenant's cluster with ExternalDNS' kind and a namespace `shop`.
pub(crate) fn tenant(kubernetes: &Kubernetes) -> ApiServer {
    let tenant = ApiServer::start(kubernetes).unwrap();
    tenant.kubectl(&["create", "namespace", "shop"]).unwrap();
    install(&tenant, include_str!("../dnsendpoint-crd.yaml"));
    tenant
}

pub(crate) fn install(tenant: &ApiServer, crds: &str) {
    tenant.kubectl_apply(crds).unwrap();
    tenant.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).unwrap();
}

/// An object in `shop`, with an A record for each name and target.
pub(crate) fn dns_endpoint(name: &str, records: &[(&str, &str)]) -> String {
    let record = |(name, target): &(&str, &str)| {
        format!("  - {{dnsName: {name}, recordType: A, recordTTL: 60, targets: ['{target}']}}\n")
    };
    format!(
        "apiVersion: externaldns.k8s.io/v1alpha1\n\
         kind: DNSEndpoint\n\
         metadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  endpoints:\n{}",
        records.iter().map(record).collect::<String>()
    )
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
