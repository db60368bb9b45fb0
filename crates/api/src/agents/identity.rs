//! Who an agent is: it stands in its certificate as `fleetgate://cluster/NAME/UID/CREDENTIAL`.

use std::fmt;
use std::sync::Arc;

use model::ClusterName;
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

const PREFIX: &str = "fleetgate://cluster/";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    pub cluster: ClusterName,
    pub uid: Arc<str>,
    /// The id of the credential that bought the first certificate.
    pub credential: Arc<str>,
}

impl Identity {
    /// From a certificate that has been verified, with its end in Unix seconds.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<(Self, u64)> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let names = parsed.subject_alternative_name().ok()??;
        let identity = names.value.general_names.iter().find_map(|name| match name {
            GeneralName::URI(uri) => Self::parse(uri),
            _ => None,
        })?;
        let expires = parsed.validity().not_after.timestamp();
        Some((identity, u64::try_from(expires).ok()?))
    }

    fn parse(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix(PREFIX)?.split('/');
        let (cluster, uid, credential) = (parts.next()?, parts.next()?, parts.next()?);
        let plain = |text: &str| !text.is_empty() && is_plain(text);
        if parts.next().is_some() || !plain(uid) || !plain(credential) {
            return None;
        }
        Some(Self { cluster: cluster.parse().ok()?, uid: uid.into(), credential: credential.into() })
    }
}

/// Whether it can stand in a URI as it is.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~'))
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/{}/{}", self.cluster, self.uid, self.credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_is_written() {
        let identity = Identity { cluster: "c1".parse().unwrap(), uid: "a-1".into(), credential: "9f".into() };
        assert_eq!(identity.to_string(), "fleetgate://cluster/c1/a-1/9f");
        assert_eq!(Identity::parse(&identity.to_string()), Some(identity));
        for wrong in [
            "",
            "fleetgate://cluster/c1/a-1",
            "fleetgate://cluster/c1/a-1/",
            "fleetgate://cluster/c1//9f",
            "fleetgate://cluster/c1/a-1/9f/x",
            "fleetgate://cluster/C_1/a-1/9f",
            "fleetgate://cluster/c1/a%2d1/9f",
            "https://cluster/c1/a-1/9f",
        ] {
            assert_eq!(Identity::parse(wrong), None, "{wrong}");
        }
    }
}
