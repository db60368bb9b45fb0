//! Where things are: address ranges and places on the map.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::reach;

/// A range of addresses in CIDR form whose host bits are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    #[error("{0:?} is no CIDR; write an address and a prefix length, such as 192.0.2.0/24")]
    Malformed(String),
    #[error("{given} has host bits set; write {meant}")]
    HostBits { given: String, meant: IpNet },
}

impl Cidr {
    /// The network of so many bits that an address is in; the address alone where it has fewer.
    pub fn around(address: IpAddr, prefix_len: u8) -> Self {
        let address = address.to_canonical();
        Self(IpNet::new(address, prefix_len).unwrap_or_else(|_| IpNet::from(address)).trunc())
    }

    /// An IPv4 client that reached an IPv6 socket counts as the IPv4 client it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Whether every address of the other range is in this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }

    /// The ranges without those that lie in another of them, in the order of their addresses.
    pub fn outermost(ranges: &[Self]) -> Vec<Self> {
        let mut sorted = ranges.to_vec();
        // The larger first where two begin at the same address.
        sorted.sort_by_key(|range| (range.network(), range.prefix_len()));
        sorted.dedup_by(|inner, outer| outer.covers(inner));
        sorted
    }

    /// The first address.
    pub fn network(&self) -> IpAddr {
        self.0.network()
    }

    pub fn last(&self) -> IpAddr {
        self.0.broadcast()
    }

    pub fn prefix_len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// The ranges of that prefix length that it consists of; itself where it is no larger than that.
    pub fn subnets(&self, prefix_len: u8) -> impl Iterator<Item = Self> + use<> {
        let prefix_len = prefix_len.max(self.0.prefix_len());
        self.0.subnets(prefix_len).into_iter().flatten().map(Self)
    }

    /// Whether all of it is private: private ranges are whole prefixes, so that its ends say so.
    pub fn is_private(&self) -> bool {
        let private = [self.0.network(), self.0.broadcast()].map(reach::is_private);
        private == [true, true] && self.0.prefix_len() >= if self.0.network().is_ipv4() { 8 } else { 7 }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let network: IpNet = text.parse().map_err(|_| CidrError::Malformed(text.into()))?;
        if network == network.trunc() {
            Ok(Self(network))
        } else {
            Err(CidrError::HostBits { given: text.into(), meant: network.trunc() })
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a cluster runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    pub region: Option<String>,
    pub provider: Option<String>,
    pub coordinates: Option<Coordinates>,
}

/// Degrees north and east.
#[derive(Clone, Copy, PartialEq)]
pub struct Coordinates {
    latitude: f64,
    longitude: f64,
    /// The same as a point of a ball with radius 1: distances are asked for with every request, and follow from it without
    /// trigonometry.
    point: [f64; 3],
}

/// None of the numbers is NaN.
impl Eq for Coordinates {}

/// Of the ball that is closest to the earth (the mean radius of WGS 84).
const EARTH_RADIUS_KM: f64 = 6371.0088;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CoordinatesError {
    #[error("latitude {0} is not between -90 and 90 degrees")]
    Latitude(f64),
    #[error("longitude {0} is not between -180 and 180 degrees")]
    Longitude(f64),
    #[error("latitude and longitude are given together or not at all")]
    Half,
}

impl Coordinates {
    pub fn new(latitude: f64, longitude: f64) -> Result<Self, CoordinatesError> {
        // Ranges hold no NaN, so that it is refused here too.
        if !(-90.0..=90.0).contains(&latitude) {
            return Err(CoordinatesError::Latitude(latitude));
        }
        if !(-180.0..=180.0).contains(&longitude) {
            return Err(CoordinatesError::Longitude(longitude));
        }
        let (sin_latitude, cos_latitude) = latitude.to_radians().sin_cos();
        let (sin_longitude, cos_longitude) = longitude.to_radians().sin_cos();
        let point = [cos_latitude * cos_longitude, cos_latitude * sin_longitude, sin_latitude];
        Ok(Self { latitude, longitude, point })
    }

    /// Kilometres along the great circle. Good to half a percent, as the earth is no ball.
    pub fn distance_km(&self, other: &Self) -> f64 {
        let square = |one: f64, other: f64| (one - other) * (one - other);
        let [x, y, z] = self.point;
        let [other_x, other_y, other_z] = other.point;
        let chord = (square(x, other_x) + square(y, other_y) + square(z, other_z)).sqrt();
        // Rounding may make the chord of opposite points longer than the diameter.
        2.0 * EARTH_RADIUS_KM * (chord / 2.0).min(1.0).asin()
    }

    pub fn latitude(&self) -> f64 {
        self.latitude
    }

    pub fn longitude(&self) -> f64 {
        self.longitude
    }
}

impl fmt::Debug for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.latitude, self.longitude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidrs_have_no_host_bits() {
        for good in ["0.0.0.0/0", "::/0", "192.0.2.0/24", "192.0.2.1/32", "2001:db8::/64"] {
            assert!(good.parse::<Cidr>().is_ok(), "{good}");
        }
        for bad in ["", "192.0.2.0", "192.0.2.0/33", "192.0.2.1/24", "192.0.2/24", "2001:db8::1/64", "a/8"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
        assert_eq!(
            "10.1.2.3/8".parse::<Cidr>().unwrap_err().to_string(),
            "10.1.2.3/8 has host bits set; write 10.0.0.0/8"
        );
    }

    #[test]
    fn mapped_addresses_count_as_what_they_are() {
        let range: Cidr = "192.0.2.0/24".parse().unwrap();
        assert!(range.contains("::ffff:192.0.2.7".parse().unwrap()));
        assert!(!range.contains("::ffff:198.51.100.7".parse().unwrap()));
        assert!(!"::/0".parse::<Cidr>().unwrap().contains("192.0.2.7".parse().unwrap()));
    }

    #[test]
    fn an_address_has_a_network_around_it() {
        for (address, length, expected) in [
            ("203.0.113.7", 24, "203.0.113.0/24"),
            ("::ffff:203.0.113.7", 24, "203.0.113.0/24"),
            ("2001:db8:1:2ff::7", 56, "2001:db8:1:200::/56"),
            ("203.0.113.7", 33, "203.0.113.7/32"),
        ] {
            assert_eq!(Cidr::around(address.parse().unwrap(), length).to_string(), expected);
        }
    }

    #[test]
    fn coordinates_stay_on_the_globe() {
        assert!(Coordinates::new(52.5, 13.4).is_ok());
        assert!(Coordinates::new(90.5, 0.0).is_err());
        assert!(Coordinates::new(0.0, -180.5).is_err());
        assert!(Coordinates::new(f64::NAN, 0.0).is_err());
    }

    /// Against what others publish for these places, on a ball.
    #[test]
    fn distances_are_along_great_circles() {
        let berlin = (52.52, 13.405);
        for (one, other, expected) in [
            (berlin, berlin, 0.0),
            (berlin, (40.7128, -74.006), 6385.0),
            (berlin, (-33.8688, 151.2093), 16094.0),
            // Across the line where longitudes begin anew, and over a pole.
            ((0.0, 179.5), (0.0, -179.5), 111.2),
            ((89.0, 0.0), (89.0, 180.0), 222.4),
            ((90.0, 17.0), (90.0, -100.0), 0.0),
            ((0.0, 0.0), (0.0, 180.0), 20_015.1),
            ((37.0, 12.0), (-37.0, -168.0), 20_015.1),
        ] {
            let place = |(latitude, longitude)| Coordinates::new(latitude, longitude).unwrap();
            let (one, other) = (place(one), place(other));
            let distance = one.distance_km(&other);
            assert!((distance - expected).abs() < 0.005f64.mul_add(expected, 0.1), "{one:?} to {other:?}: {distance}");
            assert!((distance - other.distance_km(&one)).abs() < 1e-6);
        }
    }
}
