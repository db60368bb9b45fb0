//! Addresses that tenants can have: pools, claims, and what has been given to whom.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::fact::Timestamp;
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::name::{DnsName, NameError};
use crate::network::Cidr;
use crate::pool::Family;

/// Ranges of addresses, and who answers for their reverse zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPool {
    pub name: ObjectName,
    pub ranges: Vec<Cidr>,
    /// Where there is none, nobody answers for the reverse zones.
    pub reverse: Option<Reverse>,
    /// How long an address that was given back rests, at least.
    pub quarantine: Duration,
}

impl AddressPool {
    /// How long an address rests: nobody is to find it by a name of its last owner's any more.
    pub fn resting_time(&self) -> Duration {
        let ttl = self.reverse.as_ref().map_or(0, |reverse| reverse.ttl);
        self.quarantine.max(Duration::from_secs(ttl.into()))
    }
}

/// How the reverse zones of a pool are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverse {
    /// Never empty; the first is the SOA's primary.
    pub nameservers: Vec<DnsName>,
    /// Below it are the names of addresses whose claim gives none.
    pub domain: DnsName,
    pub ttl: u32,
}

impl Reverse {
    /// `198-51-100-7.<domain>`, or all eight groups of an IPv6 address.
    pub fn default_name(&self, address: IpAddr) -> Result<DnsName, NameError> {
        self.domain.prepend(&AddressName(address).to_label())
    }
}

/// A tenant's wish for one address of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressClaim {
    pub pool: ObjectName,
    pub family: Family,
    pub cluster: Option<ClusterName>,
    pub ptr: Option<DnsName>,
    /// This one and no other.
    pub address: Option<IpAddr>,
}

/// Which claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    pub namespace: ObjectName,
    pub name: ObjectName,
}

impl ClaimId {
    /// `None` for what has no namespace.
    pub fn of(object: &ObjectRef) -> Option<Self> {
        Some(Self { namespace: object.namespace.clone()?, name: object.name.clone() })
    }

    pub fn to_object(&self) -> ObjectRef {
        let (namespace, name) = (Some(self.namespace.clone()), self.name.clone());
        ObjectRef { kind: Kind::AddressClaim, namespace, name }
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a home has written down of one address: while it is there, nobody else gets the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub pool: ObjectName,
    pub claim: ClaimId,
    /// Of the claim: one that was deleted and made anew has another.
    pub uid: Arc<str>,
    /// The claim has no use for it any more, and it rests until then.
    pub released_until: Option<Timestamp>,
}

impl Allocation {
    pub fn is_held_by(&self, claim: &ClaimId) -> bool {
        self.claim == *claim && !self.rests()
    }

    pub fn rests(&self) -> bool {
        self.released_until.is_some()
    }
}

/// An address as the name of an object: IPv4 as it is written, IPv6 with all its digits and `-` between the groups. An address
/// has exactly one, so that what makes names of objects unique makes allocations unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressName(pub IpAddr);

impl AddressName {
    /// As one label of a DNS name.
    pub fn to_label(self) -> String {
        self.to_string().replace('.', "-")
    }

    pub fn to_object_name(self) -> ObjectName {
        self.to_string().parse().expect("digits, letters, dots and dashes between them are the name of an object")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address; write 198.51.100.7, or 2001-0db8-0000-0000-0000-0000-0000-0001 with all its digits")]
pub struct AddressNameError(String);

impl FromStr for AddressName {
    type Err = AddressNameError;

    fn from_str(text: &str) -> Result<Self, AddressNameError> {
        let address = match text.parse::<Ipv4Addr>() {
            Ok(address) => Some(IpAddr::from(address)),
            Err(_) => text.replace('-', ":").parse::<Ipv6Addr>().ok().map(IpAddr::from),
        };
        // Other ways to write the same address would be other names.
        let name = address.map(Self).filter(|name| name.to_string() == text);
        name.ok_or_else(|| AddressNameError(text.into()))
    }
}

impl fmt::Display for AddressName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => {
                let groups = address.segments().map(|group| format!("{group:04x}"));
                f.write_str(&groups.join("-"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_name() {
        for (address, name, label) in [
            ("198.51.100.7", "198.51.100.7", "198-51-100-7"),
            ("2001:db8::80", "2001-0db8-0000-0000-0000-0000-0000-0080", "2001-0db8-0000-0000-0000-0000-0000-0080"),
            ("::", "0000-0000-0000-0000-0000-0000-0000-0000", "0000-0000-0000-0000-0000-0000-0000-0000"),
        ] {
            let made = AddressName(address.parse().unwrap());
            assert_eq!((made.to_string().as_str(), made.to_label().as_str()), (name, label));
            assert_eq!(name.parse(), Ok(made));
            assert_eq!(made.to_object_name().as_str(), name);
        }
        for other in [
            "",
            "198.51.100.07",
            "198-51-100-7",
            "2001-db8--80",
            "2001:db8::80",
            "2001:0db8:0000:0000:0000:0000:0000:0080",
        ] {
            assert!(other.parse::<AddressName>().is_err(), "{other}");
        }
    }

    #[test]
    fn addresses_without_a_name_get_one_below_the_domain() {
        let (nameservers, domain) = (Vec::new(), DnsName::parse("pool.fleet.example").unwrap());
        let reverse = Reverse { nameservers, domain, ttl: 300 };
        for (address, expected) in [
            ("198.51.100.7", "198-51-100-7.pool.fleet.example"),
            ("2001:db8:1::80", "2001-0db8-0001-0000-0000-0000-0000-0080.pool.fleet.example"),
        ] {
            assert_eq!(reverse.default_name(address.parse().unwrap()).unwrap().to_string(), expected);
        }
    }
}
