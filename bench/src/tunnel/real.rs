//! The real hub and the real agent of one cluster, whose ingress controller is reached through the tunnel.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testbed::Process;

use super::{Carrier, PATIENCE};

pub struct Tunnel {
    /// The door by server name.
    pub door: SocketAddr,
    _hub: Process,
    _agent: Process,
}

impl Tunnel {
    pub fn start(program: &Path, folder: &Path, inside: SocketAddr) -> anyhow::Result<Self> {
        let fleet = folder.join("fleet");
        fs::create_dir(&fleet)?;
        fs::write(fleet.join("fleet.yaml"), manifests(inside.port()))?;
        let credential = folder.join("credential");
        fs::write(&credential, "a-credential-of-some-length-for-a-benchmark")?;
        let mut hub = Command::new(program);
        hub.arg("serve").arg("--fleet").arg(&fleet).arg("--data").arg(folder.join("data"));
        for door in ["--sni", "--agents", "--admin", "--dns"] {
            hub.args([door, "127.0.0.1:0"]);
        }
        hub.arg("--admin-credential").arg(&credential).args(["--log-format", "json"]);
        let mut hub = Process::start(&hub)?;
        let ready = hub.wait_for_line("\"message\":\"ready\"", PATIENCE)?;
        let ready: Value = serde_json::from_str(&ready).context("reading the log line of a server")?;
        let door = |name: &str| ready[name].as_str().with_context(|| format!("the log names no {name}"));
        let (sni, agents, admin) = (door("sni")?.parse()?, door("agents")?, door("admin")?);
        let dns = door("dns")?;
        let bootstrap = folder.join("bootstrap");
        let issue = || {
            let mut issue = Command::new(program);
            issue.args(["credential", "issue", "c1", "--admin", admin, "--admin-credential"]).arg(&credential).output()
        };
        // The authority is made just after the process is ready.
        let began = Instant::now();
        let mut issued = issue()?;
        while !issued.status.success() {
            ensure!(began.elapsed() < PATIENCE, "no credential: {}", String::from_utf8_lossy(&issued.stderr));
            issued = issue()?;
        }
        fs::write(&bootstrap, issued.stdout)?;
        let mut agent = Command::new(program);
        agent.args(["agent", "tunnel", "--hub", agents, "--links", "1", "--log-format", "json"]);
        // Addresses of the machine itself are asked for by nobody; a name may lead there where the agent allows it.
        agent.args(["--allow", "ns1.fleet.example,127.0.0.0/8", "--dns", dns]).arg("--bootstrap").arg(&bootstrap);
        let mut agent = Process::start(&agent)?;
        agent.wait_for_line("a link is up", PATIENCE)?;
        let carrier = Carrier { name: "fleetgate", address: sni };
        while carrier.there_and_back(1).is_err() {
            agent.check_running()?;
            ensure!(began.elapsed() < PATIENCE, "nothing answers inside:\n{}\n{}", hub.log_tail(), agent.log_tail());
            thread::sleep(Duration::from_millis(50));
        }
        // The door is there for everybody.
        TcpStream::connect(sni).context("connecting to --sni")?;
        Ok(Self { door: sni, _hub: hub, _agent: agent })
    }
}

fn manifests(port: u16) -> String {
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {{name: main}}
spec:
  domain: fleet.example
  nameservers: [{{name: ns1.fleet.example, addresses: [127.0.0.1]}}]
  gateway: {{addresses: [127.0.0.1]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {{name: acme}}
spec: {{}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: c1}}
spec:
  tenant: acme
  zone: main
  controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:9\"]}}}}
  ingress: {{mode: hub, https: [\"ns1.fleet.example:{port}\"]}}
"
    )
}
