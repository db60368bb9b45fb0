//! HAProxy, told about the clusters in one of several ways.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::{Clusters, Proxy, free_address};
use crate::cores;

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
    let file = folder.join(format!("haproxy-{shape:?}.cfg"));
    let map = folder.join("clusters.map");
    let mut lines = String::new();
    for (member, _) in clusters.members() {
        let name = member.name();
        writeln!(lines, "{name} be_{name}")?;
    }
    fs::write(&map, lines)?;
    fs::write(&file, configuration(shape, door, &map, clusters)?)?;
    let mut command = cores::pinned_proxy(program);
    command.arg("-db").arg("-f").arg(&file);
    Proxy::start(name, door, &command)
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
