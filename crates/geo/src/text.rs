//! A list of networks as people write it.

use std::collections::HashMap;

use model::Cidr;
use model::network::{CidrError, Coordinates, CoordinatesError};

use crate::{Builder, GeoError, Map};

/// As long as a DNS label: a region is a word.
const MAX_REGION: usize = 63;

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum LineMistake {
    #[error("it is no UTF-8 text")]
    NoText,
    #[error("expected CIDR LATITUDE LONGITUDE [REGION]")]
    Fields,
    #[error(transparent)]
    Cidr(#[from] CidrError),
    #[error("{0:?} is no number of degrees")]
    Degrees(String),
    #[error(transparent)]
    Coordinates(#[from] CoordinatesError),
    #[error("without coordinates a network needs a region")]
    Nowhere,
    #[error("a region has at most {MAX_REGION} octets")]
    LongRegion,
    #[error("{network} stands in line {line} already")]
    Twice { network: Cidr, line: usize },
}

pub(crate) fn parse(octets: &[u8]) -> Result<Map, GeoError> {
    let mut builder = Builder::default();
    let mut lines: HashMap<Cidr, usize> = HashMap::new();
    for (number, line) in octets.split(|octet| *octet == b'\n').enumerate() {
        let at = |mistake| GeoError::Line { line: number + 1, mistake };
        let line = line.split(|octet| *octet == b'#').next().unwrap_or_default();
        let text = std::str::from_utf8(line).map_err(|_| at(LineMistake::NoText))?;
        let Some((network, coordinates, region)) = fields(text).map_err(at)? else { continue };
        if let Some(line) = lines.insert(network, number + 1) {
            return Err(at(LineMistake::Twice { network, line }));
        }
        let place = builder.place(coordinates, region).ok_or_else(|| at(LineMistake::Nowhere))?;
        builder.network(network.network(), network.prefix_len(), place)?;
    }
    Ok(builder.finish())
}

type Fields<'a> = (Cidr, Option<Coordinates>, Option<&'a str>);

/// None of an empty line.
fn fields(line: &str) -> Result<Option<Fields<'_>>, LineMistake> {
    let mut words = line.split_ascii_whitespace();
    let Some(network) = words.next() else { return Ok(None) };
    let network = network.parse()?;
    let (Some(latitude), Some(longitude)) = (words.next(), words.next()) else { return Err(LineMistake::Fields) };
    let degrees = |text: &str| text.parse::<f64>().map_err(|_| LineMistake::Degrees(text.into()));
    let coordinates = match (latitude, longitude) {
        ("-", "-") => None,
        ("-", _) | (_, "-") => return Err(CoordinatesError::Half.into()),
        _ => Some(Coordinates::new(degrees(latitude)?, degrees(longitude)?)?),
    };
    let region = words.next();
    if words.next().is_some() {
        return Err(LineMistake::Fields);
    }
    if region.is_some_and(|region| region.len() > MAX_REGION) {
        return Err(LineMistake::LongRegion);
    }
    Ok(Some((network, coordinates, region)))
}
