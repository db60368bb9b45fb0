//! A running fleetgate with something of everything that it can be asked for.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testbed::Process;

use crate::description::Description;

/// Long enough for the slowest machine: reached only by a test that fails.
const PATIENCE: Duration = Duration::from_mins(1);
pub(crate) const CREDENTIAL: &str = "an-admin-credential-of-some-length-42";

/// Beside the examples: what is refused, a tenant's records, a certificate, a name whose addresses are chosen.
const MORE: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: initech}
spec: {domains: [straight.test, secure.test]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: straight}
spec: {domain: straight.test, nameservers: [{name: ns1.straight.test, addresses: [127.0.0.1]}]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: near, labels: {team: web}}
spec:
  tenant: initech
  zone: main
  location: {region: eu-west, provider: metal, latitude: 48.1, longitude: 11.6}
  controlPlane: {kubeApiserver: {addresses: ['127.0.0.1:9']}}
  ingress: {http: ['127.0.0.1:9']}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: far, labels: {team: web}}
spec:
  tenant: initech
  zone: main
  location: {region: ap-north, latitude: 35.7, longitude: 139.7}
  controlPlane: {kubeApiserver: {addresses: ['127.0.0.1:9']}}
  ingress: {http: ['127.0.0.2:9']}
---
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: straight}
spec:
  placement: {clusterSelector: {matchLabels: {team: web}}}
  entry: dns
  steering: {mode: failover, order: [near, far]}
  upstreamTLS: {plainText: true}
---
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: secure}
spec:
  placement: {clusterSelector: {matchLabels: {team: web}}}
  overflow: {maxRatePerPod: 100}
  upstreamTLS: {plainText: true}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: straight}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: straight, scope: Cluster}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: secure}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: secure, scope: Cluster}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: straight, namespace: initech}
spec:
  ingressClassName: straight
  rules: [{host: www.straight.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: secure, namespace: initech}
spec:
  ingressClassName: secure
  tls: [{hosts: [www.secure.test], secretName: tls}]
  rules:
  - {host: www.secure.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}
  - {host: www.not-theirs.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}
---
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: records, namespace: acme}
spec:
  endpoints:
  - {dnsName: db.c1.fleet.example, recordType: A, recordTTL: 60, targets: [192.0.2.11]}
  - {dnsName: www.elsewhere.test, recordType: A, targets: [192.0.2.11]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: late}
spec:
  tenant: acme
  zone: main
  clusterID: 3f2b9c1e-6d1f-4c1b-9a53-0c6c2f1d7e11
  controlPlane: {kubeApiserver: {addresses: ['10.0.0.9:6443']}}
";

const BROKEN: &str = "apiVersion: fleetgate.dev/v1alpha1\nkind: Tenant\nmetadata: {name: wrong}\nspec: {nonsense: 1}\n";

pub(crate) struct Running {
    process: Process,
    /// Of the cluster whose nodes have no address.
    agent: Process,
    admin: SocketAddr,
    description: Description,
    issued: Vec<String>,
    _root: TempDir,
}

impl Running {
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let fleet = root.path().join("fleet");
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet"), &fleet);
        for (file, text) in [("more.yaml", MORE), ("broken.yaml", BROKEN), ("secret.yaml", &certificate())] {
            fs::write(fleet.join(file), text).unwrap();
        }
        fs::write(root.path().join("admin"), CREDENTIAL).unwrap();

        let mut command = fleetgate();
        command.arg("serve").arg("--fleet").arg(&fleet).arg("--data").arg(root.path().join("data"));
        for door in ["--dns", "--apiserver", "--sni", "--http", "--https", "--agents", "--admin"] {
            command.args([door, "127.0.0.1:0"]);
        }
        // Nobody asks there: any port will do that this process' part of loopback has.
        command.args(["--resolver", &format!("{}:20000-20009", own_host()), "--resolver-upstream", "127.0.0.1:9"]);
        command.args(["--log-format", "json", "--admin-credential"]).arg(root.path().join("admin"));
        let mut process = Process::start(&command).unwrap();
        let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = |field: &str| -> SocketAddr { ready[field].as_str().unwrap().parse().unwrap() };
        let admin = address("admin");

        // Somebody asked for a name of late.
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let query = b"\0\x01\0\0\0\x01\0\0\0\0\0\0\x03api\x02c1\x05fleet\x07example\0\0\x01\0\x01";
        client.send_to(query, address("dns")).unwrap();
        assert!(client.recv(&mut [0; 512]).unwrap() > 12);

        let agent = link(root.path(), admin, address("agents"));
        let description = Description::closed(json(admin, "/openapi.json")).with_clusters(&["c1", "lab"]);
        let mut running = Self { process, agent, admin, description, issued: Vec::new(), _root: root };
        running.until("the agent is linked", |running| {
            json(running.admin, "/v1/links")["items"].as_array().is_some_and(|links| !links.is_empty())
        });
        running.until("there is a table", |running| {
            json(running.admin, "/v1/overflow")["items"].as_array().is_some_and(|tables| !tables.is_empty())
        });
        running.issued = running.credentials();
        assert!(!running.issued.is_empty());
        running
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) fn description(&self) -> Description {
        self.description.clone()
    }

    /// The ids of those that there are now.
    pub(crate) fn credentials(&self) -> Vec<String> {
        let listed = json(self.admin, "/v1/credentials");
        listed["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Those that there were at first.
    pub(crate) fn issued(&self) -> Vec<String> {
        self.issued.clone()
    }

    pub(crate) fn terminate(mut self) {
        self.agent.signal("TERM").unwrap();
        assert!(self.agent.wait_for_exit(PATIENCE).unwrap().success(), "{}", self.agent.log_tail());
        self.process.signal("TERM").unwrap();
        let status = self.process.wait_for_exit(PATIENCE).unwrap();
        assert!(status.success(), "{status}\n{}", self.process.log_tail());
        assert!(!self.process.log().contains("panicked"), "{}", self.process.log_tail());
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{}", self.process.log_tail());
            self.process.check_running().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn fleetgate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleetgate"))
}

/// An address of loopback that only this process uses, and each call once.
fn own_host() -> std::net::Ipv4Addr {
    static COUNT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    [127, high | 0x80, low, COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)].into()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A Secret with a certificate for the host.
fn certificate() -> String {
    let key = rcgen::generate_simple_self_signed(["www.secure.test".to_owned()]).unwrap();
    let indented = |pem: String| pem.trim_end().replace('\n', "\n    ");
    let (chain, own) = (indented(key.cert.pem()), indented(key.signing_key.serialize_pem()));
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: tls, namespace: initech}}\ntype: kubernetes.io/tls\n\
         stringData:\n  tls.crt: |\n    {chain}\n  tls.key: |\n    {own}\n"
    )
}

/// The agent of `edge`, which what leads into that cluster goes through.
fn link(root: &Path, admin: SocketAddr, agents: SocketAddr) -> Process {
    let begun = Instant::now();
    let issued = loop {
        let mut command = fleetgate();
        command.args(["credential", "issue", "edge", "--admin", &admin.to_string(), "--admin-credential"]);
        let output = command.arg(root.join("admin")).output().unwrap();
        if output.status.success() {
            break output.stdout;
        }
        // The authority is made just after the process is ready.
        assert!(begun.elapsed() < PATIENCE, "{output:?}");
    };
    fs::write(root.join("bootstrap"), issued).unwrap();
    let mut command = fleetgate();
    command.args(["agent", "tunnel", "--hub", &agents.to_string(), "--bootstrap"]).arg(root.join("bootstrap"));
    Process::start(&command).unwrap()
}

fn json(admin: SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    serde_json::from_str(body).unwrap()
}
