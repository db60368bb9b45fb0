//! Who carries streams into which clusters.

use std::net::SocketAddr;
use std::sync::Arc;

use model::ClusterName;
use serde::{Deserialize, Serialize};

use super::super::replicas::{MAX_LINKED, MAX_NAMED, Replica, Replicas};
use super::super::{MAX_PEERS, Peer, Role};
use super::name;

/// What a process says of itself.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplicaLine<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    certificate: String,
    links: bool,
    #[serde(borrow)]
    clusters: Vec<&'a str>,
}

/// What everybody is told of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListedLine<'a> {
    name: &'a str,
    role: &'a str,
    #[serde(borrow)]
    is: ReplicaLine<'a>,
}

impl<'a> ReplicaLine<'a> {
    pub(super) fn of(replica: &'a Replica) -> Self {
        let clusters = replica.clusters.iter().take(MAX_LINKED).map(ClusterName::as_str).collect();
        let Replica { address, certificate, takes_links, .. } = replica;
        Self { address: *address, certificate: certificate.to_string(), links: *takes_links, clusters }
    }

    pub(super) fn read(self) -> Result<Replica, String> {
        if self.clusters.len() > MAX_LINKED {
            return Err(format!("more than {MAX_LINKED} clusters"));
        }
        if self.address.is_some_and(|address| address.ip().is_unspecified() || address.port() == 0) {
            return Err("nobody can relay to that address".to_owned());
        }
        let certificate = self.certificate.parse().map_err(|_| "a fingerprint is none".to_owned())?;
        let clusters = self.clusters.into_iter().map(name).collect::<Result<Vec<ClusterName>, _>>()?;
        if !clusters.is_sorted_by(|one, other| one < other) {
            return Err("clusters are in no order, or there twice".to_owned());
        }
        Ok(Replica { address: self.address, certificate, takes_links: self.links, clusters })
    }
}

impl<'a> ListedLine<'a> {
    pub(super) fn of(peer: &'a Peer, replica: &'a Replica) -> Self {
        Self { name: peer.name.as_str(), role: peer.role.as_str(), is: ReplicaLine::of(replica) }
    }

    fn read(self) -> Result<(Peer, Arc<Replica>), String> {
        let role: Role = self.role.parse().map_err(|_| "a role is none".to_owned())?;
        Ok((Peer { name: name(self.name)?, role }, Arc::new(self.is.read()?)))
    }
}

pub(super) fn read(all: Vec<ListedLine<'_>>) -> Result<Replicas, String> {
    // The leader itself is one more than it hears.
    if all.len() > MAX_PEERS + 1 {
        return Err(format!("more than {MAX_PEERS} replicas"));
    }
    if all.iter().map(|listed| listed.is.clusters.len()).sum::<usize>() > MAX_NAMED {
        return Err(format!("more than {MAX_NAMED} clusters"));
    }
    let all = all.into_iter().map(ListedLine::read).collect::<Result<Vec<_>, _>>()?;
    if !all.is_sorted_by(|(one, _), (other, _)| one < other) {
        return Err("replicas are in no order, or there twice".to_owned());
    }
    Ok(Replicas(all))
}
