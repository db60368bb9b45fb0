//! A running `fleetgate` on a folder, with an admin credential.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testbed::Process;

use crate::browser::PATIENCE;

pub(crate) const CREDENTIAL: &str = "a-credential-of-more-than-32-characters";

const PLACES: [(&str, f64, f64); 8] = [
    ("eu-central", 52.5, 13.4),
    ("eu-west", 53.3, -6.3),
    ("us-east", 39.0, -77.5),
    ("us-west", 45.6, -121.2),
    ("sa-east", -23.5, -46.6),
    ("ap-south", 19.1, 72.9),
    ("ap-northeast", 35.7, 139.7),
    ("au-southeast", -33.9, 151.2),
];

pub(crate) struct Fleet {
    root: TempDir,
    pub(crate) admin: SocketAddr,
    pub(crate) http: SocketAddr,
    process: Process,
}

impl Fleet {
    /// Files by their names.
    pub(crate) fn start(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (folder, credential) = (root.path().join("fleet"), root.path().join("credential"));
        fs::create_dir(&folder).unwrap();
        fs::write(&credential, CREDENTIAL).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleetgate"));
        command.arg("serve").arg("--fleet").arg(&folder).arg("--data").arg(root.path().join("data"));
        command.arg("--admin-credential").arg(&credential).args(["--log-format", "json"]);
        for door in ["--dns", "--apiserver", "--sni", "--http", "--admin"] {
            command.args([door, "127.0.0.1:0"]);
        }
        let mut process = Process::start(&command).unwrap();
        let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE * 3).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = |field: &str| ready[field].as_str().unwrap().parse().unwrap();
        Self { root, admin: address("admin"), http: address("http"), process }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.admin)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        // As editors do: never half of it.
        let (folder, new) = (self.root.path().join("fleet"), self.root.path().join("new"));
        fs::write(&new, text).unwrap();
        fs::rename(new, folder.join(file)).unwrap();
    }

    pub(crate) fn end(mut self) {
        self.process.signal("TERM").unwrap();
        assert!(self.process.wait_for_exit(PATIENCE).unwrap().success());
    }
}

pub(crate) const BASE: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [127.0.0.1]}]
  gateway: {addresses: [192.0.2.10]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: shops}
spec:
  domain: acme.example
  nameservers: [{name: ns1.acme.example, addresses: [127.0.0.1]}]
  gateway: {addresses: [192.0.2.10]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {domains: [acme.example], quota: {records: 50, addresses: 4}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: globex}
spec: {domains: [globex.example]}
";

/// A cluster of one of the tenants somewhere, with so many nodes of which all but some are ready.
pub(crate) fn cluster(number: usize, nodes: usize, unready: usize) -> String {
    let (region, latitude, longitude) = PLACES[number % PLACES.len()];
    let tenant = if number.is_multiple_of(2) { "acme" } else { "globex" };
    let [.., high, low] = number.to_be_bytes();
    let mut text = format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {}}}
spec:
  tenant: {tenant}
  zone: main
  location: {{region: {region}, latitude: {latitude}, longitude: {longitude}}}
  controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:9\"]}}}}
  ingress: {{https: [\"127.0.0.1:9\"]}}
  nodes:
",
        name(number)
    );
    for node in 0..nodes {
        let ready = node >= unready;
        writeln!(text, "  - {{name: n{node}, addresses: [10.{high}.{low}.{}], ready: {ready}}}", node + 1).unwrap();
    }
    text
}

pub(crate) fn name(number: usize) -> String {
    format!("{}-{number:05}", PLACES[number % PLACES.len()].0)
}

/// An Ingress that several clusters serve, records of which some are refused and one is an attack, and a cluster of nobody.
pub(crate) const MORE: &str = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: acme}
spec:
  ingressClassName: fleetgate
  rules:
  - host: www.acme.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}
---
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: web, namespace: acme}
spec:
  endpoints:
  - {dnsName: mail.acme.example, recordType: A, targets: [10.0.0.1]}
  - {dnsName: stolen.globex.example, recordType: A, targets: [10.0.0.1]}
  - {dnsName: \"<script>alert(1)</script><b>x.acme.example\", recordType: TXT, targets: [\"<img src=x onerror=alert(1)>\"]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: orphan}
spec:
  tenant: nobody
  zone: main
  controlPlane: {kubeApiserver: {addresses: [\"127.0.0.1:9\"]}}
";
