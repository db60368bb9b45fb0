//! What the snapshot alone decides about a connection, in the order in which it is decided: where it goes, who may make
//! it, and whether it has to prove anything. Real connections and `explain` come here alike.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use model::snapshot::Route;
use model::{DnsName, Snapshot};

use crate::proof::{self, Nonce};
use crate::refusal::Refusal;

/// Where a connection wants to go.
#[derive(Debug)]
pub(crate) enum Selector<'a> {
    ClusterId {
        id: &'a [u8],
        /// That it may, as the header has it.
        proof: Option<&'a [u8]>,
    },
    ServerName(DnsName),
}

/// A connection that may be made, once its proof has turned out to be good.
#[derive(Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) route: Arc<Route>,
    pub(crate) proof: Option<DueProof<'a>>,
}

/// A proof that has to be checked.
#[derive(Debug)]
pub(crate) struct DueProof<'a> {
    octets: &'a [u8],
    cluster_id: &'a [u8],
}

/// `source` is the real peer, or who a trusted proxy says it speaks for; never what any other header says.
pub(crate) fn decide<'a>(
    snapshot: &Snapshot,
    selector: &Selector<'a>,
    agents: Option<&Arc<Route>>,
    source: IpAddr,
) -> Result<Decision<'a>, Refusal> {
    let route = find_route(snapshot, selector, agents)?;
    check_source(route, source)?;
    let proof = due_proof(route, selector)?;
    Ok(Decision { route: Arc::clone(route), proof })
}

/// `agents` is where the agents' door is, in a process that has it.
pub(crate) fn find_route<'s>(
    snapshot: &'s Snapshot,
    selector: &Selector<'_>,
    agents: Option<&'s Arc<Route>>,
) -> Result<&'s Arc<Route>, Refusal> {
    match selector {
        Selector::ClusterId { id, .. } => snapshot.route_by_id(id).ok_or_else(|| Refusal::unknown_cluster_id(id)),
        Selector::ServerName(name) => {
            let agents = || agents.filter(|_| snapshot.is_agents_door(name));
            let route = snapshot.route_by_server_name(name).or_else(agents).or_else(|| snapshot.route_by_apps(name));
            route.ok_or_else(|| Refusal::UnknownServerName(name.clone()))
        }
    }
}

/// Whether a connection ends here, as far as TLS goes: the host has a certificate, and neither a control plane nor an `apps`
/// wildcard has the name.
pub(crate) fn is_terminated(snapshot: &Snapshot, name: &DnsName) -> bool {
    let is_ours = || snapshot.route_by_server_name(name).is_some() || snapshot.is_agents_door(name);
    let is_passed_on = || is_ours() || snapshot.route_by_apps(name).is_some();
    snapshot.http().host(name).is_some_and(|host| host.certificate.is_some()) && !is_passed_on()
}

pub(crate) fn check_source(route: &Route, source: IpAddr) -> Result<(), Refusal> {
    if route.admits(source) {
        return Ok(());
    }
    Err(Refusal::SourceNotAllowed { client: source, cluster: route.cluster.clone() })
}

/// A proof that comes is checked wherever there are keys to check it by, so that a wrong key is noticed before the
/// cluster demands proofs. Server names select nothing that needs one.
pub(crate) fn due_proof<'a>(route: &Route, selector: &Selector<'a>) -> Result<Option<DueProof<'a>>, Refusal> {
    let Selector::ClusterId { id, proof } = *selector else { return Ok(None) };
    match proof {
        None if route.proof.required => Err(Refusal::ProofMissing(route.cluster.clone())),
        Some(octets) if route.proof.required || !route.proof.keys.is_empty() => {
            Ok(Some(DueProof { octets, cluster_id: id }))
        }
        _ => Ok(None),
    }
}

impl<'a> DueProof<'a> {
    /// What is left of a good one is to be spent.
    pub(crate) fn check(self, route: &Route, now: SystemTime) -> Result<Nonce<'a>, Refusal> {
        proof::check(self.octets, self.cluster_id, &route.proof.keys, now)
            .map_err(|error| Refusal::bad_proof(&route.cluster, error))
    }
}
