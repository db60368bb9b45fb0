//! How far an address reaches. What a tenant names must not lead to this machine, to its neighbours on the link, or to
//! the cloud's own services.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// An ordinary unicast address, private ones too: control planes mostly have those.
    Ordinary,
    Loopback,
    LinkLocal,
    Multicast,
    Unspecified,
    /// Where clouds hand out credentials, as far as that is not link-local anyway.
    Metadata,
}

/// AWS and Google over IPv6, Alibaba, Oracle.
const METADATA: [IpAddr; 4] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

impl Reach {
    pub fn of(address: IpAddr) -> Self {
        let address = without_disguise(address);
        let (link_local, unspecified) = match address {
            // 0.0.0.0/8 is "this network", and connecting to it means this machine.
            IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[0] == 0),
            IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.is_unspecified()),
        };
        if unspecified {
            Self::Unspecified
        } else if address.is_loopback() {
            Self::Loopback
        } else if link_local {
            Self::LinkLocal
        } else if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
            Self::Multicast
        } else if METADATA.contains(&address) {
            Self::Metadata
        } else {
            Self::Ordinary
        }
    }
}

impl Reach {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Multicast => "multicast or broadcast",
            Self::Unspecified => "unspecified",
            Self::Metadata => "metadata service",
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether it is an IPv6 address that holds an IPv4 one.
pub fn is_disguised(address: IpAddr) -> bool {
    without_disguise(address) != address
}

/// Whether the address means something else, or nothing, on every network: private (RFC 1918), behind a carrier's
/// translator (RFC 6598), for benchmarks (RFC 2544), for protocols (RFC 6890), reserved, unique local (RFC 4193).
pub fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            [10 | 240..=255, ..] | [192, 168, ..] | [192, 0, 0, _] | [198, 18 | 19, ..] => true,
            [172, second, ..] => (16..32).contains(&second),
            [100, second, ..] => (64..128).contains(&second),
            _ => false,
        },
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// The IPv4 address inside an IPv6 one that a kernel or a translator would take out again: mapped and compatible
/// (RFC 4291 2.5.5), NAT64 (RFC 6052 2.1), 6to4 (RFC 3056 2).
fn without_disguise(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let octets = v6.octets();
    let v4_at = |at: usize| IpAddr::from([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => v4_at(12),
        [0x2002, ..] => v4_at(2),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disguised_addresses_reach_where_the_plain_ones_do() {
        for (address, reach) in [
            ("10.0.0.7", Reach::Ordinary),
            ("203.0.113.4", Reach::Ordinary),
            ("2001:db8::1", Reach::Ordinary),
            ("fd12:3456::1", Reach::Ordinary),
            ("::ffff:10.0.0.7", Reach::Ordinary),
            ("127.0.0.1", Reach::Loopback),
            ("127.8.9.1", Reach::Loopback),
            ("::1", Reach::Loopback),
            ("::ffff:127.0.0.1", Reach::Loopback),
            ("::127.0.0.1", Reach::Loopback),
            ("64:ff9b::7f00:1", Reach::Loopback),
            ("169.254.169.254", Reach::LinkLocal),
            ("fe80::1", Reach::LinkLocal),
            ("::ffff:169.254.169.254", Reach::LinkLocal),
            ("64:ff9b::169.254.169.254", Reach::LinkLocal),
            ("2002:a9fe:a9fe::1", Reach::LinkLocal),
            ("224.0.0.1", Reach::Multicast),
            ("ff02::1", Reach::Multicast),
            ("255.255.255.255", Reach::Multicast),
            ("0.0.0.0", Reach::Unspecified),
            ("0.1.2.3", Reach::Unspecified),
            ("::", Reach::Unspecified),
            ("::ffff:0.0.0.0", Reach::Unspecified),
            ("fd00:ec2::254", Reach::Metadata),
            ("100.100.100.200", Reach::Metadata),
        ] {
            assert_eq!(Reach::of(address.parse().unwrap()), reach, "{address}");
        }
    }
}
