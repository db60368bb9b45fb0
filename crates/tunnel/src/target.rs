//! Where a stream should lead, inside a cluster: `HOST:PORT`, by name or by address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use model::DnsName;
use model::reach::Reach;

use crate::Refused;

/// A name has 253 characters at most (RFC 1035 2.3.4), a port 5.
const MAX_TARGET: usize = 255 + ":65535".len();
/// Names that mean the machine that asks, or its cloud's own services, to many resolvers.
const FORBIDDEN_NAMES: [&str; 4] = ["localhost", "localhost.localdomain", "metadata.google.internal", "metadata.goog"];

/// Where it should lead. Nobody resolves a name before the agent does, inside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    Name(DnsName),
    Address(IpAddr),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    pub host: Host,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("a target is written HOST:PORT, such as web.default.svc:443, 10.0.0.7:443 or [2001:db8::1]:443")]
    Form,
    #[error("the host is neither a name nor an address")]
    Host,
    #[error("the port is a number from 1 to 65535")]
    Port,
}

impl Host {
    /// Strict: what different programs could take for different places is no host. A name has letters, digits, `-` and
    /// `_`; one whose last label is a number is no name, because some would read an address (`127.1`, `0x7f000001`).
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(TargetError::Host)?;
            return inner.parse::<Ipv6Addr>().map(|v6| Self::Address(v6.into())).map_err(|_| TargetError::Host);
        }
        if let Ok(v4) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(v4.into()));
        }
        let plain = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
        if text == "." || !text.bytes().all(plain) {
            return Err(TargetError::Host);
        }
        let last = text.strip_suffix('.').unwrap_or(text).rsplit('.').next().unwrap_or_default();
        if last.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(TargetError::Host);
        }
        DnsName::parse(text).map(Self::Name).map_err(|_| TargetError::Host)
    }
}

impl Target {
    /// What no agent is even asked for: on either side of the link it would be the machine itself, its neighbours, or
    /// where clouds hand out credentials.
    pub fn check(&self) -> Result<(), Refused> {
        match &self.host {
            Host::Address(address) => match Reach::of(*address) {
                Reach::Ordinary => Ok(()),
                reach => Err(Refused::Forbidden(format!("{address} is a {reach} address"))),
            },
            Host::Name(name) => {
                // Written in lower case and without a last dot.
                let name = name.to_string();
                if FORBIDDEN_NAMES.contains(&name.as_str()) || name.ends_with(".localhost") {
                    return Err(Refused::Forbidden(format!("{name} means the machine that asks, or its cloud")));
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text.len() > MAX_TARGET {
            return Err(TargetError::Form);
        }
        let (host, port) = text.rsplit_once(':').ok_or(TargetError::Form)?;
        let digits = (1..=5).contains(&port.len()) && port.bytes().all(|octet| octet.is_ascii_digit());
        let port = digits.then(|| port.parse().ok()).flatten().filter(|port| *port != 0).ok_or(TargetError::Port)?;
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Address(IpAddr::V4(v4)) => write!(f, "{v4}"),
            Self::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_names_or_addresses_with_a_port() {
        for (text, expected) in [
            ("web.default.svc:443", Ok("web.default.svc:443")),
            ("Web.Default.SVC.:443", Ok("web.default.svc:443")),
            ("10.0.0.7:10250", Ok("10.0.0.7:10250")),
            ("[2001:db8::1]:443", Ok("[2001:db8::1]:443")),
            ("[::ffff:10.0.0.7]:443", Ok("[::ffff:10.0.0.7]:443")),
            ("_dns._udp.web:53", Ok("_dns._udp.web:53")),
            ("2001:db8::1:443", Err(TargetError::Host)),
            ("[10.0.0.7]:443", Err(TargetError::Host)),
            ("[2001:db8::1:443", Err(TargetError::Host)),
            ("[fe80::1%eth0]:443", Err(TargetError::Host)),
            ("web", Err(TargetError::Form)),
            ("web:", Err(TargetError::Port)),
            ("web:0", Err(TargetError::Port)),
            ("web:+80", Err(TargetError::Port)),
            ("web:080000", Err(TargetError::Port)),
            ("web:65536", Err(TargetError::Port)),
            (":80", Err(TargetError::Host)),
            (".:80", Err(TargetError::Host)),
            ("a..b:80", Err(TargetError::Host)),
            ("user@web:80", Err(TargetError::Host)),
            ("web/x:80", Err(TargetError::Host)),
            ("we%62:80", Err(TargetError::Host)),
            // Other programs would take these for addresses.
            ("127.1:80", Err(TargetError::Host)),
            ("2130706433:80", Err(TargetError::Host)),
            ("0x7f000001:80", Err(TargetError::Host)),
            ("010.0.0.1:80", Err(TargetError::Host)),
        ] {
            let target: Result<Target, _> = text.parse();
            assert_eq!(target.map(|target| target.to_string()), expected.map(str::to_owned), "{text}");
        }
        let long = format!("{}:80", ["a"; 200].join("."));
        assert_eq!(long.parse::<Target>(), Err(TargetError::Form));
    }

    #[test]
    fn the_machine_itself_and_its_neighbours_are_no_targets() {
        for (target, ok) in [
            ("10.0.0.7:443", true),
            ("web.default.svc:443", true),
            ("127.0.0.1:443", false),
            ("169.254.169.254:80", false),
            ("[::ffff:169.254.169.254]:80", false),
            ("[fe80::1]:80", false),
            ("[::1]:80", false),
            ("0.0.0.0:80", false),
            ("224.0.0.1:80", false),
            ("[fd00:ec2::254]:80", false),
            ("100.100.100.200:80", false),
            ("localhost.shop.svc:443", true),
            ("localhost:443", false),
            ("LOCALHOST.:443", false),
            ("a.localhost:443", false),
            ("Metadata.Google.Internal:80", false),
        ] {
            assert_eq!(target.parse::<Target>().unwrap().check().is_ok(), ok, "{target}");
        }
    }
}
