//! Writes databases in MaxMind's format, as the specification (version 2.0) has it.

use std::net::IpAddr;

use model::Cidr;

pub(super) enum Value {
    Text(&'static str),
    Double(f64),
    Number(u8, u64),
    Map(Vec<(&'static str, Value)>),
    List(Vec<Value>),
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                head(2, text.len(), out);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Double(number) => {
                head(3, 8, out);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Self::Number(kind, number) => {
                let octets = number.to_be_bytes();
                let octets = &octets[octets.iter().take_while(|octet| **octet == 0).count()..];
                head(*kind, octets.len(), out);
                out.extend_from_slice(octets);
            }
            Self::Map(entries) => {
                head(7, entries.len(), out);
                for (key, value) in entries {
                    Self::Text(key).write(out);
                    value.write(out);
                }
            }
            Self::List(values) => {
                head(11, values.len(), out);
                for value in values {
                    value.write(out);
                }
            }
        }
    }
}

/// Short ones only.
fn head(kind: u8, length: usize, out: &mut Vec<u8>) {
    let length = u8::try_from(length).unwrap();
    assert!(length < 29);
    if kind < 8 {
        out.push(kind << 5 | length);
    } else {
        out.extend_from_slice(&[length, kind - 7]);
    }
}

pub(super) struct Format {
    pub(super) ip_version: u8,
    pub(super) record_size: u8,
    pub(super) kind: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Child {
    Nothing,
    Node(usize),
    Record(usize),
}

/// Of networks and their records; of networks that lie in one another the smallest counts.
pub(super) fn write(format: &Format, networks: &[(Cidr, Value)]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut nodes = vec![[Child::Nothing; 2]];
    let mut sorted: Vec<&(Cidr, Value)> = networks.iter().collect();
    sorted.sort_by_key(|(network, _)| network.prefix_len());
    for (network, value) in sorted {
        let record = Child::Record(data.len());
        value.write(&mut data);
        let (first, length) = match (network.network(), format.ip_version) {
            (IpAddr::V4(first), 4) => (u128::from(first.to_bits()) << 96, network.prefix_len()),
            (IpAddr::V4(first), _) => (u128::from(first.to_bits()), network.prefix_len() + 96),
            (IpAddr::V6(first), _) => (first.to_bits(), network.prefix_len()),
        };
        let mut node = 0;
        for bit in 0..length {
            let side = usize::from(first << bit >> 127 == 1);
            if bit + 1 == length {
                nodes[node][side] = record;
                break;
            }
            node = match nodes[node][side] {
                Child::Node(child) => child,
                leaf => {
                    nodes.push([leaf; 2]);
                    let child = nodes.len() - 1;
                    nodes[node][side] = Child::Node(child);
                    child
                }
            };
        }
    }
    let mut out = Vec::new();
    let number = |child| match child {
        Child::Nothing => nodes.len(),
        Child::Node(node) => node,
        Child::Record(at) => nodes.len() + 16 + at,
    };
    for node in &nodes {
        let [left, right] = node.map(|child| u32::try_from(number(child)).unwrap().to_be_bytes());
        match format.record_size {
            24 => out.extend_from_slice(&[&left[1..], &right[1..]].concat()),
            28 => out.extend_from_slice(&[&left[1..], &[left[0] << 4 | right[0]], &right[1..]].concat()),
            _ => out.extend_from_slice(&[left, right].concat()),
        }
    }
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&data);
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let metadata = Value::Map(vec![
        ("binary_format_major_version", Value::Number(5, 2)),
        ("binary_format_minor_version", Value::Number(5, 0)),
        ("build_epoch", Value::Number(9, 1_700_000_000)),
        ("database_type", Value::Text(format.kind)),
        ("description", Value::Map(vec![("en", Value::Text("a test"))])),
        ("ip_version", Value::Number(5, format.ip_version.into())),
        ("languages", Value::List(vec![Value::Text("en")])),
        ("node_count", Value::Number(6, nodes.len() as u64)),
        ("record_size", Value::Number(5, format.record_size.into())),
    ]);
    metadata.write(&mut out);
    out
}

/// As in a City database.
pub(super) fn city(latitude: f64, longitude: f64, country: &'static str) -> Value {
    let names = Value::Map(vec![("en", Value::Text("somewhere"))]);
    Value::Map(vec![
        ("city", Value::Map(vec![("geoname_id", Value::Number(6, 17)), ("names", names)])),
        ("country", Value::Map(vec![("iso_code", Value::Text(country))])),
        (
            "location",
            Value::Map(vec![
                ("accuracy_radius", Value::Number(5, 50)),
                ("latitude", Value::Double(latitude)),
                ("longitude", Value::Double(longitude)),
            ]),
        ),
    ])
}

/// As in a Country database.
pub(super) fn country(code: &'static str) -> Value {
    Value::Map(vec![("country", Value::Map(vec![("iso_code", Value::Text(code))]))])
}
