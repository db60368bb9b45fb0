//! Our part of an object's status: what is the plan's to say. `nodes`, `ingresses` and the condition `Reachable` of a Cluster
//! are written by whoever watches it, `resolver` by whoever gives ports, other conditions by people and programs that we do not know.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manifest::bounded::List;
use manifest::status::{
    AddressClaimStatus, AddressPoolStatus, ClusterStatus, IngressEntry, ObjectStatus, TenantStatus, ZoneStatus,
};
use model::Digest;
use model::identity::Kind;
use model::serial::is_newer;
use model::snapshot::{Condition as Planned, Status};
use serde_json::Value;

/// Those that the plan may have written: where it does not any more, they have to go.
const OURS: [&str; 11] = [
    Planned::ACCEPTED,
    Planned::PUBLISHED,
    Planned::NODES_READY,
    Planned::DOOR_OPEN,
    Planned::INGRESS_ROUTED,
    Planned::DRAINED,
    Planned::ALLOCATED,
    Planned::PTR_PUBLISHED,
    Planned::REVERSE_SERVED,
    Planned::NAMESPACE_OWNED,
    Planned::WITHDRAWALS_HELD,
];

#[derive(Debug, Clone, PartialEq)]
pub struct OwnStatus {
    body: Body,
    /// Not ours, but news.
    reachable: Option<Condition>,
}

#[derive(Debug, Clone, PartialEq)]
enum Body {
    Plain(ObjectStatus),
    Tenant(TenantStatus),
    Zone(ZoneStatus),
    Cluster(Box<ClusterStatus>),
    Pool(AddressPoolStatus),
    Claim(AddressClaimStatus),
    Ingress(IngressEntry),
}

impl OwnStatus {
    /// The status as it stands in an object; `None` where the kind has none or it is of another form.
    pub fn read(kind: Kind, status: &Value) -> Option<Self> {
        // A reference to a value is a deserializer of it: nothing is copied but what is kept.
        fn typed<'de, T: serde::Deserialize<'de> + Into<OwnStatus>>(status: &'de Value) -> Option<OwnStatus> {
            T::deserialize(status).ok().map(Into::into)
        }
        match kind {
            Kind::Zone => typed::<ZoneStatus>(status),
            Kind::Cluster => typed::<ClusterStatus>(status),
            Kind::AddressPool => typed::<AddressPoolStatus>(status),
            Kind::AddressClaim => typed::<AddressClaimStatus>(status),
            Kind::Tenant => typed::<TenantStatus>(status),
            Kind::FederationPolicy => typed::<ObjectStatus>(status),
            // One that nobody has said anything of yet has none.
            Kind::Ingress if status.is_null() => Some(IngressEntry::default().into()),
            Kind::Ingress => typed::<IngressEntry>(status),
            Kind::Address | Kind::DnsEndpoint | Kind::IngressClass | Kind::Secret => None,
        }
    }

    /// What the plan says, with the hub's date on every condition that has not flipped since: a leader that follows
    /// another changes no dates.
    pub(super) fn planned(kind: Kind, status: &Status, on_hub: Option<&Self>) -> Option<Self> {
        let mut planned = Self::read(kind, &manifest::status::to_json(kind, status))?;
        for condition in planned.body.conditions_mut() {
            let earlier = on_hub.and_then(|on_hub| on_hub.condition(&condition.type_));
            if let Some(earlier) = earlier.filter(|earlier| earlier.status == condition.status) {
                condition.last_transition_time = earlier.last_transition_time.clone();
            }
        }
        Some(planned)
    }

    /// Of an Ingress that nobody meets through us.
    pub(super) fn of_nowhere() -> Self {
        IngressEntry::default().into()
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.body.conditions().iter().find(|condition| condition.type_ == kind)
    }

    pub(super) fn reachable(&self) -> Option<&Condition> {
        self.reachable.as_ref()
    }

    /// Whether the hub has all that is planned, and nothing that once was.
    pub(super) fn is_on(&self, hub: &Self) -> bool {
        let mut on_hub = hub.body.clone();
        let ours = |kind: &str| OURS.contains(&kind) || self.condition(kind).is_some();
        on_hub.conditions_mut().retain(|condition| ours(&condition.type_));
        on_hub == self.body
    }

    /// Whether it gives a zone a number that the hub has given already, to something else, or an earlier one: the plan has
    /// not heard of it yet.
    pub(super) fn is_numbered_behind(&self, hub: &Self) -> bool {
        let (Body::Zone(planned), Body::Zone(on_hub)) = (&self.body, &hub.body) else { return false };
        // What nobody can read is no number, neither here nor for the plan.
        let readable = on_hub.digest.as_ref().is_some_and(|digest| digest.parse::<Digest>().is_ok());
        match (planned.serial, on_hub.serial) {
            (Some(serial), Some(last)) if readable => {
                (serial, &planned.digest) != (last, &on_hub.digest) && !is_newer(serial, last)
            }
            _ => false,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let written = match &self.body {
            Body::Plain(status) => serde_json::to_value(status),
            Body::Tenant(status) => serde_json::to_value(status),
            Body::Zone(status) => serde_json::to_value(status),
            Body::Cluster(status) => serde_json::to_value(status),
            Body::Pool(status) => serde_json::to_value(status),
            Body::Claim(status) => serde_json::to_value(status),
            Body::Ingress(status) => serde_json::to_value(status),
        };
        written.expect("a status is made of texts and numbers")
    }

    fn new(mut body: Body) -> Self {
        let reachable =
            body.conditions_mut().extract_if(.., |condition| condition.type_ == ClusterStatus::REACHABLE).next();
        // The hub keeps them in an order of its own.
        body.conditions_mut().sort_by(|left, right| left.type_.cmp(&right.type_));
        Self { body, reachable }
    }
}

impl Body {
    fn conditions(&self) -> &[Condition] {
        match self {
            Self::Plain(status) => &status.conditions,
            Self::Tenant(status) => &status.conditions,
            Self::Zone(status) => &status.conditions,
            Self::Cluster(status) => &status.conditions,
            Self::Pool(status) => &status.conditions,
            Self::Claim(status) => &status.conditions,
            Self::Ingress(status) => &status.conditions,
        }
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        match self {
            Self::Plain(status) => &mut status.conditions,
            Self::Tenant(status) => &mut status.conditions,
            Self::Zone(status) => &mut status.conditions,
            Self::Cluster(status) => &mut status.conditions,
            Self::Pool(status) => &mut status.conditions,
            Self::Claim(status) => &mut status.conditions,
            Self::Ingress(status) => &mut status.conditions,
        }
    }
}

impl From<ObjectStatus> for OwnStatus {
    fn from(status: ObjectStatus) -> Self {
        Self::new(Body::Plain(status))
    }
}

impl From<TenantStatus> for OwnStatus {
    fn from(status: TenantStatus) -> Self {
        Self::new(Body::Tenant(status))
    }
}

impl From<ZoneStatus> for OwnStatus {
    fn from(status: ZoneStatus) -> Self {
        Self::new(Body::Zone(status))
    }
}

impl From<ClusterStatus> for OwnStatus {
    fn from(status: ClusterStatus) -> Self {
        Self::new(Body::Cluster(Box::new(ClusterStatus {
            nodes: List::default(),
            ingresses: List::default(),
            more_ingresses: false,
            resolver: None,
            ..status
        })))
    }
}

impl From<AddressPoolStatus> for OwnStatus {
    fn from(status: AddressPoolStatus) -> Self {
        Self::new(Body::Pool(status))
    }
}

impl From<AddressClaimStatus> for OwnStatus {
    fn from(status: AddressClaimStatus) -> Self {
        Self::new(Body::Claim(status))
    }
}

impl From<IngressEntry> for OwnStatus {
    fn from(status: IngressEntry) -> Self {
        Self::new(Body::Ingress(status))
    }
}
