//! The proxies that are measured, each with the same thousand clusters and pinned to one core.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use testbed::Process;

use crate::fleet::{self, Member};

/// The core of the proxy; the load has the other.
const PROXY_CORE: &str = "0";
const PATIENCE: Duration = Duration::from_mins(1);

/// A proxy that is running.
pub struct Proxy {
    pub name: &'static str,
    pub door: SocketAddr,
    process: Process,
}

/// How HAProxy is told about the clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A map file: one lookup.
    Map,
    /// One rule per cluster, as HyperShift writes them.
    Rules,
    /// The map, and splice for long transfers.
    Splice,
}

impl Proxy {
    pub fn fleetgate(program: &Path, folder: &Path, clusters: u32, backends: &[SocketAddr]) -> anyhow::Result<Self> {
        let fleet = folder.join("fleet");
        fs::create_dir_all(&fleet)?;
        let mut text = fleet::ground_manifest();
        for number in 0..clusters {
            write!(text, "---\n{}", Member(number).manifest(backend_of(number, backends)))?;
        }
        fs::write(fleet.join("fleet.yaml"), text)?;
        let door = free_address()?;
        let mut command = pinned(program.as_os_str().to_str().context("the path of fleetgate is no text")?);
        command.arg("serve").arg("--fleet").arg(&fleet).args(["--apiserver", &door.to_string()]);
        Self::start("fleetgate", door, &command)
    }

    pub fn haproxy(
        haproxy: &Path,
        shape: Shape,
        folder: &Path,
        clusters: u32,
        backends: &[SocketAddr],
    ) -> anyhow::Result<Self> {
        let door = free_address()?;
        let name = match shape {
            Shape::Map => "HAProxy, map",
            Shape::Rules => "HAProxy, a rule per cluster",
            Shape::Splice => "HAProxy, splice",
        };
        let configuration = folder.join(format!("haproxy-{shape:?}.cfg"));
        let map = folder.join("clusters.map");
        let mut lines = String::new();
        for name in (0..clusters).map(|number| Member(number).name()) {
            writeln!(lines, "{name} be_{name}")?;
        }
        fs::write(&map, lines)?;
        fs::write(&configuration, haproxy_configuration(shape, door, &map, clusters, backends)?)?;
        let mut command = pinned(haproxy.to_str().context("the path of HAProxy is no text")?);
        command.arg("-db").arg("-f").arg(&configuration);
        Self::start(name, door, &command)
    }

    fn start(name: &'static str, door: SocketAddr, command: &Command) -> anyhow::Result<Self> {
        let mut proxy = Self { name, door, process: Process::start(command)? };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(door).is_err() {
            proxy.process.check_running()?;
            ensure!(Instant::now() < deadline, "{name} does not listen:\n{}", proxy.process.log_tail());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(proxy)
    }

    /// The processor time that it has used, in seconds.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // After the name in parentheses, which may hold spaces; user and system time are the 14th and 15th field.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |index: usize| fields.get(index).and_then(|field| field.parse::<u32>().ok()).context("reading its times");
        // Linux tells user programs a hundred ticks a second, whatever the kernel's own.
        Ok(f64::from(ticks(11)? + ticks(12)?) / 100.0)
    }

    /// The memory that is its own, in bytes.
    pub fn own_memory(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("its status has no RssAnon")?;
        let kibibytes: u32 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(f64::from(kibibytes) * 1024.0)
    }
}

fn pinned(program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", PROXY_CORE, program]);
    command
}

fn backend_of(number: u32, backends: &[SocketAddr]) -> SocketAddr {
    backends[number as usize % backends.len()]
}

fn haproxy_configuration(
    shape: Shape,
    door: SocketAddr,
    map: &Path,
    clusters: u32,
    backends: &[SocketAddr],
) -> anyhow::Result<String> {
    // Two descriptors each, of the 20,000 that a process may have on the machine this was written on.
    let mut text = String::from("global\n  nbthread 1\n  maxconn 9700\n  maxpipes 64\n");
    if shape == Shape::Splice {
        text += "  tune.pipesize 1048576\n";
    }
    text += "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 24h\n  timeout server 24h\n  timeout tunnel 24h\n";
    if shape == Shape::Splice {
        text += "  option splice-auto\n";
    }
    write!(text, "frontend door\n  bind {door} accept-proxy\n")?;
    match shape {
        Shape::Map | Shape::Splice => {
            writeln!(text, "  use_backend %[fc_pp_tlv(0x20),map({})]", map.display())?;
        }
        Shape::Rules => {
            // Fetched once: asked for anew by each rule, only the first one finds it.
            text += "  tcp-request session set-var(sess.cluster) fc_pp_tlv(0x20)\n";
            for number in 0..clusters {
                let name = Member(number).name();
                writeln!(text, "  use_backend be_{name} if {{ var(sess.cluster) -m str {name} }}")?;
            }
        }
    }
    for number in 0..clusters {
        let name = Member(number).name();
        write!(text, "backend be_{name}\n  server s {}\n", backend_of(number, backends))?;
    }
    Ok(text)
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
