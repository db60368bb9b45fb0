//! Reverse names: which zones the addresses of a range have, and where in them an address stands.
//!
//! A range on an octet's boundary (IPv4) or a nibble's (IPv6) is one zone; one in between is several of the next boundary, at
//! most 128 and 8 of them. Delegation ends at the last octet or nibble: a smaller range is one classless zone as RFC 2317 has
//! it, `64-26.2.0.192.in-addr.arpa` for 192.0.2.64/26. The RFC's own `64/26` is the same with a character that tools
//! stumble over; section 4 leaves the choice. Whoever has the zone above it needs a CNAME there for every address, which
//! [`aliases_of`] gives.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::name::DnsName;
use crate::network::Cidr;

/// Where the PTR record of an address stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The apex of its zone.
    pub zone: DnsName,
    /// Always below the apex.
    pub name: DnsName,
}

/// The name that everybody asks for to learn an address' name (RFC 1035 3.5, RFC 3596 2.5).
pub fn name_of(address: IpAddr) -> DnsName {
    let digits = Digits::of(address);
    digits.name(digits.count(), None)
}

/// The reverse zones of a range, in the order of their addresses.
pub fn zones_of(range: &Cidr) -> Vec<DnsName> {
    match Cut::of(range) {
        Cut::Classless => vec![classless_zone(range)],
        Cut::Boundary(prefix_len) => {
            range.subnets(prefix_len).map(|zone| zone_at(zone.network(), prefix_len)).collect()
        }
    }
}

/// The place of an address in one of [`zones_of`] the range; `None` where the range does not have it.
pub fn place_of(range: &Cidr, address: IpAddr) -> Option<Place> {
    if !range.contains(address) {
        return None;
    }
    let digits = Digits::of(address);
    Some(match Cut::of(range) {
        Cut::Classless => {
            Place { zone: classless_zone(range), name: digits.name(digits.count(), Some(&classless_label(range))) }
        }
        Cut::Boundary(prefix_len) => Place { zone: zone_at(address, prefix_len), name: name_of(address) },
    })
}

/// The CNAME records that the zone above a classless one needs: from the name that everybody asks for to the one that has the
/// PTR record. At most 256; none where the zones of a range are delegated by NS records alone.
pub fn aliases_of(range: &Cidr) -> Vec<(DnsName, DnsName)> {
    if Cut::of(range) != Cut::Classless {
        return Vec::new();
    }
    let single = range.subnets(Digits::of(range.network()).bits());
    single
        .map(|one| one.network())
        .filter_map(|address| Some((name_of(address), place_of(range, address)?.name)))
        .collect()
}

/// Where the zones of a range begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// At the first boundary that is no shorter than the range.
    Boundary(u8),
    /// Inside the last octet or nibble.
    Classless,
}

impl Cut {
    fn of(range: &Cidr) -> Self {
        let digits = Digits::of(range.network());
        let boundary = range.prefix_len().next_multiple_of(digits.width());
        if boundary < digits.bits() { Self::Boundary(boundary) } else { Self::Classless }
    }
}

/// The zone of all addresses that begin like this one.
fn zone_at(address: IpAddr, prefix_len: u8) -> DnsName {
    let digits = Digits::of(address);
    digits.name(usize::from(prefix_len / digits.width()), None)
}

fn classless_zone(range: &Cidr) -> DnsName {
    let digits = Digits::of(range.network());
    let parent = digits.name(digits.count() - 1, None);
    parent.prepend(&classless_label(range)).expect("a reverse name has room for one label more")
}

/// The last octet or nibble of its first address, and its prefix length.
fn classless_label(range: &Cidr) -> String {
    let digits = Digits::of(range.network());
    format!("{}-{}", digits.last(), range.prefix_len())
}

/// An address as the labels of its reverse name: decimal octets or hexadecimal nibbles, the most significant first.
enum Digits {
    Octets([u8; 4]),
    Nibbles([u8; 16]),
}

impl Digits {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::Octets(address.octets()),
            IpAddr::V6(address) => Self::Nibbles(address.octets()),
        }
    }

    /// How many bits a label stands for.
    fn width(&self) -> u8 {
        match self {
            Self::Octets(_) => 8,
            Self::Nibbles(_) => 4,
        }
    }

    fn bits(&self) -> u8 {
        match self {
            Self::Octets(_) => 32,
            Self::Nibbles(_) => 128,
        }
    }

    fn count(&self) -> usize {
        usize::from(self.bits() / self.width())
    }

    fn label(&self, position: usize) -> String {
        match self {
            Self::Octets(octets) => octets[position].to_string(),
            Self::Nibbles(octets) => {
                let octet = octets[position / 2];
                format!("{:x}", if position.is_multiple_of(2) { octet >> 4 } else { octet & 0xf })
            }
        }
    }

    fn last(&self) -> String {
        self.label(self.count() - 1)
    }

    /// The name of the first `count` labels, with another one behind the last of them where it is given.
    fn name(&self, count: usize, behind_last: Option<&str>) -> DnsName {
        let mut text = String::with_capacity(80);
        for position in (0..count).rev() {
            let _ = write!(text, "{}.", self.label(position));
            if let Some(label) = behind_last.filter(|_| position + 1 == count) {
                let _ = write!(text, "{label}.");
            }
        }
        text.push_str(match self {
            Self::Octets(_) => "in-addr.arpa",
            Self::Nibbles(_) => "ip6.arpa",
        });
        DnsName::parse(&text).expect("at most 33 short labels and a suffix are a name")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn range(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn texts(names: impl IntoIterator<Item = DnsName>) -> Vec<String> {
        names.into_iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn names_of_addresses_are_those_of_the_rfcs() {
        for (address, expected) in [
            // RFC 1035 3.5's own examples.
            ("10.2.0.52", "52.0.2.10.in-addr.arpa"),
            ("10.0.0.6", "6.0.0.10.in-addr.arpa"),
            ("::ffff:192.0.2.1", "1.2.0.192.in-addr.arpa"),
            // RFC 3596 2.5's own example.
            ("4321:0:1:2:3:4:567:89ab", "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.4.ip6.arpa"),
        ] {
            assert_eq!(name_of(address.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn zones_of_ranges() {
        for (text, expected) in [
            ("198.51.100.0/24", &["100.51.198.in-addr.arpa"][..]),
            (
                "198.51.100.0/22",
                &[
                    "100.51.198.in-addr.arpa",
                    "101.51.198.in-addr.arpa",
                    "102.51.198.in-addr.arpa",
                    "103.51.198.in-addr.arpa",
                ],
            ),
            ("10.0.0.0/8", &["10.in-addr.arpa"]),
            ("172.16.0.0/15", &["16.172.in-addr.arpa", "17.172.in-addr.arpa"]),
            ("0.0.0.0/0", &["in-addr.arpa"]),
            // The networks of RFC 2317 4's example, in the form with a dash.
            ("192.0.2.0/25", &["0-25.2.0.192.in-addr.arpa"]),
            ("192.0.2.128/26", &["128-26.2.0.192.in-addr.arpa"]),
            ("192.0.2.192/26", &["192-26.2.0.192.in-addr.arpa"]),
            ("192.0.2.7/32", &["7-32.2.0.192.in-addr.arpa"]),
            ("2001:db8:1::/64", &["0.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"]),
            ("2001:db8::/32", &["8.b.d.0.1.0.0.2.ip6.arpa"]),
            (
                "2001:db8::/30",
                &[
                    "8.b.d.0.1.0.0.2.ip6.arpa",
                    "9.b.d.0.1.0.0.2.ip6.arpa",
                    "a.b.d.0.1.0.0.2.ip6.arpa",
                    "b.b.d.0.1.0.0.2.ip6.arpa",
                ],
            ),
            ("2001:db8::/124", &["0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"]),
            ("2001:db8::8/125", &["8-125.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"]),
            ("2001:db8::f/128", &["f-128.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"]),
        ] {
            assert_eq!(texts(zones_of(&range(text))), expected, "{text}");
        }
        assert_eq!(zones_of(&range("198.48.0.0/20")).len(), 16);
        assert_eq!(zones_of(&range("198.0.0.0/9")).len(), 128);
    }

    #[test]
    fn places_of_addresses() {
        for (text, address, zone, name) in [
            ("198.51.100.0/22", "198.51.102.7", "102.51.198.in-addr.arpa", "7.102.51.198.in-addr.arpa"),
            ("192.0.2.64/26", "192.0.2.70", "64-26.2.0.192.in-addr.arpa", "70.64-26.2.0.192.in-addr.arpa"),
            ("192.0.2.7/32", "192.0.2.7", "7-32.2.0.192.in-addr.arpa", "7.7-32.2.0.192.in-addr.arpa"),
        ] {
            let place = place_of(&range(text), address.parse().unwrap()).unwrap();
            assert_eq!((place.zone.to_string(), place.name.to_string()), (zone.into(), name.into()));
        }
        assert_eq!(place_of(&range("192.0.2.64/26"), "192.0.2.63".parse().unwrap()), None);
        assert_eq!(place_of(&range("192.0.2.64/26"), "2001:db8::1".parse().unwrap()), None);
    }

    /// RFC 2317 4: `1 CNAME 1.0/25.2.0.192.in-addr.arpa.`
    #[test]
    fn classless_zones_need_aliases_above_them() {
        let aliases: Vec<String> =
            aliases_of(&range("192.0.2.64/30")).into_iter().map(|(from, to)| format!("{from} CNAME {to}")).collect();
        assert_eq!(
            aliases,
            [
                "64.2.0.192.in-addr.arpa CNAME 64.64-30.2.0.192.in-addr.arpa",
                "65.2.0.192.in-addr.arpa CNAME 65.64-30.2.0.192.in-addr.arpa",
                "66.2.0.192.in-addr.arpa CNAME 66.64-30.2.0.192.in-addr.arpa",
                "67.2.0.192.in-addr.arpa CNAME 67.64-30.2.0.192.in-addr.arpa",
            ]
        );
        assert_eq!(aliases_of(&range("192.0.2.0/25")).len(), 128);
        assert_eq!(aliases_of(&range("2001:db8::8/125")).len(), 8);
        assert_eq!(aliases_of(&range("192.0.2.0/24")), []);
    }

    fn any_range() -> impl Strategy<Value = Cidr> {
        prop_oneof![
            (any::<u32>(), 0u8..=32).prop_map(|(bits, prefix)| (IpAddr::from(Ipv4Addr::from_bits(bits)), prefix)),
            (any::<u128>(), 0u8..=128).prop_map(|(bits, prefix)| (IpAddr::from(Ipv6Addr::from_bits(bits)), prefix)),
        ]
        .prop_filter("an IPv4 address in IPv6 form is IPv4", |(address, _)| address.to_canonical() == *address)
        .prop_map(|(address, prefix)| {
            let whole = format!("{address}/{prefix}");
            match whole.parse() {
                Ok(range) => range,
                Err(crate::network::CidrError::HostBits { meant, .. }) => meant.to_string().parse().unwrap(),
                Err(wrong) => panic!("{whole}: {wrong}"),
            }
        })
    }

    /// An address of the range, chosen by its host bits.
    fn within(range: &Cidr, host: u128) -> IpAddr {
        match range.network() {
            IpAddr::V4(network) => {
                let mask = u32::MAX.checked_shr(range.prefix_len().into()).unwrap_or(0);
                Ipv4Addr::from_bits(network.to_bits() | (u32::try_from(host & 0xffff_ffff).unwrap() & mask)).into()
            }
            IpAddr::V6(network) => {
                let mask = u128::MAX.checked_shr(range.prefix_len().into()).unwrap_or(0);
                Ipv6Addr::from_bits(network.to_bits() | (host & mask)).into()
            }
        }
    }

    proptest! {
        #[test]
        fn every_address_has_one_place_in_one_zone(range in any_range(), host in any::<u128>()) {
            let address = within(&range, host);
            let zones = zones_of(&range);
            prop_assert!(zones.len() <= 128);
            let place = place_of(&range, address).unwrap();
            let holding: Vec<&DnsName> = zones.iter().filter(|zone| place.name.is_at_or_under(zone)).collect();
            prop_assert_eq!(holding, [&place.zone]);
            prop_assert_ne!(&place.name, &place.zone);
            prop_assert_eq!(zones.iter().collect::<BTreeSet<_>>().len(), zones.len());
            // Where everybody asks, it is found: there, or by the alias there.
            let asked = name_of(address);
            if place.name != asked {
                prop_assert!(aliases_of(&range).contains(&(asked, place.name)));
            }
        }

        #[test]
        fn two_addresses_have_two_places(range in any_range(), one in any::<u128>(), other in any::<u128>()) {
            let (one, other) = (within(&range, one), within(&range, other));
            prop_assert_eq!(one == other, place_of(&range, one) == place_of(&range, other));
        }

        /// Against the address as the standard library writes it.
        #[test]
        fn nibbles_are_those_of_the_text(bits in any::<u128>()) {
            let address = Ipv6Addr::from_bits(bits);
            prop_assume!(address.to_ipv4_mapped().is_none());
            let groups = address.segments().map(|group| format!("{group:04x}")).concat();
            let nibbles: Vec<String> = groups.chars().rev().map(String::from).collect();
            prop_assert_eq!(name_of(address.into()).to_string(), format!("{}.ip6.arpa", nibbles.join(".")));
        }
    }
}
