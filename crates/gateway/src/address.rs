//! Two addresses that must never be mistaken for each other: what the socket says and what a header says.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Who is at the other end of the socket: nobody can make this up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// Who a PROXY header says the client is: only as true as who sent the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub SocketAddr);

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
