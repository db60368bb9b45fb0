//! HAProxy: a map of hosts, and a backend for each of the backends.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::cores;
use crate::http::Sites;

pub(super) fn command(program: &Path, folder: &Path, door: SocketAddr, sites: Sites<'_>) -> anyhow::Result<Command> {
    let (file, map) = (folder.join("haproxy.cfg"), folder.join("hosts.map"));
    let mut lines = String::new();
    for (site, backend) in sites.each() {
        writeln!(lines, "{} b{backend}", site.name())?;
    }
    fs::write(&map, lines)?;
    fs::write(&file, configuration(door, &map, sites)?)?;
    let mut command = cores::pinned_proxy(program);
    command.arg("-db").arg("-f").arg(&file);
    Ok(command)
}

fn configuration(door: SocketAddr, map: &Path, sites: Sites<'_>) -> anyhow::Result<String> {
    let mut text = String::from("global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n  http-reuse always\n");
    text += "  timeout connect 10s\n  timeout client 75s\n  timeout server 60s\n  option forwardfor\n";
    write!(text, "frontend door\n  bind {door}\n  http-request set-header X-Forwarded-Host %[req.hdr(host)]\n")?;
    text += "  http-request set-header X-Forwarded-Proto http\n";
    writeln!(text, "  use_backend %[req.hdr(host),field(1,:),lower,map({})]", map.display())?;
    for (number, backend) in sites.backends.iter().enumerate() {
        write!(text, "backend b{number}\n  server s {backend}\n")?;
    }
    Ok(text)
}
