//! Where the hub's doors are, as people write it: `HOST:PORT`, by name or by address.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// One of the hub's doors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    host: String,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error("a hub is written HOST:PORT, such as hub.example.net:6443 or [2001:db8::1]:6443")]
    Form,
    #[error("{0:?} is not a port from 1 to 65535")]
    Port(String),
}

impl Place {
    /// Asks the system's resolver, which may take its time.
    pub(crate) fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }

    /// The same, without holding anybody up.
    pub(crate) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect())
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (host, port) = text.rsplit_once(':').ok_or(PlaceError::Form)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        // A colon that is left is an IPv6 address without brackets, whose last group would be taken for a port.
        let bare = host.contains(':') && !text.starts_with('[');
        if host.is_empty() || bare || host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(PlaceError::Form);
        }
        let port_error = || PlaceError::Port(port.into());
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(port_error)?;
        Ok(Self { host: host.into(), port })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_names_or_addresses_with_a_port() {
        for (text, expected) in [
            ("hub.example.net:6443", Ok("hub.example.net:6443")),
            ("192.0.2.10:443", Ok("192.0.2.10:443")),
            ("[2001:db8::1]:6443", Ok("[2001:db8::1]:6443")),
            ("2001:db8::1:6443", Err(PlaceError::Form)),
            ("hub.example.net", Err(PlaceError::Form)),
            (":6443", Err(PlaceError::Form)),
            ("https://hub:6443", Err(PlaceError::Form)),
            ("hub:0", Err(PlaceError::Port("0".into()))),
            ("hub:http", Err(PlaceError::Port("http".into()))),
        ] {
            let place: Result<Place, _> = text.parse();
            assert_eq!(place.map(|place| place.to_string()), expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn an_address_needs_no_resolver() {
        let place: Place = "[::1]:6443".parse().unwrap();
        assert_eq!(place.look_up().unwrap(), ["[::1]:6443".parse().unwrap()]);
    }
}
