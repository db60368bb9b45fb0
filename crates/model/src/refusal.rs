//! A no with a code and a blame.

use std::net::IpAddr;

use crate::claim::Claim;
use crate::fact::Timestamp;
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::ingress::Backend;
use crate::name::{DnsName, NameError};
use crate::network::Cidr;

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

    // What tenants are told of their claims. Nothing in these texts is another tenant's.
    #[error("namespace {namespace} is no tenant's")]
    NoTenant { namespace: ObjectName },
    #[error("the name cannot be used: {reason}")]
    BadName { reason: String },
    #[error("{name} is neither below one of your clusters nor below one of your domains")]
    NotYours { name: DnsName },
    #[error("{name} belongs to your cluster {cluster}, for which this agent does not speak")]
    OtherCluster { name: DnsName, cluster: ClusterName },
    #[error("{name} lies in no zone that is served here")]
    OutsideZones { name: DnsName },
    #[error("{name} is of a control plane, or below such a name")]
    ControlPlaneName { name: DnsName },
    #[error("{name} cannot be had: programs ask for `{label}` by themselves, on behalf of everybody around")]
    ReservedLabel { name: DnsName, label: String },
    #[error("{name} would answer for names below it that are not yours")]
    WildcardOverOthers { name: DnsName },
    #[error("{name} would switch off a wildcard that is not yours; give the name above it records first")]
    DisablesWildcard { name: DnsName },
    #[error("records of type {rtype:?} cannot be had; there are A, AAAA, CAA, CNAME, MX, SRV and TXT")]
    TypeNotAllowed { rtype: String },
    #[error("a TTL of {ttl} cannot be had; it is 5 to 604800 seconds, or left out for the zone's")]
    BadTtl { ttl: i64 },
    #[error("there are more than {most} {what}")]
    SetTooLarge { what: &'static str, most: usize },
    #[error("the target cannot be used: {reason}")]
    BadTarget { reason: String },
    #[error("{target} cannot be a target: it is a {kind} address")]
    TargetForbidden { target: IpAddr, kind: &'static str },
    #[error(
        "{target} is neither an address of your nodes, nor one that you claimed, nor within your Tenant's `targets.allow`"
    )]
    TargetNotAllowed { target: IpAddr },
    #[error("{target} is a name of this fleet, and not yours")]
    TargetNotYours { target: DnsName },
    #[error("{target} is not below a name in your Tenant's `targets.names`")]
    TargetNameNotAllowed { target: DnsName },
    #[error("{target} is an alias itself; name what it leads to")]
    AliasOfAlias { target: DnsName },
    #[error("the text is a registry's note about who owns a name, and this zone is handed to such a registry")]
    RegistryRecord,
    #[error("{0} has no meaning here; leave it out")]
    FieldNotSupported(&'static str),
    /// The holder is told to nobody but its owner.
    #[error("{name} is held by {}, which was first", told(.holder.as_ref()))]
    NameHeld { name: DnsName, holder: Option<ObjectRef> },
    #[error("{name} has a CNAME record or would get one, beside which nothing else can stand")]
    CnameAndOthers { name: DnsName },
    #[error("{name} was somebody else's until just now, and stays free until {until} as caches still know it")]
    Quarantined { name: DnsName, until: Timestamp },
    #[error("you may have {most} {what}, and have them")]
    QuotaExceeded { what: &'static str, most: u32 },
    #[error("no AddressPool is called {0}")]
    UnknownPool(ObjectName),
    #[error("AddressPool {0} is refused itself")]
    RefusedPool(ObjectName),
    #[error("you have no accepted cluster that is called {0}")]
    NotYourCluster(ClusterName),
    #[error("{address} is none of the addresses that AddressPool {pool} gives")]
    NotInPool { address: IpAddr, pool: ObjectName },
    #[error("{address} has been given already; leave it out to get another one")]
    AddressTaken { address: IpAddr },
    #[error("{address} was somebody else's until just now, and stays free until {until} as caches still know it")]
    AddressRests { address: IpAddr, until: Timestamp },
    #[error("AddressPool {pool} has no {family} address left")]
    PoolExhausted { pool: ObjectName, family: &'static str },
    #[error("{name} is neither below one of your clusters nor below one of your domains")]
    PtrNotYours { name: DnsName },
    #[error("no record of yours at {name} leads to {address}; publish one")]
    PtrDoesNotResolve { name: DnsName, address: IpAddr },

    // What tenants are told of their Ingresses.
    #[error("it has neither rules nor a default backend")]
    NothingToServe,
    #[error("no FederationPolicy is called {0}, which its class names")]
    UnknownPolicy(ObjectName),
    #[error("FederationPolicy {0}, which its class names, is refused itself")]
    RefusedPolicy(ObjectName),
    #[error("IngressClass {0} is refused itself")]
    RefusedClass(ObjectName),
    #[error("the path cannot be used: {reason}")]
    BadPath { reason: String },
    #[error("the backend cannot be used: {reason}")]
    BadBackend { reason: String },
    #[error("the annotation cannot be used: {reason}")]
    BadAnnotation { reason: String },
    /// The holder is the tenant's own.
    #[error("{path} of {} is served by {holder}, which was first", any_host(.host.as_ref()))]
    RouteHeld { host: Option<DnsName>, path: String, holder: ObjectRef },
    #[error("{path} of {} is there twice in this very Ingress", any_host(.host.as_ref()))]
    RouteTwice { host: Option<DnsName>, path: String },
    #[error("a rule without a host serves every host of your own, and you share all your domains; name a host")]
    NoHostOfYourOwn,
    #[error("the entry names no Secret")]
    NoSecretNamed,
    #[error("there is no Secret {name} of type kubernetes.io/tls beside the Ingress")]
    UnknownSecret { name: ObjectName },
    #[error("Secret {name} cannot be used: {reason}")]
    BadCertificate { name: ObjectName, reason: String },
    #[error("none of the entry's hosts is one that the rules have")]
    HostNotInRules,
    /// The holder is the tenant's own.
    #[error("the certificate of {} is that of {holder}, which was first", any_host(.host.as_ref()))]
    CertificateHeld { host: Option<DnsName>, holder: ObjectRef },
    #[error("it does not say where its ingress controller is reached; give `{field}` of Cluster {cluster}")]
    NoIngressAddress { cluster: ClusterName, field: &'static str },
    #[error(
        "Cluster {cluster} is reached through the tunnel (spec.ingress.mode: hub), where DNS cannot send clients; use `entry: vip`"
    )]
    BehindTunnel { cluster: ClusterName },

    #[error("nothing is placed in namespace {namespace} of any cluster, which is Kubernetes' own")]
    SystemNamespace { namespace: ObjectName },
    #[error("it has not come to {cluster} yet")]
    NotPlaced { cluster: ClusterName },
    #[error("{cluster} has an Ingress of this name already, which is not Fleetgate's; delete or rename one of them")]
    AlreadyThere { cluster: ClusterName },
    #[error("{cluster} has no namespace {namespace}; create it there")]
    NoNamespace { cluster: ClusterName, namespace: ObjectName },
    #[error("the kubeconfig of {cluster} may not keep Ingresses there; grant it that")]
    MayNotPlace { cluster: ClusterName },
    #[error("{cluster} does not take it; what it admits may be otherwise than here")]
    NotTaken { cluster: ClusterName },
    #[error("{cluster} has no Service {} with port {}; create it there", .backend.service, .backend.port)]
    NoService { cluster: ClusterName, backend: Backend },
    #[error("Service {service} has no ready endpoint in {cluster}")]
    NoReadyEndpoints { cluster: ClusterName, service: ObjectName },
    #[error("{cluster} fails its health checks: most of those who check it say so, and send nothing there")]
    FailedChecks { cluster: ClusterName },
    #[error("{cluster} is drained: somebody wants no traffic to be sent there")]
    Drained { cluster: ClusterName },
    #[error("{cluster} cannot be looked at now; what is known of it is what was last seen")]
    ClusterAway { cluster: ClusterName },

    // What operators are told of their pools.
    #[error("some of {range} belongs to AddressPool {holder}, which was first")]
    RangeTaken { range: Cidr, holder: ObjectName },
    #[error("the pool has no name servers for its reverse zones; give `reverse.nameservers`")]
    NoReverseNameservers,
    #[error("name server {0} lies inside a reverse zone of the pool, where it can have no address; name one outside")]
    NameserverInReverseZone(DnsName),
    #[error("your changes come faster than {per_second} per second; try again in {seconds} s")]
    TooFast { per_second: u32, seconds: u64 },
}

/// An object of one's own, or somebody else's.
fn told(holder: Option<&ObjectRef>) -> String {
    holder.map_or_else(|| "somebody else".to_owned(), ToString::to_string)
}

/// A rule without a host is of all of them.
fn any_host(host: Option<&DnsName>) -> String {
    host.map_or_else(|| "every other host".to_owned(), ToString::to_string)
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
            Self::Taken { claim: Claim::Name(_), .. } | Self::NameHeld { .. } => "NameTaken",
            Self::ClaimedTwice { .. } => "ClaimedTwice",
            Self::Reserved { .. } => "Reserved",
            Self::DomainTaken { .. } => "DomainTaken",
            Self::HiddenByZone { .. } => "HiddenByZone",
            Self::InZoneFile { .. } => "InZoneFile",
            Self::HiddenByZoneFile { .. } => "HiddenByZoneFile",
            Self::NoNameservers | Self::NoReverseNameservers => "NoNameservers",
            Self::NameserverWithoutAddress(_) | Self::NameserverInReverseZone(_) => "NameserverWithoutAddress",
            Self::NameTooLong { .. } => "NameTooLong",
            Self::NeedsHub(_) => "NeedsHub",
            Self::NeedsFolder(_) => "NeedsFolder",
            Self::Unreadable { .. } => "Unreadable",
            Self::Malformed { .. } => "Malformed",
            Self::NoEndpoints { .. } => "NoEndpoints",
            Self::NotYet(_) => "NotYet",
            Self::NoTenant { .. } => "NoTenant",
            Self::BadName { .. } => "BadName",
            Self::NotYours { .. } => "NotYours",
            Self::OtherCluster { .. } => "OtherCluster",
            Self::OutsideZones { .. } => "OutsideZones",
            Self::ControlPlaneName { .. } => "ControlPlaneName",
            Self::ReservedLabel { .. } => "ReservedLabel",
            Self::WildcardOverOthers { .. } => "WildcardOverOthers",
            Self::DisablesWildcard { .. } => "DisablesWildcard",
            Self::TypeNotAllowed { .. } => "TypeNotAllowed",
            Self::BadTtl { .. } => "BadTTL",
            Self::SetTooLarge { .. } => "SetTooLarge",
            Self::BadTarget { .. } => "BadTarget",
            Self::TargetForbidden { .. } => "TargetForbidden",
            Self::TargetNotAllowed { .. } => "TargetNotAllowed",
            Self::TargetNotYours { .. } => "TargetNotYours",
            Self::TargetNameNotAllowed { .. } => "TargetNameNotAllowed",
            Self::AliasOfAlias { .. } => "AliasOfAlias",
            Self::RegistryRecord => "RegistryRecord",
            Self::FieldNotSupported(_) => "FieldNotSupported",
            Self::CnameAndOthers { .. } => "CnameAndOthers",
            Self::Quarantined { .. } | Self::AddressRests { .. } => "Quarantined",
            Self::QuotaExceeded { .. } => "QuotaExceeded",
            Self::UnknownPool(_) => "UnknownPool",
            Self::RefusedPool(_) => "RefusedPool",
            Self::NotYourCluster(_) => "NotYourCluster",
            Self::NotInPool { .. } => "NotInPool",
            Self::AddressTaken { .. } => "AddressTaken",
            Self::PoolExhausted { .. } => "PoolExhausted",
            Self::PtrNotYours { .. } => "PtrNotYours",
            Self::PtrDoesNotResolve { .. } => "PtrDoesNotResolve",
            Self::RangeTaken { .. } => "RangeTaken",
            Self::TooFast { .. } => "TooFast",
            Self::NothingToServe => "NothingToServe",
            Self::UnknownPolicy(_) => "UnknownPolicy",
            Self::RefusedPolicy(_) => "RefusedPolicy",
            Self::RefusedClass(_) => "RefusedClass",
            Self::BadPath { .. } => "BadPath",
            Self::BadBackend { .. } => "BadBackend",
            Self::BadAnnotation { .. } => "BadAnnotation",
            Self::RouteHeld { .. } | Self::RouteTwice { .. } => "RouteTaken",
            Self::NoHostOfYourOwn => "NoHostOfYourOwn",
            Self::NoSecretNamed | Self::UnknownSecret { .. } => "UnknownSecret",
            Self::BadCertificate { .. } => "BadCertificate",
            Self::HostNotInRules => "HostNotInRules",
            Self::CertificateHeld { .. } => "CertificateTaken",
            Self::NoIngressAddress { .. } => "NoIngressAddress",
            Self::BehindTunnel { .. } => "BehindTunnel",
            Self::SystemNamespace { .. } => "SystemNamespace",
            Self::NotPlaced { .. } => "NotPlaced",
            Self::AlreadyThere { .. } => "AlreadyThere",
            Self::NoNamespace { .. } => "NoNamespace",
            Self::MayNotPlace { .. } => "MayNotPlace",
            Self::NotTaken { .. } => "NotTaken",
            Self::NoService { .. } => "NoService",
            Self::NoReadyEndpoints { .. } => "NoReadyEndpoints",
            Self::FailedChecks { .. } => "FailedChecks",
            Self::Drained { .. } => "Drained",
            Self::ClusterAway { .. } => "ClusterAway",
        }
    }

    /// The object that was first, where the refusal is about who was.
    pub fn holder(&self) -> Option<ObjectRef> {
        match self {
            Self::Taken { holder, .. } => Some(ObjectRef::cluster_scoped(Kind::Cluster, holder.into())),
            Self::NameHeld { holder, .. } => holder.clone(),
            Self::RangeTaken { holder, .. } => Some(ObjectRef::cluster_scoped(Kind::AddressPool, holder.clone())),
            Self::DomainTaken { holder, .. } => Some(ObjectRef::cluster_scoped(Kind::Zone, holder.clone())),
            _ => None,
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::NotYet(_) | Self::NotPlaced { .. } => Blame::Us,
            Self::NoEndpoints { .. }
            | Self::NoReadyEndpoints { .. }
            | Self::FailedChecks { .. }
            | Self::ClusterAway { .. } => Blame::Backend,
            _ => Blame::Author,
        }
    }
}
