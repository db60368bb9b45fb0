//! What is reached inside a cluster, by its agent: the hub has no way there but the tunnel.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use crate::identity::ClusterName;
use crate::name::{MAX_LABEL, MAX_NAME};
use crate::network::Cidr;
use crate::reach::Reach;
use crate::refusal::Blame;
use crate::resource::Limits;

/// An address or a name with its port, as it is called inside a cluster. Names are looked up there, by its agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InnerTarget {
    pub host: InnerHost,
    /// Never 0.
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InnerHost {
    Address(IpAddr),
    /// Lower-case, as it was written otherwise: search lists of the cluster may complete it.
    Name(Arc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InnerTargetError {
    #[error("{0:?} is no address or name with its port, such as 10.0.0.1:443 or ingress.web.svc:443")]
    Malformed(String),
    #[error("{0} is {1}, where nothing answers")]
    Nowhere(IpAddr, Reach),
    #[error("{0:?} is an IPv4 address in IPv6 form; write {1}")]
    Disguised(String, IpAddr),
}

impl InnerTarget {
    /// The name of a Service inside its cluster.
    pub fn service(name: &str, namespace: &str, port: u16) -> Self {
        Self { host: InnerHost::Name(format!("{name}.{namespace}.svc").into()), port }
    }
}

impl FromStr for InnerTarget {
    type Err = InnerTargetError;

    fn from_str(text: &str) -> Result<Self, InnerTargetError> {
        let malformed = || InnerTargetError::Malformed(text.chars().take(MAX_NAME).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        // `+80` and `080` are numbers to a parser and nothing to anybody else.
        let is_plain = port.bytes().all(|octet| octet.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| is_plain).ok_or_else(malformed)?;
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let address = match in_brackets {
            Some(host) => Some(host.parse::<Ipv6Addr>().map_err(|_| malformed())?.into()),
            None => host.parse().ok().filter(IpAddr::is_ipv4),
        };
        let Some(address) = address else {
            let host = InnerHost::Name(read_name(host).ok_or_else(malformed)?);
            return Ok(Self { host, port });
        };
        if address.to_canonical() != address {
            return Err(InnerTargetError::Disguised(text.into(), address.to_canonical()));
        }
        match Reach::of(address) {
            reach @ (Reach::Unspecified | Reach::Multicast) => Err(InnerTargetError::Nowhere(address, reach)),
            _ => Ok(Self { host: InnerHost::Address(address), port }),
        }
    }
}

/// RFC 1123 2.1, and the underscores that people have; what ends with a number would be an address to somebody (`127.1`,
/// `0x7f000001`).
fn read_name(text: &str) -> Option<Arc<str>> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_inner = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_';
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = name.len() + 2 <= MAX_NAME && name.split('.').all(is_label);
    let is_number = name.rsplit('.').next()?.starts_with(|c: char| c.is_ascii_digit());
    (is_name && !is_number).then(|| text.to_ascii_lowercase().into())
}

impl fmt::Display for InnerTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            InnerHost::Address(address) => write!(f, "{}", SocketAddr::new(*address, self.port)),
            InnerHost::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Where the ingress controller of a cluster is reached through the tunnel, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inside {
    /// Where it takes plain HTTP.
    pub http: Vec<InnerTarget>,
    /// Where it takes TLS.
    pub https: Vec<InnerTarget>,
    /// Who may come by the `apps` wildcard.
    pub allowed_sources: Arc<[Cidr]>,
    /// For the connections that come by it.
    pub limits: Limits,
}

/// A target in one very cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inner {
    pub cluster: ClusterName,
    /// Tells a cluster from a later one of the same name.
    pub uid: Arc<str>,
    pub target: InnerTarget,
}

/// Where something is reached: from here, or from inside a cluster. What is inside one cluster is never the same as what is
/// inside another, whatever it is called there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    Address(SocketAddr),
    Inside(Arc<Inner>),
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Inside(inner) => write!(f, "{} inside {}", inner.target, inner.cluster),
        }
    }
}

/// Why the tunnel did not lead to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Denied {
    #[error("this process has no tunnel")]
    NoTunnel,
    #[error("no agent of the cluster is linked")]
    NoLink,
    #[error("the agent's allow-list does not have it")]
    Forbidden,
    #[error("the name is not known in the cluster")]
    UnknownName,
    #[error("the agent could not connect to it")]
    Unreachable,
    #[error("there was no connection in time")]
    TimedOut,
    #[error("the link broke meanwhile")]
    LinkLost,
    #[error("as many streams are open as there may be")]
    TooMany,
}

impl Denied {
    const ALL: [Self; 8] = [
        Self::NoTunnel,
        Self::NoLink,
        Self::Forbidden,
        Self::UnknownName,
        Self::Unreachable,
        Self::TimedOut,
        Self::LinkLost,
        Self::TooMany,
    ];

    /// Fixed words: metric label, log field, what `explain` prints.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoTunnel => "NoTunnel",
            Self::NoLink => "NoLink",
            Self::Forbidden => "TargetForbidden",
            Self::UnknownName => "UnknownName",
            Self::Unreachable => "Unreachable",
            Self::TimedOut => "DialTimeout",
            Self::LinkLost => "LinkLost",
            Self::TooMany => "TooManyStreams",
        }
    }

    pub fn blame(self) -> Blame {
        match self {
            Self::NoTunnel | Self::TooMany => Blame::Us,
            Self::Forbidden => Blame::Author,
            Self::NoLink | Self::UnknownName | Self::Unreachable | Self::TimedOut | Self::LinkLost => Blame::Backend,
        }
    }

    /// Whether another target of the same cluster may be luckier.
    pub fn is_of_target(self) -> bool {
        matches!(self, Self::Forbidden | Self::UnknownName | Self::Unreachable | Self::TimedOut)
    }

    /// As one octet, for whoever can be told no more; never 0, which is a connection.
    pub fn octet(self) -> u8 {
        let place = Self::ALL.iter().position(|denied| *denied == self);
        place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(u8::MAX)
    }

    /// What an octet says: nothing is denied where it is 0.
    pub fn read(octet: u8) -> Result<(), Self> {
        match usize::from(octet).checked_sub(1) {
            None => Ok(()),
            Some(place) => Err(Self::ALL.get(place).copied().unwrap_or(Self::LinkLost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_names_with_a_port() {
        for (text, shown) in [
            ("10.0.0.1:443", "10.0.0.1:443"),
            ("[fd00::1]:80", "[fd00::1]:80"),
            ("127.0.0.1:8443", "127.0.0.1:8443"),
            ("Ingress-NGINX.web.svc:80", "ingress-nginx.web.svc:80"),
            ("ingress.web.svc.cluster.local.:443", "ingress.web.svc.cluster.local.:443"),
            ("a_b:1", "a_b:1"),
            ("1password.svc:65535", "1password.svc:65535"),
        ] {
            let target: InnerTarget = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(target.to_string(), shown);
            assert_eq!(shown.parse(), Ok(target));
        }
        for text in [
            "",
            ":",
            "10.0.0.1",
            "name",
            "name:",
            "name:0",
            "name:080",
            "name:+80",
            "name:65536",
            ":80",
            "[]:80",
            "fd00::1:80",
            "[10.0.0.1]:80",
            "[fd00::1%eth0]:80",
            "10.0.0:80",
            "010.0.0.1:80",
            "10.0.0.256:80",
            "0x7f.1:80",
            "0x7f000001:80",
            "127.1:80",
            "a..b:80",
            ".a:80",
            "-a:80",
            "a-:80",
            "*.a:80",
            "a b:80",
            "a/b:80",
            "user@a:80",
            "a\\.b:80",
            "ü:80",
            "0.0.0.0:80",
            "[::]:80",
            "224.0.0.1:80",
            "[ff02::1]:80",
            "[::ffff:10.0.0.1]:80",
        ] {
            let parsed = text.parse::<InnerTarget>();
            assert!(parsed.is_err(), "{text} is {parsed:?}");
        }
        let long = format!("{}:80", ["a"; 127].join("."));
        assert!(long.parse::<InnerTarget>().is_ok());
        assert!(format!("a.{long}").parse::<InnerTarget>().is_err());
        assert!(format!("{}:80", "a".repeat(64)).parse::<InnerTarget>().is_err());
    }

    proptest::proptest! {
        /// Whatever is read is written so that it is read as the same.
        #[test]
        fn any_text_is_read_or_refused(text in proptest::prop_oneof![
            proptest::prelude::any::<String>(),
            "[a-zA-Z0-9_.:\\[\\]-]{0,40}:[0-9]{1,6}",
            "[0-9]{1,3}(\\.[0-9]{1,3}){1,4}:[0-9]{1,5}",
        ]) {
            if let Ok(target) = text.parse::<InnerTarget>() {
                proptest::prop_assert!(target.port > 0);
                proptest::prop_assert_eq!(target.to_string().parse(), Ok(target));
            }
        }
    }

    #[test]
    fn the_same_name_in_two_clusters_is_two_places() {
        let place = |cluster: &str, uid: &str| {
            let target = InnerTarget::service("ingress", "web", 443);
            Place::Inside(Arc::new(Inner { cluster: cluster.parse().unwrap(), uid: uid.into(), target }))
        };
        assert_eq!(place("c1", "1"), place("c1", "1"));
        assert_ne!(place("c1", "1"), place("c2", "1"));
        assert_ne!(place("c1", "1"), place("c1", "2"));
        assert_eq!(place("c1", "1").to_string(), "ingress.web.svc:443 inside c1");
    }

    #[test]
    fn a_denial_fits_into_an_octet() {
        assert_eq!(Denied::read(0), Ok(()));
        for denied in Denied::ALL {
            assert_eq!(Denied::read(denied.octet()), Err(denied));
        }
        assert_eq!(Denied::read(200), Err(Denied::LinkLost));
    }
}
