//! What the control planes' resolver knows of a cluster, and which port each cluster has there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::fact::Since;
use crate::identity::{ClusterName, ObjectName};
use crate::name::DnsName;
use crate::network::Cidr;

/// The port of DNS.
pub const DNS_PORT: u16 = 53;

/// The DNS inside a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDns {
    /// What its Services are under.
    pub domain: DnsName,
    /// Where its DNS answers, inside.
    pub server: SocketAddr,
    /// The networks of its Services, as far as they are given. The first address of each is its own API server's.
    pub services: Vec<Cidr>,
    /// The networks of its pods, as far as they are given.
    pub pods: Vec<Cidr>,
}

impl Default for ClusterDns {
    /// What most clusters have.
    fn default() -> Self {
        let domain = "cluster.local".parse().expect("the default is a name");
        let server = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 10, 10, 10)), DNS_PORT);
        Self { domain, server, services: Vec::new(), pods: Vec::new() }
    }
}

/// Where a cluster's control plane meets the resolver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResolverPlace {
    /// The port that is its own: a question that comes there is the cluster's.
    pub port: u16,
    /// What stands in `nameservers` of its pods, once that is known.
    pub address: Option<IpAddr>,
}

/// All that the resolver has to know of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolverPart {
    pub dns: ClusterDns,
    /// The namespace on the hub in which its control plane runs: the only one whose Services it may look up there.
    pub namespace: Option<ObjectName>,
    /// None until it has been given one.
    pub place: Option<ResolverPlace>,
}

/// The ports that clusters can have, the first and the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(RangeInclusive<u16>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortsError {
    #[error("{0:?} is no range of ports; write the first and the last, such as 5400-9399")]
    Malformed(String),
    #[error("{0}-{1}: the first port is 1 or more, and not behind the last")]
    Empty(u16, u16),
}

impl Ports {
    pub fn new(first: u16, last: u16) -> Result<Self, PortsError> {
        if first == 0 || first > last { Err(PortsError::Empty(first, last)) } else { Ok(Self(first..=last)) }
    }

    pub fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }

    pub fn first(&self) -> u16 {
        *self.0.start()
    }

    pub fn last(&self) -> u16 {
        *self.0.end()
    }
}

impl FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let malformed = || PortsError::Malformed(text.into());
        let (first, last) = text.split_once('-').ok_or_else(malformed)?;
        let port = |text: &str| text.parse().map_err(|_| malformed());
        Self::new(port(first)?, port(last)?)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first(), self.last())
    }
}

/// Gives every cluster a port of its own.
///
/// Who has one keeps it as long as it is of the range: pods were started with it. Where two have the same, which no
/// assignment makes, the earlier cluster keeps it. Others get the lowest that is free, the earliest first; when none is
/// left, the last ones go without.
pub fn assign<'a>(
    ports: &Ports,
    kept: &BTreeMap<ClusterName, u16>,
    clusters: impl IntoIterator<Item = (&'a Since, &'a ClusterName)>,
) -> BTreeMap<ClusterName, u16> {
    let clusters: BTreeSet<(&Since, &ClusterName)> = clusters.into_iter().collect();
    let mut given = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (_, cluster) in &clusters {
        let port = kept.get(cluster).copied().filter(|port| ports.contains(*port));
        if let Some(port) = port.filter(|_| !given.contains_key(*cluster)).filter(|port| taken.insert(*port)) {
            given.insert(ClusterName::clone(cluster), port);
        }
    }
    let mut free = ports.0.clone().filter(|port| !taken.contains(port));
    for (_, cluster) in &clusters {
        if given.contains_key(*cluster) {
            continue;
        }
        let Some(port) = free.next() else { break };
        given.insert(ClusterName::clone(cluster), port);
    }
    given
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fact::Timestamp;

    fn name(text: &str) -> ClusterName {
        text.parse().unwrap()
    }

    /// `NAME@SINCE` and `NAME=PORT`, separated by blanks.
    fn assigned(range: &str, kept: &str, clusters: &str) -> String {
        let kept = kept.split_whitespace().map(|text| {
            let (cluster, port) = text.split_once('=').unwrap();
            (name(cluster), port.parse().unwrap())
        });
        let clusters: Vec<_> = clusters
            .split_whitespace()
            .map(|text| {
                let (cluster, since) = text.split_once('@').unwrap();
                (Since::at(Timestamp(since.parse().unwrap())), name(cluster))
            })
            .collect();
        let given =
            assign(&range.parse().unwrap(), &kept.collect(), clusters.iter().map(|(since, name)| (since, name)));
        given.iter().map(|(cluster, port)| format!("{cluster}={port}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ports_are_given() {
        for (what, range, kept, clusters, expected) in [
            ("the earliest gets the lowest", "7-9", "", "b@2 a@3 c@1", "a=9 b=8 c=7"),
            ("ties go by name", "7-9", "", "b@1 a@1", "a=7 b=8"),
            ("kept ports stay", "7-9", "b=8", "a@1 b@2 c@3", "a=7 b=8 c=9"),
            ("what is gone is free", "7-9", "a=7 b=8", "b@2 c@3", "b=8 c=7"),
            ("outside of the range a new one is given", "7-9", "a=6 b=7", "a@1 b@2", "a=8 b=7"),
            ("the last ones go without", "7-8", "", "a@1 b@2 c@3", "a=7 b=8"),
            ("a kept port is no reason to wait", "7-8", "c=8", "a@1 b@2 c@3", "a=7 c=8"),
            ("of two that have the same the earlier keeps it", "7-9", "a=8 b=8", "a@2 b@1", "a=7 b=8"),
            ("the highest port there is", "65535-65535", "", "a@1 b@2", "a=65535"),
        ] {
            assert_eq!(assigned(range, kept, clusters), expected, "{what}");
        }
    }

    #[test]
    fn ranges_are_read() {
        for good in ["1-65535", "5400-5400"] {
            assert_eq!(good.parse::<Ports>().unwrap().to_string(), good);
        }
        for bad in ["", "5400", "0-10", "10-9", "1-65536", "a-b", "-1-2"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }

    proptest! {
        /// Whatever comes and goes: nobody loses a port that it has, no two have the same, all are of the range, nobody
        /// goes without while one is free, and giving again changes nothing, in whatever order the clusters are told.
        #[test]
        fn ports_hold(
            (first, length) in (1_u16..50, 0_u16..12),
            steps in prop::collection::vec(prop::collection::btree_map(0_u8..20, 0_u64..5, 0..15), 1..8),
        ) {
            let ports = Ports::new(first, first + length).unwrap();
            let mut kept = BTreeMap::new();
            for step in steps {
                let clusters: Vec<_> = step.iter().map(|(number, since)| (Since::at(Timestamp(*since)), name(&format!("c{number}")))).collect();
                let told = || clusters.iter().map(|(since, name)| (since, name));
                let given = assign(&ports, &kept, told());
                for (_, cluster) in &clusters {
                    if let Some(port) = kept.get(cluster) {
                        prop_assert_eq!(given.get(cluster), Some(port));
                    }
                }
                let distinct: BTreeSet<_> = given.values().collect();
                prop_assert_eq!(distinct.len(), given.len());
                prop_assert!(given.values().all(|port| ports.contains(*port)));
                prop_assert_eq!(given.len(), clusters.len().min(usize::from(length) + 1));
                prop_assert_eq!(&assign(&ports, &given, told()), &given);
                prop_assert_eq!(&assign(&ports, &kept, clusters.iter().rev().map(|(since, name)| (since, name))), &given);
                kept = given;
            }
        }
    }
}
