//! A hub, the hosts of control planes beside it, and the networks of tenants that only their agents connect to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use serde_json::Value;
use testbed::{Host, Network, Outpost, Process, WorkDir};

use crate::tenant::Tenant;

/// Long enough for the slowest machine: reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_millis(20);

// A host has all ports to itself, so that these are free.
pub(crate) const ADMIN: &str = "127.0.0.1:9630";
pub(crate) const AGENTS: u16 = 9640;
pub(crate) const EGRESS: u16 = 9641;
/// The front door for who is not on the hub: an extension API server asks its API server things.
pub(crate) const SNI: u16 = 443;
/// The resolver's, which control planes reach by Service addresses.
const RESOLVER: &str = "192.0.2.53";
const FIRST_PORT: u16 = 5400;

const ZONE: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.1]}]
  gateway: {addresses: [192.0.2.10]}
";

pub(crate) fn fleetgate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleetgate"))
}

/// A hub with one process of Fleetgate, and its tenants.
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) serve: Process,
    folder: WorkDir,
}

/// Where one cluster is to be found.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Of the cluster, and of its tenant.
    pub(crate) name: &'static str,
    number: u8,
}

pub(crate) const A: Place = Place { name: "a", number: 1 };
pub(crate) const B: Place = Place { name: "b", number: 2 };

impl Place {
    /// The hub as its agents see it.
    pub(crate) fn hub(self) -> String {
        format!("198.18.{}.1", self.number)
    }

    fn inside_cable(self) -> [String; 2] {
        [1, 2].map(|end| format!("198.18.{}.{end}/24", self.number))
    }

    /// The hub as its control plane sees it.
    pub(crate) fn gateway(self) -> String {
        format!("198.18.1{}.1", self.number)
    }

    pub(crate) fn control_plane(self) -> String {
        format!("198.18.1{}.2", self.number)
    }

    fn control_cable(self) -> [String; 2] {
        [1, 2].map(|end| format!("198.18.1{}.{end}/24", self.number))
    }

    /// The Service through which its control plane reaches the resolver.
    pub(crate) fn resolver(self) -> String {
        format!("10.96.0.1{}", self.number)
    }

    /// The earlier cluster has the lower one, or the one with the lesser name where both came at once.
    fn resolver_port(self) -> u16 {
        FIRST_PORT + u16::from(self.number) - 1
    }

    pub(crate) fn api_name(self) -> String {
        format!("api.{}.fleet.example", self.name)
    }

    fn manifests(self) -> String {
        format!(
            "---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {{name: tenant-{name}}}
spec: {{}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: tenant-{name}
  zone: main
  controlPlane: {{kubeApiserver: {{addresses: ['{api_server}:6443']}}}}
  nodes: [{{name: n1, addresses: [198.51.100.{number}]}}]
  dns: {{serviceCIDRs: [10.10.0.0/16], podCIDRs: [10.20.0.0/16]}}
",
            name = self.name,
            number = self.number,
            api_server = self.control_plane(),
        )
    }
}

impl World {
    /// A hub that knows both clusters, whose agents are not there yet.
    pub(crate) fn start() -> Option<Self> {
        let network = testbed::network()?;
        let folder = WorkDir::create().unwrap();
        fs::create_dir(folder.path().join("fleet")).unwrap();
        let fleet = [ZONE.to_owned(), A.manifests(), B.manifests()].concat();
        fs::write(folder.path().join("fleet/fleet.yaml"), fleet).unwrap();
        fs::write(folder.path().join("admin"), "an-admin-credential-of-some-length").unwrap();
        network.hub.ip(&format!("address add {RESOLVER}/32 dev lo")).unwrap();

        let mut command = fleetgate();
        command.arg("serve").arg("--fleet").arg(folder.path().join("fleet"));
        command.arg("--data").arg(folder.path().join("data"));
        command.arg("--admin-credential").arg(folder.path().join("admin")).args(["--admin", ADMIN]);
        command.args(["--agents", &format!("0.0.0.0:{AGENTS}"), "--egress", &format!("0.0.0.0:{EGRESS}")]);
        command.args(["--sni", &format!("0.0.0.0:{SNI}")]);
        command.args(["--resolver", &format!("{RESOLVER}:{FIRST_PORT}-{}", FIRST_PORT + 9)]);
        // Nobody is there: what is not of a cluster has no answer here.
        command.args(["--resolver-upstream", "127.0.0.1:9", "--log-format", "json"]);
        let serve = run(&network.hub, &command, "ready");
        Some(Self { network, serve, folder })
    }

    /// A tenant's network and the host of its control plane, both with nothing on them but what the hub has to have.
    pub(crate) fn join(&mut self, place: Place, inside: &[&str], resolv_conf: &str) -> [Outpost; 2] {
        let [hub, own] = place.inside_cable();
        let inside = self.network.join([&hub, &own], inside, resolv_conf).unwrap();
        let [hub, own] = place.control_cable();
        // What `fleetgate dns config` prints, as the kubelet would write it.
        let domain = "cluster.local";
        let resolv_conf = format!(
            "nameserver {}\nsearch default.svc.{domain} svc.{domain} {domain}\noptions ndots:5\n",
            place.resolver()
        );
        let control = self.network.join([&hub, &own], &[], &resolv_conf).unwrap();
        control.host.ip(&format!("route add default via {}", place.gateway())).unwrap();
        self.serve_by(place);
        [inside, control]
    }

    /// What kube-proxy does for the Service with the cluster's target port.
    fn serve_by(&self, place: Place) {
        let (service, port) = (place.resolver(), place.resolver_port());
        let rule = |protocol| format!("ip daddr {service} {protocol} dport 53 dnat to {RESOLVER}:{port}\n");
        let rules = format!(
            "table ip service-{} {{\nchain prerouting {{\ntype nat hook prerouting priority dstnat;\n{}{}}}\n}}\n",
            place.name,
            rule("udp"),
            rule("tcp")
        );
        self.network.hub.nft(&rules).unwrap();
    }

    /// A file or folder of the test's own.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command of the operator's, on the hub.
    pub(crate) fn operator(&self, arguments: &[&str]) -> Output {
        let mut command = fleetgate();
        command.args(arguments).args(["--admin", ADMIN]).arg("--admin-credential").arg(self.path("admin"));
        self.network.hub.output(&command).unwrap()
    }

    /// The same, once it succeeds: the authority is made just after the process is ready.
    pub(crate) fn issued(&self, arguments: &[&str]) -> Vec<u8> {
        eventually("the operator is served", || {
            let output = self.operator(arguments);
            if output.status.success() { Ok(output.stdout) } else { Err(output) }
        })
    }

    /// What its log says of refusals: one line each, with what was asked for as its target.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let log = self.serve.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"].is_string() && line["code"].is_string()).collect()
    }

    pub(crate) fn wait_for_audit(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("an audit line: {what}"), || {
            let lines = self.audit();
            lines.iter().find(|line| is_it(line)).cloned().ok_or(lines)
        })
    }
}

/// Starts it and waits until it says that it runs.
pub(crate) fn run(host: &Host, command: &Command, message: &str) -> Process {
    let mut process = host.start(command).unwrap();
    process.wait_for_line(&format!("\"message\":\"{message}\""), PATIENCE).unwrap();
    process
}

/// Asks again and again until there is an answer, and says what was there instead when it was in vain.
pub(crate) fn eventually<T, E: fmt::Debug>(what: &str, mut ask: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(instead) => assert!(Instant::now() < deadline, "in vain: {what}: {instead:?}"),
        }
        thread::sleep(PAUSE);
    }
}

/// What a program on a host printed, if it ended well.
pub(crate) fn printed(host: &Host, command: &Command) -> Result<String, String> {
    let output = host.output(command).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(text + &String::from_utf8_lossy(&output.stderr)) }
}

/// `dig` on the host of a control plane, at the address that its resolv.conf has.
pub(crate) fn dig(tenant: &Tenant, arguments: &[&str]) -> String {
    let mut dig = Command::new("dig");
    dig.arg(format!("@{}", tenant.place.resolver())).args(["+tries=1", "+time=5"]).args(arguments);
    printed(&tenant.control.host, &dig).unwrap_or_else(|complaint| complaint)
}

/// A stream into a cluster, by CONNECT on the socket of `fleetgate egress proxy`. A socket has no network, so that the test
/// reaches it from where it is.
pub(crate) struct Carried(BufReader<UnixStream>);

/// What was answered instead.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) reason: String,
}

impl Carried {
    pub(crate) fn open(socket: &Path, target: &str) -> Result<Self, Refused> {
        let broken = |error: &dyn fmt::Display| Refused { status: 0, code: String::new(), reason: error.to_string() };
        let stream = UnixStream::connect(socket).map_err(|error| broken(&error))?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = BufReader::new(stream);
        write!(stream.get_mut(), "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
            .map_err(|error| broken(&error))?;
        let head = read_head(&mut stream).map_err(|error| broken(&error))?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(&head);
        if status == 200 {
            assert!(stream.buffer().is_empty(), "kube-apiserver fails when something follows: {head}");
            return Ok(Self(stream));
        }
        let reason = read_body(&mut stream, &head).map_err(|error| broken(&error))?;
        Err(Refused { status, code: field(&head, "fleetgate-refusal").unwrap_or_default(), reason })
    }

    /// One request and its answer; the server keeps the connection.
    pub(crate) fn ask(&mut self) -> std::io::Result<String> {
        self.0.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")?;
        let head = read_head(&mut self.0)?;
        read_body(&mut self.0, &head)
    }

    /// Waits until nothing can come any more.
    pub(crate) fn wait_for_end(&mut self) -> std::io::Result<usize> {
        self.0.read(&mut [0])
    }
}

fn read_head(stream: &mut BufReader<UnixStream>) -> std::io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

fn read_body(stream: &mut BufReader<UnixStream>, head: &str) -> std::io::Result<String> {
    let length = field(head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

fn field(head: &str, name: &str) -> Option<String> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut wanted = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    wanted.next().map(|(_, value)| value.trim().to_owned())
}
