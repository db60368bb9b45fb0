//! A hub and its tenant clusters, as real API servers, and the real binary on it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use model::DnsName;
use serde_json::json;
use testbed::{ApiServer, Kubernetes, Process};
use tokio::runtime::Runtime;

use crate::question;

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_mins(5);
/// Between two questions: the resolution of what is measured.
const PAUSE: Duration = Duration::from_millis(1);
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// A process that used less than this of a core for a second has nothing left to do.
const AT_REST: Duration = Duration::from_millis(50);

/// A tenant cluster with one node.
pub struct TenantCluster {
    server: ApiServer,
    runtime: Runtime,
    nodes: Api<Node>,
}

impl TenantCluster {
    pub fn start(kubernetes: &Kubernetes) -> anyhow::Result<Self> {
        let server = ApiServer::start(kubernetes)?;
        server.kubectl_apply("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let nodes = runtime.block_on(async {
            let kubeconfig = Kubeconfig::read_from(server.kubeconfig_path())?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            Ok::<_, anyhow::Error>(Api::all(Client::try_from(config)?))
        })?;
        Ok(Self { server, runtime, nodes })
    }

    /// Returns once the API server has acknowledged it.
    pub fn set_node(&self, address: Ipv4Addr, ready: bool) -> anyhow::Result<()> {
        let status = json!({ "status": {
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
            "addresses": [{ "type": "ExternalIP", "address": address }],
        }});
        let (how, patch) = (PatchParams::default(), Patch::Merge(status));
        self.runtime.block_on(self.nodes.patch_status("n1", &how, &patch)).context("changing a node")?;
        Ok(())
    }
}

pub struct Hub {
    server: ApiServer,
}

impl Hub {
    pub fn start(kubernetes: &Kubernetes) -> anyhow::Result<Self> {
        let server = ApiServer::start(kubernetes)?;
        for namespace in ["fleetgate-system", "fleetgate-publish"] {
            server.kubectl(&["create", "namespace", namespace])?;
        }
        server.kubectl_apply(&manifest::crds::to_yaml())?;
        server.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"])?;
        Ok(Self { server })
    }

    pub fn add_zone(&self) -> anyhow::Result<()> {
        self.server.kubectl_apply(
            "\
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
spec: {}
",
        )?;
        Ok(())
    }

    /// Clusters whose nodes are those of `tenant`.
    pub fn add_clusters(&self, names: impl IntoIterator<Item = String>, tenant: &TenantCluster) -> anyhow::Result<()> {
        let kubeconfig = format!("    {}\n", tenant.server.kubeconfig().trim_end().replace('\n', "\n    "));
        let manifest = |name: String| {
            format!(
                "\
---
apiVersion: v1
kind: Secret
metadata: {{name: {name}, namespace: fleetgate-system}}
stringData:
  kubeconfig: |
{kubeconfig}---
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
        };
        let manifests: String = names.into_iter().map(manifest).collect();
        if !manifests.is_empty() {
            self.server.kubectl_with_input(&["create", "-f", "-"], &manifests)?;
        }
        Ok(())
    }

    /// All roles in one process.
    pub fn serve(&self, program: &Path) -> anyhow::Result<Server> {
        let mut command = Command::new(program);
        command.args(["serve", "--hub", "--allow-loopback", "--dns", "127.0.0.1:0", "--log-format", "json"]);
        command.arg("--kubeconfig").arg(self.server.kubeconfig_path());
        let started = Instant::now();
        let mut process = Process::start(&command)?;
        let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE)?;
        let line: serde_json::Value = serde_json::from_str(&line).context("reading the log line of a server")?;
        let dns = line["dns"].as_str().context("the log names no address of DNS")?.parse()?;
        Ok(Server { process, dns, started })
    }
}

pub struct Server {
    process: Process,
    dns: SocketAddr,
    pub started: Instant,
}

impl Server {
    /// Asks until the answer is this one.
    pub fn until_answered(&mut self, name: &str, addresses: &[Ipv4Addr]) -> anyhow::Result<()> {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).context("opening a socket")?;
        socket.connect(self.dns).context("connecting to DNS")?;
        socket.set_read_timeout(Some(ASK_AGAIN)).context("setting a time-out")?;
        let query = question::for_addresses(7, &DnsName::parse(name)?);
        let mut response = [0; 1500];
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = socket.send(&query).and_then(|_| socket.recv(&mut response));
            if asked.is_ok_and(|length| question::is_answered_by(&query, &response[..length], addresses)) {
                return Ok(());
            }
            self.process.check_running()?;
            ensure!(Instant::now() < deadline, "waited {PATIENCE:?} for {name}:\n{}", self.process.log_tail());
            thread::sleep(PAUSE);
        }
    }

    /// Until it does nothing any more.
    pub fn until_at_rest(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut before = self.cpu()?;
        loop {
            thread::sleep(Duration::from_secs(1));
            let now = self.cpu()?;
            if now.saturating_sub(before) < AT_REST {
                return Ok(());
            }
            before = now;
            ensure!(Instant::now() < deadline, "it never came to rest");
        }
    }

    /// The processor time that it has used.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let mut spent = Duration::ZERO;
        for thread in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let Ok(times) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            let nanos = times.split(' ').next().and_then(|field| field.parse().ok());
            spent += Duration::from_nanos(nanos.context("reading its times")?);
        }
        Ok(spent)
    }

    /// A line of `/proc/PID/status` that counts memory, in megabytes of 10^6 octets.
    pub fn memory(&self, line: &str) -> anyhow::Result<f64> {
        crate::server::memory_of(self.process.id(), line)
    }

    pub fn stop(mut self) -> anyhow::Result<()> {
        self.process.signal("TERM")?;
        let status = self.process.wait_for_exit(PATIENCE)?;
        ensure!(status.success(), "fleetgate ended with {status}");
        Ok(())
    }
}
