//! What is read of a hub, by whom, and what is kept of each object.

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use kube::core::{ApiResource, GroupVersionKind};
use manifest::address::{Address, AddressClaim, AddressPool};
use manifest::certificate::TLS_SECRET;
use manifest::cluster::Cluster;
use manifest::federation::FederationPolicy;
use manifest::tenant::Tenant;
use manifest::verdict::Verdict;
use manifest::zone::Zone;
use model::identity::Kind;

/// The kinds of a hub's objects that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Zone,
    Tenant,
    Cluster,
    AddressPool,
    AddressClaim,
    Address,
    FederationPolicy,
    DnsEndpoint,
    Ingress,
    IngressClass,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    Verdict,
    /// A Secret of a tenant's, with a certificate.
    Certificate,
}

/// Who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles {
    pub controller: bool,
    pub dns: bool,
    pub gateway: bool,
}

impl Roles {
    pub const ALL: Self = Self { controller: true, dns: true, gateway: true };
}

/// What part of a kind is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) resource: Resource,
    /// All namespaces without one.
    pub(crate) namespace: Option<String>,
    pub(crate) fields: Option<String>,
}

impl Resource {
    const ALL: [Self; 16] = [
        Self::Zone,
        Self::Tenant,
        Self::Cluster,
        Self::AddressPool,
        Self::AddressClaim,
        Self::Address,
        Self::FederationPolicy,
        Self::DnsEndpoint,
        Self::Ingress,
        Self::IngressClass,
        Self::Service,
        Self::EndpointSlice,
        Self::Secret,
        Self::ConfigMap,
        Self::Verdict,
        Self::Certificate,
    ];

    /// The word that stands for it on disk and in metrics.
    pub fn as_str(self) -> &'static str {
        // Beside the Secrets that only say more about other objects.
        if self == Self::Certificate {
            return "certificates";
        }
        self.planned().map_or_else(|word| word, Kind::plural)
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.as_str() == word)
    }

    pub(crate) fn api(self) -> ApiResource {
        match self {
            Self::Zone => ApiResource::erase::<Zone>(&()),
            Self::Tenant => ApiResource::erase::<Tenant>(&()),
            Self::Cluster => ApiResource::erase::<Cluster>(&()),
            Self::AddressPool => ApiResource::erase::<AddressPool>(&()),
            Self::AddressClaim => ApiResource::erase::<AddressClaim>(&()),
            Self::Address => ApiResource::erase::<Address>(&()),
            Self::FederationPolicy => ApiResource::erase::<FederationPolicy>(&()),
            Self::DnsEndpoint => {
                let kind = GroupVersionKind::gvk("externaldns.k8s.io", "v1alpha1", "DNSEndpoint");
                ApiResource::from_gvk_with_plural(&kind, "dnsendpoints")
            }
            Self::Ingress => ApiResource::erase::<Ingress>(&()),
            Self::IngressClass => ApiResource::erase::<IngressClass>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
            Self::EndpointSlice => ApiResource::erase::<EndpointSlice>(&()),
            Self::Secret | Self::Certificate => ApiResource::erase::<Secret>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Verdict => ApiResource::erase::<Verdict>(&()),
        }
    }

    /// As the plan knows it; `None` for what only says more about other objects.
    pub(crate) fn kind(self) -> Option<Kind> {
        self.planned().ok()
    }

    /// As the plan knows it, or else the word for it.
    fn planned(self) -> Result<Kind, &'static str> {
        match self {
            Self::Zone => Ok(Kind::Zone),
            Self::Tenant => Ok(Kind::Tenant),
            Self::Cluster => Ok(Kind::Cluster),
            Self::AddressPool => Ok(Kind::AddressPool),
            Self::AddressClaim => Ok(Kind::AddressClaim),
            Self::Address => Ok(Kind::Address),
            Self::FederationPolicy => Ok(Kind::FederationPolicy),
            Self::DnsEndpoint => Ok(Kind::DnsEndpoint),
            Self::Ingress => Ok(Kind::Ingress),
            Self::IngressClass => Ok(Kind::IngressClass),
            Self::Certificate => Ok(Kind::Secret),
            Self::Service => Err("services"),
            Self::EndpointSlice => Err("endpointslices"),
            Self::Secret => Err("secrets"),
            Self::ConfigMap => Err("configmaps"),
            Self::Verdict => Err("verdicts"),
        }
    }

    /// Whether every role reads it.
    fn is_everybodys(self) -> bool {
        self.kind().is_some() && self != Self::Certificate
    }

    pub(crate) fn of(kind: Kind) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.kind() == Some(kind))
    }

    /// Not every hub has the kind; what is not there has no objects.
    pub(crate) fn may_be_absent(self) -> bool {
        self == Self::DnsEndpoint
    }
}

/// The Secrets that hold a cluster's proof keys say so in their type, so that a gateway asks for no others.
pub const PROOF_SECRET: &str = "fleetgate.dev/proof";

/// Stands for every namespace.
const EVERYWHERE: &str = "*";

/// What each role reads: the plan's objects all of them, so that all come to the same plan; Secrets only who needs them, as no
/// name follows from one. `namespace` is ours, `sources` are those from which Secrets and `ConfigMap`s may be named, and
/// `certificates` those of tenants whose certificates are read: by gateways, which serve with them, and by the controller,
/// which says whether they can.
pub(crate) fn watched(roles: Roles, namespace: &str, sources: &[String], certificates: &[String]) -> Vec<Watched> {
    let all = |resource| Watched { resource, namespace: None, fields: None };
    let within = |resource, namespace: &str| Watched { resource, namespace: Some(namespace.to_owned()), fields: None };
    let mut watched: Vec<Watched> =
        Resource::ALL.into_iter().filter(|resource| resource.is_everybodys()).map(all).collect();
    watched.extend(sources.iter().map(|namespace| within(Resource::ConfigMap, namespace)));
    if roles.controller || roles.gateway {
        watched.extend([all(Resource::Service), all(Resource::EndpointSlice)]);
        for namespace in sources {
            let fields = (!roles.controller).then(|| format!("type={PROOF_SECRET}"));
            watched.push(Watched { fields, ..within(Resource::Secret, namespace) });
        }
        let fields = Some(format!("type={TLS_SECRET}"));
        if certificates.iter().any(|namespace| namespace == EVERYWHERE) {
            watched.push(Watched { fields, ..all(Resource::Certificate) });
        } else {
            let of_tenant = |namespace| Watched { fields: fields.clone(), ..within(Resource::Certificate, namespace) };
            watched.extend(certificates.iter().map(|namespace| of_tenant(namespace)));
        }
    } else {
        watched.push(within(Resource::Service, namespace));
    }
    if roles.controller {
        watched.push(all(Resource::Verdict));
    }
    watched
}
