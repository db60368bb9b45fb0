//! The names of the fleet, as manifests for Fleetgate and as a master file for its peers: for every cluster
//! `api.cI.fleet.example`, the gateway, and `*.cI.fleet.example`, the addresses of its two nodes, IPv4 and IPv6.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::fleet::{self, DOMAIN, GATEWAY, Member};

/// The one that Fleetgate gives records unless told otherwise.
pub const TTL: u32 = 30;
/// IPv6 addresses of nodes count up from here, as the IPv4 ones do.
const FIRST_NODE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);
/// Nobody connects there: only names are asked for.
const API_SERVER: &str = "127.0.0.1:6443";

/// The IPv6 addresses of a cluster's nodes.
pub fn nodes_v6(member: Member) -> [Ipv6Addr; 2] {
    let first = u128::from(FIRST_NODE) + 2 * u128::from(member.0);
    [first, first + 1].map(Ipv6Addr::from)
}

/// A cluster with nodes at these IPv4 addresses; they change when an update is measured.
pub fn manifest(member: Member, [n1, n2]: [Ipv4Addr; 2]) -> String {
    let (name, [m1, m2]) = (member.name(), nodes_v6(member));
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: t00
  zone: main
  controlPlane:
    kubeApiserver: {{addresses: [\"{API_SERVER}\"]}}
  nodes:
  - {{name: {name}-n1, addresses: [{n1}, \"{m1}\"], ready: true}}
  - {{name: {name}-n2, addresses: [{n2}, \"{m2}\"], ready: true}}
"
    )
}

/// Fills a folder of manifests with this many clusters in one file.
pub fn write_manifests(folder: &Path, clusters: u32) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let mut text = fleet::ground_manifest();
    for member in (0..clusters).map(Member) {
        write!(text, "---\n{}", manifest(member, member.nodes()))?;
    }
    Ok(fs::write(folder.join("fleet.yaml"), text)?)
}

/// The same as records, for all who read master files.
pub fn write_master_file(path: &Path, clusters: u32) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "$ORIGIN {DOMAIN}.\n$TTL {TTL}")?;
    writeln!(file, "@ SOA ns1 hostmaster 1 3600 600 604800 {TTL}\n@ NS ns1\nns1 A 127.0.0.1")?;
    for member in (0..clusters).map(Member) {
        let (name, [n1, n2], [m1, m2]) = (member.name(), member.nodes(), nodes_v6(member));
        writeln!(file, "api.{name} A {GATEWAY}")?;
        writeln!(file, "*.{name} A {n1}\n*.{name} A {n2}\n*.{name} AAAA {m1}\n*.{name} AAAA {m2}")?;
    }
    Ok(file.into_inner()?.sync_data()?)
}
