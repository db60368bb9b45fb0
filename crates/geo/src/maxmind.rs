//! Databases in MaxMind's format. The crate decodes records; the tree is walked here, since a damaged one may lead to the
//! same nodes over and over, and real ones do so where IPv4 has other names in IPv6.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use maxminddb::{MaxMindDbError, Reader};
use model::network::Coordinates;
use serde::Deserialize;

use crate::{Builder, GeoError, Map};

/// What stands before the metadata, in the last part of the file.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// The metadata has at most so many octets.
const TAIL: usize = 128 * 1024;

/// What we want of a record.
#[derive(Deserialize)]
struct Record<'a> {
    location: Option<Location>,
    #[serde(borrow)]
    country: Option<Country<'a>>,
}

#[derive(Deserialize)]
struct Location {
    latitude: Option<f64>,
    longitude: Option<f64>,
}

#[derive(Deserialize)]
struct Country<'a> {
    iso_code: Option<&'a str>,
}

pub(crate) fn is_database(octets: &[u8]) -> bool {
    let tail = &octets[octets.len().saturating_sub(TAIL)..];
    tail.windows(MARKER.len()).any(|window| window == MARKER)
}

pub(crate) fn read(octets: &[u8]) -> Result<Map, GeoError> {
    let reader = Reader::from_source(octets).map_err(damaged)?;
    let tree = Tree::of(&reader, octets)?;
    let mut builder = Builder::default();
    // Most networks share their records with others.
    let mut known: HashMap<u32, Option<u32>> = HashMap::new();
    tree.walk(|network| {
        let place = if let Some(place) = known.get(&network.record) {
            *place
        } else {
            let record = reader.lookup(network.key()).and_then(|found| found.decode()).map_err(damaged)?;
            let place = record.and_then(|record| place_of(&record, &mut builder));
            known.insert(network.record, place);
            place
        };
        let (first, prefix_len) = network.cidr();
        place.map_or(Ok(()), |place| builder.network(first, prefix_len, place))
    })?;
    if builder.places.is_empty() {
        return Err(GeoError::NoPlaces(reader.metadata().database_type.clone()));
    }
    Ok(builder.finish())
}

fn place_of(record: &Record<'_>, builder: &mut Builder) -> Option<u32> {
    let degrees = record.location.as_ref().and_then(|place| place.latitude.zip(place.longitude));
    // Degrees that are nowhere on the globe say nothing.
    let coordinates = degrees.and_then(|(latitude, longitude)| Coordinates::new(latitude, longitude).ok());
    let country = record.country.as_ref().and_then(|country| country.iso_code);
    builder.place(coordinates, country)
}

// By value, as `map_err` has it.
#[allow(clippy::needless_pass_by_value)]
fn damaged(error: MaxMindDbError) -> GeoError {
    GeoError::Damaged(error.to_string())
}

/// The search tree: nodes of two records each, for the next bit of an address.
struct Tree<'a> {
    octets: &'a [u8],
    nodes: u32,
    record_size: u16,
    /// How many bits an address has.
    bits: u8,
}

/// A network that has a record.
#[derive(Clone, Copy)]
struct Network {
    /// The first address, its bits from the left.
    first: u128,
    prefix_len: u8,
    /// How many bits an address has.
    bits: u8,
    record: u32,
}

impl Network {
    /// An address to find the record by.
    fn key(&self) -> IpAddr {
        match self.bits {
            32 => Ipv4Addr::from_bits(self.upper()).into(),
            _ => Ipv6Addr::from_bits(self.first).into(),
        }
    }

    /// IPv4 lies at `::/96` of a tree for both.
    fn cidr(&self) -> (IpAddr, u8) {
        if self.bits == 128 && self.prefix_len >= 96 && self.first >> 32 == 0 {
            #[allow(clippy::cast_possible_truncation)] // Nothing is above.
            let first = self.first as u32;
            return (Ipv4Addr::from_bits(first).into(), self.prefix_len - 96);
        }
        (self.key(), self.prefix_len)
    }

    fn upper(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation)] // 32 bits are left.
        let upper = (self.first >> 96) as u32;
        upper
    }
}

impl<'a> Tree<'a> {
    fn of<S: AsRef<[u8]>>(reader: &Reader<S>, octets: &'a [u8]) -> Result<Self, GeoError> {
        let metadata = reader.metadata();
        let bits = if metadata.ip_version == 4 { 32 } else { 128 };
        let (nodes, record_size) = (metadata.node_count, metadata.record_size);
        let size = u64::from(nodes) * u64::from(record_size) / 4;
        let is_known = matches!(record_size, 24 | 28 | 32);
        let octets = usize::try_from(size).ok().filter(|_| is_known).and_then(|size| octets.get(..size));
        let octets = octets.ok_or_else(|| GeoError::Damaged("its tree is larger than the file".into()))?;
        Ok(Self { octets, nodes, record_size, bits })
    }

    /// Every network that has a record, in the order of their addresses. A node that was met before is another name of IPv4,
    /// or a mistake: either way the work is bounded by the file.
    fn walk(&self, mut found: impl FnMut(Network) -> Result<(), GeoError>) -> Result<(), GeoError> {
        let mut met = vec![false; self.nodes as usize];
        // At most two for each bit.
        let mut ahead = vec![Network { first: 0, prefix_len: 0, bits: self.bits, record: 0 }];
        while let Some(place) = ahead.pop() {
            if place.record >= self.nodes {
                // The number behind the last node is no record: nothing is known there.
                if place.record > self.nodes {
                    found(place)?;
                }
                continue;
            }
            if place.prefix_len >= self.bits {
                return Err(GeoError::Damaged("its tree is deeper than addresses are long".into()));
            }
            let Some(met) = met.get_mut(place.record as usize) else { continue };
            if std::mem::replace(met, true) {
                continue;
            }
            let [left, right] = self.node(place.record).unwrap_or([self.nodes; 2]);
            let prefix_len = place.prefix_len + 1;
            let one = 1 << (128 - u32::from(prefix_len));
            ahead.push(Network { first: place.first | one, prefix_len, record: right, ..place });
            ahead.push(Network { prefix_len, record: left, ..place });
        }
        Ok(())
    }

    fn node(&self, number: u32) -> Option<[u32; 2]> {
        let size = usize::from(self.record_size / 4);
        let octets = self.octets.get(number as usize * size..)?.get(..size)?;
        let of = |upper: u8, rest: &[u8]| {
            rest.iter().fold(u32::from(upper), |number, octet| number << 8 | u32::from(*octet))
        };
        let (left, right) = octets.split_at(size / 2);
        Some(match right {
            // The octet in the middle has the upper bits of both.
            [both, right @ ..] if self.record_size == 28 => [of(both >> 4, left), of(both & 15, right)],
            _ => [of(0, left), of(0, right)],
        })
    }
}
