//! Who is who: object names, cluster names and the ids that connections carry.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Kubernetes limits object names to a DNS subdomain of 253 characters.
const MAX_OBJECT_NAME: usize = 253;
/// RFC 1035 2.3.4.
const MAX_LABEL: usize = 63;
/// HyperShift sends 36 octets; three times that leaves room for other fleets' ids and keeps a header of several TLVs
/// far below the 2 KiB that the door accepts.
pub const MAX_CLUSTER_ID: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("{text:?} is no object name: {rule}")]
    ObjectName { text: String, rule: &'static str },
    #[error("{text:?} is no DNS label: {rule}")]
    ClusterName { text: String, rule: &'static str },
    #[error("a cluster id has 1 to 128 visible ASCII characters and no space")]
    ClusterId,
}

const SUBDOMAIN_RULE: &str =
    "use at most 253 lower-case letters, digits, `-` and `.`, each part starting and ending with a letter or digit";
const LABEL_RULE: &str =
    "use at most 63 lower-case letters, digits and `-`, starting and ending with a letter or digit";

/// The name of a zone, tenant or other object, as Kubernetes allows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Arc<str>);

/// The name of a tenant cluster: one DNS label, because it becomes part of names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(Arc<str>);

/// What a connection carries to select its cluster; compared octet by octet, upper and lower case distinct.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(Arc<str>);

impl FromStr for ObjectName {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        if text.len() <= MAX_OBJECT_NAME && text.split('.').all(is_part) {
            Ok(Self(text.into()))
        } else {
            Err(IdentityError::ObjectName { text: text.into(), rule: SUBDOMAIN_RULE })
        }
    }
}

impl FromStr for ClusterName {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        if is_label(text) {
            Ok(Self(text.into()))
        } else {
            Err(IdentityError::ClusterName { text: text.into(), rule: LABEL_RULE })
        }
    }
}

impl FromStr for ClusterId {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let visible = text.bytes().all(|octet| octet.is_ascii_graphic());
        if (1..=MAX_CLUSTER_ID).contains(&text.len()) && visible {
            Ok(Self(text.into()))
        } else {
            Err(IdentityError::ClusterId)
        }
    }
}

/// Whether it is a DNS label as Kubernetes writes them (RFC 1123), which namespaces, Services and clusters are named by.
pub fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_part(text)
}

/// Of a subdomain. Kubernetes puts no limit of its own on these.
fn is_part(text: &str) -> bool {
    let plain = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
    let octets = text.as_bytes();
    octets.first().copied().is_some_and(plain)
        && octets.last().copied().is_some_and(plain)
        && octets.iter().all(|&octet| plain(octet) || octet == b'-')
}

impl From<&ClusterName> for ClusterId {
    /// The default id: every cluster name is a valid one.
    fn from(name: &ClusterName) -> Self {
        Self(Arc::clone(&name.0))
    }
}

impl From<&ClusterName> for ObjectName {
    fn from(name: &ClusterName) -> Self {
        Self(Arc::clone(&name.0))
    }
}

/// Lets a table keyed by id be asked with the octets of a TLV, without an allocation.
impl std::borrow::Borrow<str> for ClusterId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

macro_rules! text_identity {
    ($($name:ident),*) => {$(
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

text_identity!(ObjectName, ClusterName, ClusterId);

/// The kinds of objects that carry a status of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
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
    Secret,
}

impl Kind {
    pub const ALL: [Self; 11] = [
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
        Self::Secret,
    ];

    /// As it stands after `kind:` in a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zone => "Zone",
            Self::Tenant => "Tenant",
            Self::Cluster => "Cluster",
            Self::AddressPool => "AddressPool",
            Self::AddressClaim => "AddressClaim",
            Self::Address => "Address",
            Self::FederationPolicy => "FederationPolicy",
            Self::DnsEndpoint => "DNSEndpoint",
            Self::Ingress => "Ingress",
            Self::IngressClass => "IngressClass",
            Self::Secret => "Secret",
        }
    }

    pub fn api_version(self) -> &'static str {
        match self {
            Self::DnsEndpoint => "externaldns.k8s.io/v1alpha1",
            Self::Ingress | Self::IngressClass => "networking.k8s.io/v1",
            Self::Secret => "v1",
            _ => "fleetgate.dev/v1alpha1",
        }
    }

    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::AddressClaim | Self::DnsEndpoint | Self::Ingress | Self::Secret)
    }

    /// As it stands in a URL of the API.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Zone => "zones",
            Self::Tenant => "tenants",
            Self::Cluster => "clusters",
            Self::AddressPool => "addresspools",
            Self::AddressClaim => "addressclaims",
            Self::Address => "addresses",
            Self::FederationPolicy => "federationpolicies",
            Self::DnsEndpoint => "dnsendpoints",
            Self::Ingress => "ingresses",
            Self::IngressClass => "ingressclasses",
            Self::Secret => "secrets",
        }
    }

    /// Finds a kind as people type it: any case, singular or plural.
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| text.eq_ignore_ascii_case(kind.as_str()) || text.eq_ignore_ascii_case(kind.plural()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One object of the fleet, wherever it lives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    pub kind: Kind,
    pub namespace: Option<ObjectName>,
    pub name: ObjectName,
}

impl ObjectRef {
    pub fn cluster_scoped(kind: Kind, name: ObjectName) -> Self {
        Self { kind, namespace: None, name }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_names_are_dns_labels() {
        for good in ["c1", "0", "a-b", &"a".repeat(63)] {
            assert!(good.parse::<ClusterName>().is_ok(), "{good}");
        }
        for bad in ["", "C1", "a.b", "-a", "a-", "a_b", "*", "ü", "a b", &"a".repeat(64)] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn object_names_may_have_dots() {
        assert!("a.b-c.d".parse::<ObjectName>().is_ok());
        for bad in ["", ".", "a.", ".a", "a..b", "A", &"a".repeat(254)] {
            assert!(bad.parse::<ObjectName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn cluster_ids_keep_their_case() {
        let upper: ClusterId = "3F2B".parse().unwrap();
        assert_ne!(upper, "3f2b".parse().unwrap());
        for bad in ["", "a b", "a\n", "ü", &"a".repeat(129)] {
            assert!(bad.parse::<ClusterId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn kinds_are_found_as_people_type_them() {
        for (text, kind) in [
            ("clusters", Kind::Cluster),
            ("Zone", Kind::Zone),
            ("dnsendpoints", Kind::DnsEndpoint),
            ("federationpolicies", Kind::FederationPolicy),
            ("ingressclasses", Kind::IngressClass),
            ("ingresses", Kind::Ingress),
        ] {
            assert_eq!(Kind::find(text), Some(kind), "{text}");
        }
        assert_eq!(Kind::find("pods"), None);
    }
}
