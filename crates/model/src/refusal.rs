//! A no with a code and a blame.

use crate::claim::Claim;
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::name::{DnsName, NameError};

/// Whose move it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Who connected or asked.
    Client,
    /// Who wrote the object.
    Author,
    /// The control plane behind the door.
    Backend,
    /// Fleetgate itself.
    Us,
}

impl Blame {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Author => "author",
            Self::Backend => "backend",
            Self::Us => "us",
        }
    }
}

/// Why an object is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no Zone is called {0}")]
    UnknownZone(ObjectName),
    #[error("Zone {0} is refused itself")]
    RefusedZone(ObjectName),
    #[error("no Tenant is called {0}")]
    UnknownTenant(ObjectName),
    #[error("Tenant {0} is refused itself")]
    RefusedTenant(ObjectName),
    #[error("{claim} belongs to Cluster {holder}, which was first")]
    Taken { claim: Claim, holder: ClusterName },
    #[error("{claim} is claimed twice by this very Cluster")]
    ClaimedTwice { claim: Claim },
    #[error("{name} is reserved by Zone {zone}")]
    Reserved { name: DnsName, zone: ObjectName },
    #[error("domain {domain} belongs to Zone {holder}, which was first")]
    DomainTaken { domain: DnsName, holder: ObjectName },
    #[error("{name} lies inside the domain of Zone {zone}, which would hide it")]
    HiddenByZone { name: DnsName, zone: ObjectName },
    #[error("{name} stands in the zone file of Zone {zone}")]
    InZoneFile { name: DnsName, zone: ObjectName },
    #[error("{name} lies below {cut}, whose {rtype} record in the zone file of Zone {zone} would hide it")]
    HiddenByZoneFile { name: DnsName, cut: DnsName, rtype: &'static str, zone: ObjectName },
    #[error("the Zone has no name servers; give `nameservers`, or NS records at the apex of its zone file")]
    NoNameservers,
    #[error("name server {0} lies inside the Zone and needs an address")]
    NameserverWithoutAddress(DnsName),
    #[error("the name made from template `{template}` does not fit: {source}")]
    NameTooLong { template: String, source: NameError },
    #[error("{0} needs a Kubernetes hub; a folder has no such thing")]
    NeedsHub(&'static str),
    #[error("{0} names a file beside the manifest; a hub has no such thing")]
    NeedsFolder(&'static str),
    /// Names what the object refers to, never what is in it.
    #[error("{what} cannot be used: {reason}")]
    Unreadable { what: String, reason: String },
    #[error("it cannot be read: {reason}")]
    Malformed { reason: String },
    #[error("Service {service} has never had a ready endpoint")]
    NoEndpoints { service: String },
    #[error("{0} is not supported yet; leave it out")]
    NotYet(&'static str),
}

impl Refusal {
    /// Fixed words: what conditions carry as reason, metrics as label and `explain` prints.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownZone(_) => "UnknownZone",
            Self::RefusedZone(_) => "RefusedZone",
            Self::UnknownTenant(_) => "UnknownTenant",
            Self::RefusedTenant(_) => "RefusedTenant",
            Self::Taken { claim: Claim::Id(_), .. } => "ClusterIdTaken",
            Self::Taken { claim: Claim::Name(_), .. } => "NameTaken",
            Self::ClaimedTwice { .. } => "ClaimedTwice",
            Self::Reserved { .. } => "Reserved",
            Self::DomainTaken { .. } => "DomainTaken",
            Self::HiddenByZone { .. } => "HiddenByZone",
            Self::InZoneFile { .. } => "InZoneFile",
            Self::HiddenByZoneFile { .. } => "HiddenByZoneFile",
            Self::NoNameservers => "NoNameservers",
            Self::NameserverWithoutAddress(_) => "NameserverWithoutAddress",
            Self::NameTooLong { .. } => "NameTooLong",
            Self::NeedsHub(_) => "NeedsHub",
            Self::NeedsFolder(_) => "NeedsFolder",
            Self::Unreadable { .. } => "Unreadable",
            Self::Malformed { .. } => "Malformed",
            Self::NoEndpoints { .. } => "NoEndpoints",
            Self::NotYet(_) => "NotYet",
        }
    }

    /// The object that was first, where the refusal is about who was.
    pub fn holder(&self) -> Option<ObjectRef> {
        match self {
            Self::Taken { holder, .. } => Some(ObjectRef::cluster_scoped(Kind::Cluster, holder.into())),
            Self::DomainTaken { holder, .. } => Some(ObjectRef::cluster_scoped(Kind::Zone, holder.clone())),
            _ => None,
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::NotYet(_) => Blame::Us,
            Self::NoEndpoints { .. } => Blame::Backend,
            _ => Blame::Author,
        }
    }
}
