//! Who is at the other end: it stands in its certificate as `fleetgate://ROLE/NAME/UID/CREDENTIAL`.

use std::fmt;
use std::sync::Arc;

use model::ClusterName;
use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

const SCHEME: &str = "fleetgate://";

/// What somebody who speaks for a cluster may be used for. A certificate of one is nothing to the doors of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// What runs in the tenant's cluster, and comes to the agents' door.
    Agent,
    /// What serves the tenant's API on the hub's side, and comes to the door for egress.
    ControlPlane,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "cluster",
            Self::ControlPlane => "control-plane",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Agent, Self::ControlPlane].into_iter().find(|role| role.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    pub role: Role,
    pub cluster: ClusterName,
    pub uid: Arc<str>,
    /// The id of the credential that bought the first certificate.
    pub credential: Arc<str>,
}

impl Identity {
    /// From a certificate that has been verified, with its end in Unix seconds.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<(Self, u64)> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let names = parsed.subject_alternative_name().ok()??;
        let identity = names.value.general_names.iter().find_map(|name| match name {
            GeneralName::URI(uri) => Self::parse(uri),
            _ => None,
        })?;
        let expires = parsed.validity().not_after.timestamp();
        Some((identity, u64::try_from(expires).ok()?))
    }

    /// As it is displayed.
    pub fn parse(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix(SCHEME)?.split('/');
        let (role, cluster) = (Role::parse(parts.next()?)?, parts.next()?);
        let (uid, credential) = (parts.next()?, parts.next()?);
        let plain = |text: &str| !text.is_empty() && is_plain(text);
        if parts.next().is_some() || !plain(uid) || !plain(credential) {
            return None;
        }
        Some(Self { role, cluster: cluster.parse().ok()?, uid: uid.into(), credential: credential.into() })
    }
}

/// Whether it can stand in a URI as it is.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~'))
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}/{}", self.role.as_str(), self.cluster, self.uid, self.credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_is_written() {
        for (role, text) in [
            (Role::Agent, "fleetgate://cluster/c1/a-1/9f"),
            (Role::ControlPlane, "fleetgate://control-plane/c1/a-1/9f"),
        ] {
            let identity =
                Identity { role, cluster: "c1".parse().unwrap(), uid: "a-1".into(), credential: "9f".into() };
            assert_eq!(identity.to_string(), text);
            assert_eq!(Identity::parse(text), Some(identity));
        }
        for wrong in [
            "",
            "fleetgate://cluster/c1/a-1",
            "fleetgate://cluster/c1/a-1/",
            "fleetgate://cluster/c1//9f",
            "fleetgate://cluster/c1/a-1/9f/x",
            "fleetgate://cluster/C_1/a-1/9f",
            "fleetgate://cluster/c1/a%2d1/9f",
            "fleetgate://clusters/c1/a-1/9f",
            "fleetgate:///c1/a-1/9f",
            "https://cluster/c1/a-1/9f",
        ] {
            assert_eq!(Identity::parse(wrong), None, "{wrong}");
        }
    }
}
