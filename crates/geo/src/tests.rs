use std::net::{Ipv4Addr, Ipv6Addr};

use model::Cidr;
use proptest::prelude::*;

use super::*;

mod writer;

use writer::{Format, Value, city, country, write};

const CITY: Format = Format { ip_version: 6, record_size: 28, kind: "Test-City" };

const LIST: &str = "\
# Offices
10.0.0.0/8      52.5 13.4 eu   # all of it
10.1.0.0/16     40.7 -74  us
10.1.2.0/24\t-33.9\t151.2

192.0.2.0/25 - - lab
192.0.2.128/25 - - lab
2001:db8::/32 1 2
2001:db8:1::/48 3 4 far
";

/// `LATITUDE LONGITUDE REGION / PREFIX`.
fn told(map: &Map, address: &str) -> String {
    let Located { place, prefix_len } = map.locate(address.parse().unwrap());
    let place = place.map(|place| {
        let degrees = place.coordinates.map_or_else(|| "-".into(), |place| format!("{place:?}"));
        format!("{degrees} {}", place.region.as_deref().unwrap_or("-"))
    });
    format!("{} /{prefix_len}", place.as_deref().unwrap_or("unknown"))
}

#[test]
fn the_smallest_network_counts_and_scopes_do_not_overlap() {
    let map = Map::parse(LIST.as_bytes()).unwrap();
    for (address, expected) in [
        ("10.200.0.1", "52.5 13.4 eu /9"),
        // Not /8: there is 10.1.0.0/16, and as little as is next to it.
        ("10.0.0.1", "52.5 13.4 eu /16"),
        ("10.2.0.1", "52.5 13.4 eu /15"),
        ("10.1.0.1", "40.7 -74 us /23"),
        ("10.1.255.1", "40.7 -74 us /17"),
        ("10.1.2.255", "-33.9 151.2 - /24"),
        // Neighbours at one place are one.
        ("192.0.2.1", "- lab /24"),
        ("192.0.2.200", "- lab /24"),
        ("::ffff:192.0.2.200", "- lab /24"),
        ("192.0.3.0", "unknown /24"),
        ("255.255.255.255", "unknown /3"),
        ("0.0.0.0", "unknown /5"),
        ("11.0.0.0", "unknown /8"),
        ("2001:db8::1", "1 2 - /48"),
        ("2001:db8:1:ffff::", "3 4 far /48"),
        ("2001:db8:8000::", "1 2 - /33"),
        ("::", "unknown /3"),
        ("ffff::", "unknown /1"),
    ] {
        assert_eq!(told(&map, address), expected, "{address}");
    }
}

#[test]
fn everywhere_is_a_network_too() {
    let map = Map::parse(b"0.0.0.0/0 1 2\n255.255.255.255/32 3 4\n0.0.0.0/32 3 4\n::/0 5 6").unwrap();
    for (address, expected) in [
        ("128.0.0.0", "1 2 - /2"),
        ("255.255.255.255", "3 4 - /32"),
        ("0.0.0.0", "3 4 - /32"),
        ("0.0.0.1", "1 2 - /32"),
        ("2001:db8::", "5 6 - /0"),
    ] {
        assert_eq!(told(&map, address), expected, "{address}");
    }
    let nothing = Map::parse(b"").unwrap();
    assert_eq!(told(&nothing, "192.0.2.1"), "unknown /0");
    assert_eq!(told(&nothing, "::1"), "unknown /0");
}

#[test]
fn mistakes_say_where_they_are() {
    for (text, expected) in [
        (&b"10.0.0.0/8 1 2\n10.0.0.1/8 1 2"[..], "line 2: 10.0.0.1/8 has host bits set; write 10.0.0.0/8"),
        (b"10.0.0.0/8 1 2\n\n10.0.0.0/8 3 4", "line 3: 10.0.0.0/8 stands in line 1 already"),
        (
            b"10.0.0.0 1 2",
            "line 1: \"10.0.0.0\" is no CIDR; write an address and a prefix length, such as 192.0.2.0/24",
        ),
        (b"10.0.0.0/8 1", "line 1: expected CIDR LATITUDE LONGITUDE [REGION]"),
        (b"10.0.0.0/8", "line 1: expected CIDR LATITUDE LONGITUDE [REGION]"),
        (b"10.0.0.0/8 1 2 eu west", "line 1: expected CIDR LATITUDE LONGITUDE [REGION]"),
        (b"10.0.0.0/8 1 east", "line 1: \"east\" is no number of degrees"),
        (b"10.0.0.0/8 91 0", "line 1: latitude 91 is not between -90 and 90 degrees"),
        (b"10.0.0.0/8 NaN 0", "line 1: latitude NaN is not between -90 and 90 degrees"),
        (b"10.0.0.0/8 0 -181", "line 1: longitude -181 is not between -180 and 180 degrees"),
        (b"10.0.0.0/8 - 3", "line 1: latitude and longitude are given together or not at all"),
        (b"10.0.0.0/8 - -", "line 1: without coordinates a network needs a region"),
        (b"10.0.0.0/8 1 2 \xff", "line 1: it is no UTF-8 text"),
        (&[&b"::/0 1 2 "[..], &[b'x'; 64]].concat(), "line 1: a region has at most 63 octets"),
    ] {
        assert_eq!(Map::parse(text).unwrap_err().to_string(), expected, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn databases_say_the_same_in_every_format() {
    for ip_version in [4, 6] {
        for record_size in [24, 28, 32] {
            let mut networks = vec![
                ("10.0.0.0/8", city(52.5, 13.4, "DE")),
                ("10.1.0.0/16", city(40.7, -74.0, "US")),
                ("192.0.2.0/24", country("FR")),
                // Nowhere on the globe.
                ("198.51.100.0/24", city(100.0, 0.0, "SE")),
                ("203.0.113.0/24", Value::Map(vec![("traits", Value::Map(Vec::new()))])),
            ];
            if ip_version == 6 {
                networks.push(("2001:db8::/32", city(1.0, 2.0, "JP")));
            }
            let networks: Vec<(Cidr, Value)> =
                networks.into_iter().map(|(network, value)| (network.parse().unwrap(), value)).collect();
            let octets = write(&Format { ip_version, record_size, kind: "Test-City" }, &networks);
            let map = Map::parse(&octets).unwrap();
            for (address, expected) in [
                ("10.200.0.1", "52.5 13.4 DE /9"),
                ("10.1.0.1", "40.7 -74 US /16"),
                ("192.0.2.7", "- FR /24"),
                ("198.51.100.7", "- SE /24"),
                ("203.0.113.7", "unknown /5"),
                ("2001:db8::1", if ip_version == 6 { "1 2 JP /32" } else { "unknown /0" }),
                ("2001:db9::1", if ip_version == 6 { "unknown /32" } else { "unknown /0" }),
            ] {
                assert_eq!(told(&map, address), expected, "{address} in IPv{ip_version} of {record_size} bits");
            }
        }
    }
}

#[test]
fn a_database_without_places_is_told_so() {
    let octets = write(
        &Format { kind: "Test-ISP", ..CITY },
        &[("10.0.0.0/8".parse().unwrap(), Value::Map(vec![("isp", Value::Text("acme"))]))],
    );
    let error = Map::parse(&octets).unwrap_err();
    assert_eq!(error, GeoError::NoPlaces("Test-ISP".into()));
}

/// Every octet in turn has several other values, and the file ends everywhere.
#[test]
fn a_damaged_database_is_an_error_or_another_map() {
    let networks = [
        ("10.0.0.0/8", city(52.5, 13.4, "DE")),
        ("10.128.0.0/9", country("FR")),
        ("2001:db8::/32", city(1.0, 2.0, "JP")),
    ];
    let octets = write(&CITY, &networks.map(|(network, value)| (network.parse().unwrap(), value)));
    let mut errors = 0;
    let mut read = |octets: &[u8]| match Map::from_maxmind(octets) {
        Ok(map) => {
            for address in ["10.0.0.1", "192.0.2.1", "2001:db8::1", "::", "ffff::"] {
                map.locate(address.parse().unwrap());
            }
        }
        Err(_) => errors += 1,
    };
    for at in 0..octets.len() {
        read(&octets[..at]);
        let mut damaged = octets.clone();
        for value in [0, 1, 0x20, 0x7f, 0x80, 0xe0, 0xff, octets[at] ^ 1, octets[at] ^ 0x80] {
            damaged[at] = value;
            read(&damaged);
        }
    }
    assert!(errors > octets.len(), "only {errors} of {} were noticed", 10 * octets.len());
}

/// What leads back to a node would be walked for ever.
#[test]
fn a_tree_with_a_circle_ends() {
    let networks = [("10.0.0.0/8".parse().unwrap(), city(1.0, 2.0, "DE"))];
    let mut octets = write(&Format { ip_version: 6, record_size: 32, kind: "Test-City" }, &networks);
    // Both sides of a node lead to the next one: as many ways as addresses.
    for node in 0..100_u32 {
        let at = node as usize * 8;
        octets[at..at + 4].copy_from_slice(&(node + 1).to_be_bytes());
        octets[at + 4..at + 8].copy_from_slice(&(node + 1).to_be_bytes());
    }
    let map = Map::from_maxmind(&octets).unwrap();
    assert!(map.stretches() < 1000);
    // And one that leads to itself.
    octets[0..4].copy_from_slice(&0_u32.to_be_bytes());
    let _ = Map::from_maxmind(&octets);
}

/// Networks of some bits below `10.0.0.0/24` and `2001:db8::/120`, each at one of a few places.
fn networks() -> impl Strategy<Value = Vec<(Cidr, u8)>> {
    let network = (any::<bool>(), 0..=8_u8, any::<u8>()).prop_map(|(v6, bits, octet)| {
        let octet = octet & u8::MAX.checked_shl(u32::from(8 - bits)).unwrap_or_default();
        let text =
            if v6 { format!("2001:db8::{octet:x}/{}", 120 + bits) } else { format!("10.0.0.{octet}/{}", 24 + bits) };
        text.parse::<Cidr>().unwrap()
    });
    prop::collection::btree_map(network, 0..3_u8, 0..20).prop_map(|networks| networks.into_iter().collect())
}

fn addresses(v6: bool) -> impl Iterator<Item = IpAddr> {
    let v4 = move |octet| IpAddr::from(Ipv4Addr::new(10, 0, 0, octet));
    let v6_address = |octet: u8| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, octet.into()));
    (0..=255).map(move |octet| if v6 { v6_address(octet) } else { v4(octet) })
}

proptest! {
    // Each compares some thousand addresses.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lookups_agree_with_a_plain_search(networks in networks()) {
        let lines: Vec<String> = networks.iter().map(|(network, place)| format!("{network} {place} 0")).collect();
        let text = lines.join("\n");
        let map = Map::parse(text.as_bytes()).unwrap();
        let values = networks.iter().map(|(network, place)| (*network, city(f64::from(*place), 0.0, "DE")));
        let database = write(&CITY, &values.collect::<Vec<_>>());
        let database = (!networks.is_empty()).then(|| Map::parse(&database).unwrap());
        for v6 in [false, true] {
            let plain = |address: IpAddr| {
                let around = networks.iter().filter(|(network, _)| network.contains(address));
                around.max_by_key(|(network, _)| network.prefix_len()).map(|(_, place)| f64::from(*place))
            };
            let base = if v6 { 120 } else { 24 };
            for (number, address) in addresses(v6).enumerate() {
                let found = map.locate(address);
                let latitude = |found: Located<'_>| found.place.and_then(|at| at.coordinates).map(|at| at.latitude());
                prop_assert_eq!(latitude(found), plain(address));
                if let Some(database) = &database {
                    let same = database.locate(address);
                    prop_assert_eq!((latitude(same), same.prefix_len), (plain(address), found.prefix_len));
                }
                // All that share the prefix are alike, and with one bit less they are not.
                let alike = |bits: u8| {
                    let shift = 8 - (bits - base);
                    addresses(v6).enumerate().filter(|(other, _)| other >> shift == number >> shift)
                        .all(|(_, other)| plain(other) == plain(address))
                };
                prop_assert!(found.prefix_len < base || alike(found.prefix_len));
                prop_assert!(found.prefix_len <= base || !alike(found.prefix_len - 1));
            }
        }
    }

    #[test]
    fn any_octets_are_a_map_or_an_error(octets in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9./: #\\-]{0,40}") {
        let _ = Map::parse(&octets);
        let _ = Map::parse(text.as_bytes());
        let _ = Map::from_maxmind(&[&octets[..], b"\xab\xcd\xefMaxMind.com", &octets].concat());
    }
}
