//! Facts: what was observed, and since when.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{AddressClaim, AddressName, AddressPool, Allocation, ClaimId};
use crate::digest::Digest;
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::ingress::{Certificate, FederationPolicy, Ingress, IngressClass};
use crate::name::DnsName;
use crate::refusal::Refusal;
use crate::resource::{Cluster, HeldClaims, Place, RecordClaims, Resting, Tenant, Zone};

/// Nanoseconds since the Unix epoch. The model is told the time, it never asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub fn from_unix(since_epoch: Duration) -> Self {
        // 2^64 nanoseconds reach to the year 2554.
        Self(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
    }

    pub fn as_unix(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// RFC 3339 in UTC, whole seconds: what Kubernetes conditions carry.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000_000;
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil_from_days(days);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
    }
}

/// The Gregorian date of a day after the epoch, counted in years that begin in March so that the leap day is last.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Decides who was first: the moment, then a tie-break (the UID on a hub, nothing in a folder).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Since {
    pub moment: Timestamp,
    pub tie: Option<Arc<str>>,
}

impl Since {
    pub fn at(moment: Timestamp) -> Self {
        Self { moment, tie: None }
    }

    /// Tells a cluster from a later one of the same name. On a hub it is the object's own; a folder has none, and the moment
    /// that it was first seen does.
    pub fn uid(&self, cluster: &ClusterName) -> Arc<str> {
        self.tie.clone().unwrap_or_else(|| format!("{cluster}-{:x}", self.moment.0).into())
    }
}

/// A resource and since when it has been there.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact<T> {
    pub since: Since,
    /// Which generation of the object it is; a folder knows none.
    pub generation: Option<i64>,
    pub value: T,
}

impl<T> Fact<T> {
    pub fn new(since: Since, value: T) -> Self {
        Self { since, generation: None, value }
    }
}

/// The serial under which the leader published the content of a zone that has this digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    pub serial: u32,
    pub digest: Digest,
}

/// One thing that became known; `None` means that it is gone.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // Nearly all facts are of clusters.
pub enum FactChange {
    Zone(ObjectName, Option<Fact<Zone>>),
    Tenant(ObjectName, Option<Fact<Tenant>>),
    Cluster(ClusterName, Option<Fact<Cluster>>),
    /// A `DNSEndpoint`: what a tenant asks for.
    Records(ObjectRef, Option<Fact<RecordClaims>>),
    AddressPool(ObjectName, Option<Fact<AddressPool>>),
    AddressClaim(ClaimId, Option<Fact<AddressClaim>>),
    /// What a home has written down of an address.
    Address(IpAddr, Option<Allocation>),
    Ingress(ObjectRef, Option<Fact<Ingress>>),
    IngressClass(ObjectName, Option<Fact<IngressClass>>),
    FederationPolicy(ObjectName, Option<Fact<Arc<FederationPolicy>>>),
    /// What is in a Secret with a certificate, or why that cannot be used.
    Certificate(ObjectRef, Option<Result<Arc<Certificate>, Refusal>>),
    /// An object that nothing acts upon, such as a Secret without a certificate: there or gone.
    Other(ObjectRef, bool),
    /// An object that is there and cannot be read. It is refused until its next fact, and nothing else: whoever feeds
    /// facts decides whether an earlier good one stays and is served on, or is taken away first.
    Broken(ObjectRef, Refusal),
    /// What a hub says of a Zone's content.
    Number(ObjectName, Option<Number>),
    /// What a hub says of the content of a pool's reverse zone.
    ReverseNumber(DnsName, Number),
    /// What a home has written down of a tenant's that is held. It counts for a tenant that is seen for the first time: later
    /// the plan knows better. What it once said and does not any more is let go.
    Held(ObjectName, Vec<HeldClaims>),
    /// Somebody has let go whatever was held of a Zone or a Tenant until then.
    Released(ObjectRef, Timestamp),
    /// Since when somebody wants no federated traffic to be sent to a cluster, beside what its object says; `None` where that is over.
    /// It counts for the cluster that was there then, not for a later one of its name.
    Drained(ClusterName, Option<Timestamp>),
    /// What a home has written down of names that rest.
    Resting(Vec<(Place, Resting)>),
}

impl FactChange {
    /// That an object is gone.
    pub fn gone(object: &ObjectRef) -> Self {
        match object.kind {
            Kind::Zone => Self::Zone(object.name.clone(), None),
            Kind::Tenant => Self::Tenant(object.name.clone(), None),
            Kind::DnsEndpoint => Self::Records(object.clone(), None),
            Kind::AddressPool => Self::AddressPool(object.name.clone(), None),
            Kind::AddressClaim => match ClaimId::of(object) {
                Some(id) => Self::AddressClaim(id, None),
                None => Self::Other(object.clone(), false),
            },
            Kind::Address => match object.name.as_str().parse::<AddressName>() {
                Ok(name) => Self::Address(name.0, None),
                Err(_) => Self::Other(object.clone(), false),
            },
            // What is no cluster's name has never been one's.
            Kind::Cluster => match object.name.as_str().parse() {
                Ok(name) => Self::Cluster(name, None),
                Err(_) => Self::Other(object.clone(), false),
            },
            Kind::Ingress => Self::Ingress(object.clone(), None),
            Kind::IngressClass => Self::IngressClass(object.name.clone(), None),
            Kind::FederationPolicy => Self::FederationPolicy(object.name.clone(), None),
            Kind::Secret => Self::Certificate(object.clone(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp(seconds * 1_000_000_000).to_string(), text);
        }
    }
}
