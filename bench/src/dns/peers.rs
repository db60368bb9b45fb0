//! The servers that are measured, each with the same names: on one core, with one thread or process that answers, no
//! rate limiting, and nothing in an answer that was not asked for.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::Context as _;

use super::server::Server;
use crate::fleet::DOMAIN;
use crate::{cores, server};

/// What is asked of Fleetgate beyond the addresses: all that it can do is on, and the rate limit is above the load.
const FLEETGATE: [&str; 4] = ["--dns-rate-limit", "10000000", "--dns-identity", "bench"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Knot,
    Nsd,
    Bind,
    PowerDns,
}

/// A peer that this machine has.
#[derive(Debug, Clone)]
pub struct Found {
    pub peer: Peer,
    /// With its version.
    pub name: String,
    /// `testbed/dns-peers`.
    runner: PathBuf,
}

impl Peer {
    pub const ALL: [Self; 4] = [Self::Knot, Self::Nsd, Self::Bind, Self::PowerDns];

    pub fn name(self) -> &'static str {
        match self {
            Self::Knot => "Knot",
            Self::Nsd => "NSD",
            Self::Bind => "BIND",
            Self::PowerDns => "PowerDNS",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Self::Knot => "knotd",
            Self::Nsd => "nsd",
            Self::Bind => "named",
            Self::PowerDns => "pdns_server",
        }
    }

    /// Asks it for its version, which fetches it should it not be there.
    pub fn find(self, runner: &Path) -> anyhow::Result<Found> {
        let option = match self {
            Self::Knot | Self::PowerDns => "--version",
            Self::Nsd | Self::Bind => "-v",
        };
        let output = Command::new(runner).arg(self.program()).arg(option).output();
        let output = output.with_context(|| format!("running {}", runner.display()))?;
        // Some write it here, some there.
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let version = version_in(&text).with_context(|| format!("it says no version, but {}", text.trim()))?;
        let mut name = format!("{} {version}", self.name());
        if text.contains("--disable-recvmmsg") {
            name += " without recvmmsg";
        }
        Ok(Found { peer: self, name, runner: runner.canonicalize()? })
    }
}

impl Found {
    /// On a master file; keeps its configuration in `folder`, which is its own.
    pub fn start(&self, folder: &Path, zone: &Path) -> anyhow::Result<Server> {
        fs::create_dir_all(folder)?;
        let address = server::free_address().context("finding a free port")?;
        // PowerDNS is given the folder and knows the name.
        let file = folder.join("pdns.conf");
        let text = match self.peer {
            Peer::Knot => knot(address, folder, zone),
            Peer::Nsd => nsd(address, folder, zone),
            Peer::Bind => bind(address, folder, zone),
            Peer::PowerDns => powerdns(address, folder, zone)?,
        };
        fs::write(&file, text)?;
        let mut command = cores::pinned_proxy(&self.runner);
        command.arg(self.peer.program()).current_dir(folder);
        // All in the foreground, or they would not be ours to end.
        match self.peer {
            Peer::Knot => command.arg("--config").arg(&file),
            Peer::Nsd => command.arg("-d").arg("-c").arg(&file),
            Peer::Bind => command.args(["-g", "-n", "1", "-c"]).arg(&file),
            Peer::PowerDns => command.arg(format!("--config-dir={}", folder.display())),
        };
        Server::start(&self.name, address, &command)
    }
}

/// Fleetgate on a folder of manifests, with its state below `folder`.
pub fn fleetgate(program: &Path, fleet: &Path, folder: &Path) -> anyhow::Result<Server> {
    let address = server::free_address().context("finding a free port")?;
    let mut command = cores::pinned_proxy(program);
    command.arg("serve").arg("--fleet").arg(fleet).arg("--data").arg(folder.join("data"));
    command.args(["--dns", &address.to_string(), "--log-format", "json"]).args(FLEETGATE);
    for door in ["--apiserver", "--sni", "--admin"] {
        command.args([door, "127.0.0.1:0"]);
    }
    Server::start("fleetgate", address, &command)
}

/// The bare echo: this very program.
pub fn echo(length: usize) -> anyhow::Result<Server> {
    let address = server::free_address().context("finding a free port")?;
    let program = env::current_exe().context("finding this program")?;
    let mut command = cores::pinned_proxy(&program);
    command.args(["--echo", &address.to_string(), "--echo-length", &length.to_string()]);
    Server::start(format!("bare echo of {length} B"), address, &command)
}

fn knot(address: SocketAddr, folder: &Path, zone: &Path) -> String {
    let (folder, zone) = (folder.display(), zone.display());
    let (ip, port) = (address.ip(), address.port());
    format!(
        "\
server:
  listen: {ip}@{port}
  rundir: {folder}
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
database:
  storage: {folder}
log:
- target: stderr
  any: warning
template:
- id: default
  semantic-checks: off
  zonefile-sync: -1
  journal-content: none
zone:
- domain: {DOMAIN}
  file: {zone}
"
    )
}

fn nsd(address: SocketAddr, folder: &Path, zone: &Path) -> String {
    let (folder, zone) = (folder.display(), zone.display());
    let (ip, port) = (address.ip(), address.port());
    // Its rate limit is on unless told otherwise.
    format!(
        "\
server:
  ip-address: {ip}@{port}
  server-count: 1
  username: \"\"
  zonesdir: \"{folder}\"
  zonelistfile: \"{folder}/zone.list\"
  xfrdfile: \"\"
  xfrdir: \"{folder}\"
  pidfile: \"\"
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
  minimal-responses: yes
remote-control:
  control-enable: no
zone:
  name: {DOMAIN}
  zonefile: {zone}
"
    )
}

fn bind(address: SocketAddr, folder: &Path, zone: &Path) -> String {
    let (folder, zone) = (folder.display(), zone.display());
    let (ip, port) = (address.ip(), address.port());
    format!(
        "\
options {{
  directory \"{folder}\";
  pid-file none;
  session-keyfile \"{folder}/session.key\";
  listen-on port {port} {{ {ip}; }};
  listen-on-v6 {{ none; }};
  recursion no;
  dnssec-validation no;
  empty-zones-enable no;
  minimal-responses yes;
  notify no;
  allow-transfer {{ none; }};
  rrset-order {{ order none; }};
}};
controls {{ }};
zone \"{DOMAIN}\" {{ type primary; file \"{zone}\"; check-names ignore; }};
"
    )
}

/// Its zone has a file of its own.
fn powerdns(address: SocketAddr, folder: &Path, zone: &Path) -> anyhow::Result<String> {
    let zones = folder.join("zones");
    fs::write(&zones, format!("zone \"{DOMAIN}\" {{ type master; file \"{}\"; }};\n", zone.display()))?;
    let (zones, folder) = (zones.display(), folder.display());
    let (ip, port) = (address.ip(), address.port());
    Ok(format!(
        "\
launch=bind
bind-config={zones}
bind-check-interval=0
local-address={ip}
local-port={port}
socket-dir={folder}
daemon=no
guardian=no
receiver-threads=1
distributor-threads=1
disable-axfr=yes
security-poll-suffix=
loglevel=3
"
    ))
}

/// The first three numbers with dots in between.
fn version_in(text: &str) -> Option<String> {
    let words = text.split(|letter: char| letter != '.' && !letter.is_ascii_digit());
    let is_version = |word: &&str| {
        let numbers: Vec<_> = word.split('.').collect();
        numbers.len() == 3 && numbers.iter().all(|number| !number.is_empty())
    };
    words.into_iter().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_the_servers_say() {
        for (text, version) in [
            ("knotd, Knot DNS 3.4.6\n", Some("3.4.6")),
            ("NSD version 4.12.0\nWritten by NLnet Labs.\n", Some("4.12.0")),
            ("BIND 9.20.26-1~deb13u1-Debian (Stable Release) <id:>", Some("9.20.26")),
            ("Nov 15 23:13:32 PowerDNS Authoritative Server 4.9.17 (C) PowerDNS.COM BV", Some("4.9.17")),
            ("debootstrap is needed", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
    }
}
