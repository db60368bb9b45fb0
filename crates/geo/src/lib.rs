//! Where on the globe an address is, by a file of the operator's: a list of networks ([`text`]) or a database in
//! MaxMind's format ([`maxmind`]).
//!
//! Either becomes the same sorted table when it is read, so that a lookup does no I/O, allocates nothing and cannot fail,
//! and a damaged file is noticed before anybody is sent anywhere by it.

mod maxmind;
mod table;
mod text;

use std::collections::HashMap;
use std::net::IpAddr;

use model::network::Coordinates;
use model::steering::Whereabouts;

pub use text::LineMistake;

use table::Table;

/// The largest public databases tell some six million networks apart. With so many, a map takes 200 MiB.
pub const MAX_NETWORKS: usize = 8_000_000;

/// Where networks are. Made once from a file, and then only read.
#[derive(Debug)]
pub struct Map {
    places: Vec<Place>,
    v4: Table<u32>,
    v6: Table<u128>,
}

/// At least one of both is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub coordinates: Option<Coordinates>,
    /// As the list says; in a database, the country's code (ISO 3166-1, two capital letters).
    pub region: Option<Box<str>>,
}

impl<'a> From<&'a Place> for Whereabouts<'a> {
    fn from(place: &'a Place) -> Self {
        Self { coordinates: place.coordinates, region: place.region.as_deref(), provider: None }
    }
}

/// What is known of an address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Located<'a> {
    pub place: Option<&'a Place>,
    /// All addresses that share so many leading bits with it are at the same place, or are all unknown: a network that has
    /// others of its own inside counts only where they are not (RFC 7871 7.2.1 has the same rule for its scopes).
    pub prefix_len: u8,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum GeoError {
    #[error("line {line}: {mistake}")]
    Line { line: usize, mistake: LineMistake },
    #[error("there are more than {MAX_NETWORKS} networks; join neighbours that are at one place")]
    TooMany,
    #[error("the MaxMind database is damaged, or of another format: {0}; fetch it again")]
    Damaged(String),
    #[error("a MaxMind database of type {0:?} says of no network where it is; a City or Country database does")]
    NoPlaces(String),
}

impl Map {
    /// A file of either kind.
    pub fn parse(octets: &[u8]) -> Result<Self, GeoError> {
        if maxmind::is_database(octets) { Self::from_maxmind(octets) } else { Self::parse_cidr_map(octets) }
    }

    /// A list: one `CIDR LATITUDE LONGITUDE [REGION]` per line, with `-` for both numbers where only the region is known.
    /// What follows a `#` is a comment. Of networks that lie in one another the smallest counts.
    pub fn parse_cidr_map(octets: &[u8]) -> Result<Self, GeoError> {
        text::parse(octets)
    }

    /// A City, Country or similar database: whatever has `location` or `country` in its records.
    pub fn from_maxmind(octets: &[u8]) -> Result<Self, GeoError> {
        maxmind::read(octets)
    }

    pub fn locate(&self, address: IpAddr) -> Located<'_> {
        let (place, prefix_len) = match address.to_canonical() {
            IpAddr::V4(address) => self.v4.find(address.to_bits()),
            IpAddr::V6(address) => self.v6.find(address.to_bits()),
        };
        Located { place: place.and_then(|number| self.places.get(number as usize)), prefix_len }
    }

    /// How many stretches of addresses are told apart, the unknown ones between them included.
    pub fn stretches(&self) -> usize {
        self.v4.stretches() + self.v6.stretches()
    }
}

/// The bits of both degrees, and the region.
type PlaceKey = (Option<[u64; 2]>, Option<Box<str>>);

/// Collects places, each once, and networks.
#[derive(Debug, Default)]
struct Builder {
    places: Vec<Place>,
    numbers: HashMap<PlaceKey, u32>,
    v4: Vec<table::Network<u32>>,
    v6: Vec<table::Network<u128>>,
}

impl Builder {
    /// The number of a place; none where nothing of it is known.
    fn place(&mut self, coordinates: Option<Coordinates>, region: Option<&str>) -> Option<u32> {
        if coordinates.is_none() && region.is_none() {
            return None;
        }
        let bits = coordinates.map(|place| [place.latitude().to_bits(), place.longitude().to_bits()]);
        let key = (bits, region.map(Box::from));
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = u32::try_from(self.places.len()).ok()?;
        self.places.push(Place { coordinates, region: key.1.clone() });
        self.numbers.insert(key, number);
        Some(number)
    }

    fn network(&mut self, first: IpAddr, prefix_len: u8, place: u32) -> Result<(), GeoError> {
        if self.v4.len() + self.v6.len() >= MAX_NETWORKS {
            return Err(GeoError::TooMany);
        }
        match first {
            IpAddr::V4(first) => self.v4.push(table::Network { first: first.to_bits(), prefix_len, place }),
            IpAddr::V6(first) => self.v6.push(table::Network { first: first.to_bits(), prefix_len, place }),
        }
        Ok(())
    }

    fn finish(self) -> Map {
        Map { places: self.places, v4: Table::of(self.v4), v6: Table::of(self.v6) }
    }
}

#[cfg(test)]
mod tests;
