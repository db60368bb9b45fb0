//! The difference between the plan and the hub, for one object. Pure.

use manifest::address::AddressSpec;
use manifest::dns_endpoint::EndpointSpec;
use model::identity::Kind;
use model::{ClusterName, ObjectName, ObjectRef, Snapshot};

use super::actual::State;
use super::status::OwnStatus;
use super::verdict::{self, Judged, Place, WantedVerdict};
use super::{address, publish};

/// One request to the hub.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    /// Onto whatever has the name: one that was made anew in between is judged when it is seen, which is another write, as its
    /// UID is another. With a version, onto that version alone.
    Status {
        object: ObjectRef,
        uid: String,
        version: Option<String>,
        status: OwnStatus,
    },
    /// The cluster's names, owned by the Cluster with this UID.
    Publish {
        cluster: ObjectName,
        uid: String,
        endpoints: Vec<EndpointSpec>,
    },
    /// The UID is of the object to delete; one that took its place in between stays.
    Withdraw {
        cluster: ObjectName,
        uid: String,
    },
    Judge {
        place: Place,
        verdict: WantedVerdict,
    },
    DropVerdict {
        place: Place,
        uid: String,
    },
    /// Where there is none: of two who do so, one is refused.
    Allocate {
        name: ObjectName,
        spec: AddressSpec,
    },
    /// In the place of this very one.
    Reallocate {
        name: ObjectName,
        uid: String,
        version: String,
        spec: AddressSpec,
    },
    Free {
        name: ObjectName,
        uid: String,
        version: String,
    },
}

/// In which order a round writes: what has the numbers of zones last, as they stand for all the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Statuses,
    Beside,
    Zones,
}

impl Write {
    pub(super) fn phase(&self) -> Phase {
        match self {
            Self::Status { object, .. } if matches!(object.kind, Kind::Zone | Kind::AddressPool) => Phase::Zones,
            Self::Status { .. } => Phase::Statuses,
            _ => Phase::Beside,
        }
    }

    /// Whether it is as good as done if there is nothing to remove any more.
    pub(super) fn is_removal(&self) -> bool {
        matches!(self, Self::Withdraw { .. } | Self::DropVerdict { .. } | Self::Free { .. })
    }
}

/// What is to be written so that the hub has what the plan says of `object`; nothing, if it has.
pub(super) fn wanted(object: &ObjectRef, plan: &Snapshot, hub: &State) -> Vec<Write> {
    match object.kind {
        Kind::Zone | Kind::Tenant | Kind::AddressPool | Kind::AddressClaim | Kind::FederationPolicy => {
            status(object, plan, hub).into_iter().collect()
        }
        Kind::Cluster => status(object, plan, hub).into_iter().chain(published(object, plan, hub)).collect(),
        Kind::DnsEndpoint | Kind::Ingress => judged(object, plan, hub).into_iter().collect(),
        Kind::Address => address::wanted(&object.name, plan, hub.address(&object.name)).into_iter().collect(),
        Kind::IngressClass | Kind::Secret => Vec::new(),
    }
}

fn status(object: &ObjectRef, plan: &Snapshot, hub: &State) -> Option<Write> {
    // One of them is ahead of the other, which will be heard of.
    let (seen, planned) = (hub.object(object)?, plan.status(object)?);
    let on_hub = seen.status.as_ref();
    let status = OwnStatus::planned(object.kind, planned, on_hub)?;
    if on_hub.is_some_and(|on_hub| status.is_on(on_hub) || status.is_numbered_behind(on_hub)) {
        return None;
    }
    // A number is given once: neither over one that we have not seen yet, of the leader before us, nor over one that we have
    // seen and not planned with.
    let version = (object.kind == Kind::Zone).then(|| seen.version.clone());
    Some(Write::Status { object: object.clone(), uid: seen.uid.clone(), version, status })
}

fn published(object: &ObjectRef, plan: &Snapshot, hub: &State) -> Option<Write> {
    let cluster = &object.name;
    let there = hub.published(cluster);
    let part = cluster.as_str().parse::<ClusterName>().ok().and_then(|name| plan.cluster(&name));
    if let Some(part) = part.filter(|part| part.hand_out) {
        let uid = &hub.object(object)?.uid;
        let endpoints = publish::endpoints(&part.names);
        if there.is_some_and(|there| there.is(cluster, uid, &endpoints)) {
            return None;
        }
        return Some(Write::Publish { cluster: cluster.clone(), uid: uid.clone(), endpoints });
    }
    let uid = there.filter(|there| there.ours && is_settled(object, plan, hub))?.uid.clone();
    Some(Write::Withdraw { cluster: cluster.clone(), uid })
}

fn judged(object: &ObjectRef, plan: &Snapshot, hub: &State) -> Option<Write> {
    let place = (object.namespace.clone()?, object.name.clone());
    // What we publish is not judged by anybody.
    if place.0.as_str() == publish::NAMESPACE {
        return None;
    }
    let there = hub.verdict(&place);
    let sharing = verdict::sharing(&place);
    let judged: Vec<_> = sharing
        .iter()
        .filter_map(|object| {
            let (seen, status) = (hub.object(object)?, plan.status(object)?);
            Some(Judged { object, uid: &seen.uid, generation: seen.generation, status })
        })
        .collect();
    match verdict::verdict(&judged) {
        Some(verdict) if there.is_some_and(|there| there.is(&verdict)) => None,
        Some(verdict) => Some(Write::Judge { place, verdict }),
        None => {
            let settled = sharing.iter().all(|object| is_settled(object, plan, hub));
            let uid = there.filter(|there| there.ours && settled)?.uid.clone();
            Some(Write::DropVerdict { place, uid })
        }
    }
}

/// Whether the plan has come to the object, or it is gone. Until then nothing of its is deleted.
fn is_settled(object: &ObjectRef, plan: &Snapshot, hub: &State) -> bool {
    plan.status(object).is_some() || hub.object(object).is_none()
}
