//! Two addresses that must never be mistaken for each other: what the socket says and what a header says.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Who is at the other end of the socket: nobody can make this up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// Who a PROXY header says the client is: only as true as who sent the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub SocketAddr);

/// Whom the headers of a connection name, as far as they have come. Every connection has one, so that it is kept small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Named {
    #[default]
    Nobody,
    /// By its own header, which anybody can write: for the log alone.
    Claimed(Endpoint),
    /// By a trusted proxy's header.
    Vouched(Endpoint),
}

/// An address without what only IPv6 sockets have beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    ip: IpAddr,
    port: u16,
}

impl Named {
    pub(crate) fn vouch(&mut self, client: Option<ClientAddr>) {
        if let Some(client) = client {
            *self = Self::Vouched(client.into());
        }
    }

    /// Who is vouched for stays named.
    pub(crate) fn claim(&mut self, client: Option<ClientAddr>) {
        if let (Some(client), Self::Nobody) = (client, &self) {
            *self = Self::Claimed(client.into());
        }
    }

    /// Whose address counts for `allowedSources`: the peer's, or the client's that a trusted proxy names.
    pub(crate) fn source(self, peer: PeerAddr) -> IpAddr {
        match self {
            Self::Vouched(client) => client.ip,
            Self::Claimed(_) | Self::Nobody => peer.ip(),
        }
    }

    /// The client that a trusted proxy names.
    pub(crate) fn vouched(self) -> Option<SocketAddr> {
        match self {
            Self::Vouched(client) => Some(SocketAddr::new(client.ip, client.port)),
            Self::Claimed(_) | Self::Nobody => None,
        }
    }

    /// For the log.
    pub(crate) fn client(self) -> Option<SocketAddr> {
        match self {
            Self::Claimed(client) | Self::Vouched(client) => Some(SocketAddr::new(client.ip, client.port)),
            Self::Nobody => None,
        }
    }
}

impl From<ClientAddr> for Endpoint {
    fn from(client: ClientAddr) -> Self {
        Self { ip: client.0.ip(), port: client.0.port() }
    }
}

impl PeerAddr {
    pub fn ip(self) -> IpAddr {
        self.0.ip()
    }
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ClientAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_vouched_for_counts_as_the_source() {
        let peer = PeerAddr("192.0.2.1:1".parse().unwrap());
        let client = |text: &str| Some(ClientAddr(text.parse().unwrap()));
        for (vouched, claimed, source, logged) in [
            (None, None, "192.0.2.1", None),
            (None, client("10.0.0.7:5"), "192.0.2.1", Some("10.0.0.7:5")),
            (client("[2001:db8::7]:6"), None, "2001:db8::7", Some("[2001:db8::7]:6")),
            (client("198.51.100.7:7"), client("10.0.0.7:5"), "198.51.100.7", Some("198.51.100.7:7")),
        ] {
            let mut named = Named::default();
            named.vouch(vouched);
            named.claim(claimed);
            // An opening that comes in pieces is read again with each of them.
            named.vouch(vouched);
            assert_eq!(named.source(peer), source.parse::<IpAddr>().unwrap());
            assert_eq!(named.client(), logged.map(|text| text.parse().unwrap()));
        }
    }
}
