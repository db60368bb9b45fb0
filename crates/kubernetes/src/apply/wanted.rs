//! The difference between the plan and the hub, for one object. Pure.

use manifest::address::AddressSpec;
use model::identity::Kind;
use model::overflow::Failing;
use model::snapshot::Detail;
use model::{ClusterName, ObjectName, ObjectRef, Snapshot};

use super::actual::State;
use super::address;
use super::publish::{self, WantedEndpoint};
use super::status::OwnStatus;
use super::verdict::{self, Judged, Place, WantedVerdict};

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
    /// Names to be handed out.
    Publish {
        endpoint: WantedEndpoint,
    },
    /// The UID is of the object to delete; one that took its place in between stays.
    Withdraw {
        name: ObjectName,
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
pub(super) fn wanted(object: &ObjectRef, plan: &Snapshot, hub: &State, failing: &Failing) -> Vec<Write> {
    match object.kind {
        Kind::Zone | Kind::Tenant | Kind::AddressPool | Kind::AddressClaim | Kind::FederationPolicy => {
            status(object, plan, hub).into_iter().collect()
        }
        Kind::Cluster => status(object, plan, hub).into_iter().chain(published(object, plan, hub)).collect(),
        // What we publish is not judged by anybody, nor published again.
        Kind::DnsEndpoint | Kind::Ingress if is_published(object) => Vec::new(),
        Kind::DnsEndpoint => {
            published(object, plan, hub).into_iter().chain(judged(object, plan, hub, failing)).collect()
        }
        Kind::Ingress => {
            let beside = published(object, plan, hub).into_iter().chain(judged(object, plan, hub, failing));
            beside.chain(entry(object, plan, hub)).collect()
        }
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

/// Where clients meet an Ingress. What others serve is theirs to say: what we said of it once is taken back.
fn entry(object: &ObjectRef, plan: &Snapshot, hub: &State) -> Option<Write> {
    if !plan.is_foreign(object) {
        return status(object, plan, hub);
    }
    let seen = hub.object(object).filter(|seen| seen.is_told)?;
    let status = OwnStatus::of_nowhere();
    Some(Write::Status { object: object.clone(), uid: seen.uid.clone(), version: None, status })
}

fn published(object: &ObjectRef, plan: &Snapshot, hub: &State) -> Option<Write> {
    let name = publish::name(object);
    let there = hub.published(&name);
    match handed_out(object, plan, hub) {
        Handed::Unknown => None,
        Handed::Wanted(endpoint) if there.is_some_and(|there| there.is(&endpoint)) => None,
        Handed::Wanted(endpoint) => Some(Write::Publish { endpoint }),
        Handed::Nothing => {
            let uid = there.filter(|there| there.ours && is_settled(object, plan, hub))?.uid.clone();
            Some(Write::Withdraw { name, uid })
        }
    }
}

enum Handed {
    Wanted(WantedEndpoint),
    Nothing,
    /// The plan is ahead of the hub, which will be heard of.
    Unknown,
}

fn handed_out(object: &ObjectRef, plan: &Snapshot, hub: &State) -> Handed {
    if object.namespace.is_some() {
        let detail = plan.status(object).map(|status| &status.detail);
        let wanted = match detail {
            Some(Detail::Records { parts, .. }) => {
                publish::of_claims(object, parts.iter().filter_map(|part| part.outcome.as_ref().ok()))
            }
            Some(Detail::Ingress { published, .. }) => publish::of_claims(object, published),
            _ => None,
        };
        return wanted.map_or(Handed::Nothing, Handed::Wanted);
    }
    let part = object.name.as_str().parse::<ClusterName>().ok().and_then(|name| plan.cluster(&name));
    match (part.filter(|part| part.hand_out), hub.object(object)) {
        (None, _) => Handed::Nothing,
        (Some(_), None) => Handed::Unknown,
        (Some(part), Some(seen)) => Handed::Wanted(publish::of_cluster(&object.name, &seen.uid, &part.names)),
    }
}

fn judged(object: &ObjectRef, plan: &Snapshot, hub: &State, failing: &Failing) -> Option<Write> {
    let place = (object.namespace.clone()?, object.name.clone());
    let there = hub.verdict(&place);
    let sharing = verdict::sharing(&place);
    let judged: Vec<_> = sharing
        .iter()
        .filter_map(|object| {
            let (seen, status) = (hub.object(object)?, plan.status(object)?);
            let status = status.with_failing(failing.get(object));
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

fn is_published(object: &ObjectRef) -> bool {
    object.namespace.as_ref().is_some_and(|namespace| namespace.as_str() == publish::NAMESPACE)
}

/// Whether the plan has come to the object, or it is gone or others' to serve. Until then nothing of its is deleted.
fn is_settled(object: &ObjectRef, plan: &Snapshot, hub: &State) -> bool {
    plan.status(object).is_some() || plan.is_foreign(object) || hub.object(object).is_none()
}
