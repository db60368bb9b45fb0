//! HAProxy, told about the clusters in one of several ways.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use testbed::Process;

use super::{Clusters, Proxy, free_address};
use crate::cores;

const SOCKET: &str = "haproxy.socket";

/// How it is told about the clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A map file: one lookup.
    Map,
    /// One rule per cluster, as HyperShift writes them.
    Rules,
    /// The map, and splice for long transfers.
    Splice,
}

/// Keeps its configuration in `folder`.
pub fn start(program: &Path, shape: Shape, folder: &Path, clusters: Clusters<'_>) -> anyhow::Result<Proxy> {
    let door = free_address()?;
    let name = match shape {
        Shape::Map => "HAProxy, map",
        Shape::Rules => "HAProxy, a rule per cluster",
        Shape::Splice => "HAProxy, splice",
    };
    Proxy::start(name, door, &command(program, shape, folder, door, clusters)?)
}

/// One with a map that learns of more clusters by reloading: a new process takes the listening sockets over, and the
/// old one ends when its connections have.
pub struct Reloading {
    program: PathBuf,
    folder: PathBuf,
    /// The newest one is the last.
    pub generations: Vec<Proxy>,
}

impl Reloading {
    pub fn start(program: &Path, folder: &Path, clusters: Clusters<'_>) -> anyhow::Result<Self> {
        let first = start(program, Shape::Map, folder, clusters)?;
        Ok(Self { program: program.into(), folder: folder.into(), generations: vec![first] })
    }

    pub fn newest(&self) -> &Proxy {
        self.generations.last().expect("it begins with one, and none is taken away")
    }

    /// Returns the moment when everything was written and the new process was asked for.
    pub fn reload(&mut self, clusters: Clusters<'_>) -> anyhow::Result<Instant> {
        let old = self.newest();
        let (name, door) = (old.name, old.door);
        let mut command = command(&self.program, Shape::Map, &self.folder, door, clusters)?;
        command.arg("-x").arg(self.folder.join(SOCKET)).args(["-sf", &old.process.id().to_string()]);
        let asked = Instant::now();
        let process = Process::start(&command)?;
        self.generations.push(Proxy { name, door, process });
        Ok(asked)
    }
}

/// Writes what it is to read, and starts it in the foreground.
fn command(
    program: &Path,
    shape: Shape,
    folder: &Path,
    door: SocketAddr,
    clusters: Clusters<'_>,
) -> anyhow::Result<Command> {
    let file = folder.join(format!("haproxy-{shape:?}.cfg"));
    let map = folder.join("clusters.map");
    let mut lines = String::new();
    for (member, _) in clusters.members() {
        let name = member.name();
        writeln!(lines, "{name} be_{name}")?;
    }
    fs::write(&map, lines)?;
    let mut text = configuration(shape, door, &map, clusters)?;
    if shape == Shape::Map {
        // Through which a new process gets the listening sockets.
        write!(text, "global\n  stats socket {} level admin expose-fd listeners\n", folder.join(SOCKET).display())?;
    }
    fs::write(&file, text)?;
    let mut command = cores::pinned_proxy(program);
    command.arg("-db").arg("-f").arg(&file);
    Ok(command)
}

fn configuration(shape: Shape, door: SocketAddr, map: &Path, clusters: Clusters<'_>) -> anyhow::Result<String> {
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
            for (member, _) in clusters.members() {
                let name = member.name();
                writeln!(text, "  use_backend be_{name} if {{ var(sess.cluster) -m str {name} }}")?;
            }
        }
    }
    for (member, backend) in clusters.members() {
        write!(text, "backend be_{}\n  server s {backend}\n", member.name())?;
    }
    Ok(text)
}
