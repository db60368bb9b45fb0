//! What the plan wants to find again after a restart: how far serials have come, and which addresses it kept for
//! clusters without a ready node.

use std::net::IpAddr;

use model::digest::Digest;
use model::serial::SerialFloor;
use model::{ClusterName, DnsName, KeptSet, Timestamp};
use serde::{Deserialize, Serialize};

use crate::database::{Database, DatabaseError, KEPT, SERIALS};

/// What an earlier process wrote down.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub serials: Vec<(DnsName, SerialFloor)>,
    pub kept: Vec<(ClusterName, KeptSet)>,
}

#[derive(Serialize, Deserialize)]
struct StoredFloor {
    serial: u32,
    /// In hexadecimal digits: JSON has no numbers of this size.
    digest: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredSet {
    name: String,
    addresses: Vec<IpAddr>,
    /// Nanoseconds since the Unix epoch.
    until: u64,
}

impl Database {
    pub fn recall(&self) -> Result<Memory, DatabaseError> {
        let mut memory = Memory::default();
        self.visit(SERIALS, "", |domain, value| {
            memory.serials.push(floor(domain, value).ok_or_else(|| DatabaseError::Entry(domain.into()))?);
            Ok(())
        })?;
        self.visit(KEPT, "", |cluster, value| {
            memory.kept.push(kept(cluster, value).ok_or_else(|| DatabaseError::Entry(cluster.into()))?);
            Ok(())
        })?;
        Ok(memory)
    }

    /// Returns once it is on disk.
    pub fn remember(
        &self,
        serials: &[(DnsName, SerialFloor)],
        kept: &[(ClusterName, Option<KeptSet>)],
    ) -> Result<(), DatabaseError> {
        let json = |value: serde_json::Result<Vec<u8>>| value.expect("these are texts and numbers");
        self.write_with(|transaction| {
            let mut table = transaction.open_table(SERIALS)?;
            for (domain, SerialFloor { serial, digest }) in serials {
                let digest = digest.as_ref().map(ToString::to_string);
                let value = json(serde_json::to_vec(&StoredFloor { serial: *serial, digest }));
                table.insert(domain.to_string().as_str(), value.as_slice())?;
            }
            let mut table = transaction.open_table(KEPT)?;
            for (cluster, set) in kept {
                let cluster = cluster.to_string();
                let Some(KeptSet { name, addresses, until }) = set else {
                    table.remove(cluster.as_str())?;
                    continue;
                };
                let (name, addresses) = (name.to_string(), addresses.clone());
                let value = json(serde_json::to_vec(&StoredSet { name, addresses, until: until.0 }));
                table.insert(cluster.as_str(), value.as_slice())?;
            }
            Ok(())
        })
    }
}

fn floor(domain: &str, value: &[u8]) -> Option<(DnsName, SerialFloor)> {
    let StoredFloor { serial, digest } = serde_json::from_slice(value).ok()?;
    let digest = digest.map(|digits| u128::from_str_radix(&digits, 16)).transpose().ok()?;
    Some((DnsName::parse(domain).ok()?, SerialFloor { serial, digest: digest.map(Digest) }))
}

fn kept(cluster: &str, value: &[u8]) -> Option<(ClusterName, KeptSet)> {
    let StoredSet { name, addresses, until } = serde_json::from_slice(value).ok()?;
    let set = KeptSet { name: DnsName::parse(&name).ok()?, addresses, until: Timestamp(until) };
    Some((cluster.parse().ok()?, set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_remembered_is_recalled_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Database::open(folder.path()).unwrap();
        assert_eq!(open().recall().unwrap(), Memory::default());
        let name = |text: &str| DnsName::parse(text).unwrap();
        let cluster = |text: &str| text.parse::<ClusterName>().unwrap();
        let floor = |serial, digest: Option<u128>| SerialFloor { serial, digest: digest.map(Digest) };
        let set = KeptSet {
            name: name("*.c1.fleet.example"),
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            until: Timestamp(7),
        };
        let first = [(name("fleet.example"), floor(7, None)), (name("*.x\\.y.test"), floor(u32::MAX, Some(u128::MAX)))];
        let kept = [(cluster("c1"), Some(set.clone())), (cluster("c2"), Some(set.clone()))];
        open().remember(&first, &kept).unwrap();
        open().remember(&[(name("fleet.example"), floor(8, Some(1)))], &[(cluster("c2"), None)]).unwrap();
        let expected = Memory {
            serials: vec![
                (name("*.x\\.y.test"), floor(u32::MAX, Some(u128::MAX))),
                (name("fleet.example"), floor(8, Some(1))),
            ],
            kept: vec![(cluster("c1"), set)],
        };
        assert_eq!(open().recall().unwrap(), expected);
    }
}
