//! HTTP through a proxy, measured: a thousand hosts, a few backends, and clients that keep their connections.

mod backends;
mod connection;
pub mod fleetgate;
mod frames;
pub mod gate;
pub mod load;
pub mod peers;

use std::net::SocketAddr;

pub use connection::{Speaks, Tls};
pub use load::World;

pub const DOMAIN: &str = "shop.example";
/// What everybody asks for.
const PATH: &str = "/cart/items?page=2";

/// A host that is served, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site(pub usize);

impl Site {
    pub fn name(self) -> String {
        format!("h{:06}.{DOMAIN}", self.0)
    }
}

/// The hosts that a proxy is told about, and their backends, which they share in turn.
#[derive(Debug, Clone, Copy)]
pub struct Sites<'a> {
    pub count: usize,
    pub backends: &'a [SocketAddr],
}

impl Sites<'_> {
    pub fn each(self) -> impl Iterator<Item = (Site, usize)> {
        (0..self.count).map(move |number| (Site(number), self.backend_of(Site(number))))
    }

    /// By its number.
    pub fn backend_of(self, site: Site) -> usize {
        site.0 % self.backends.len()
    }
}
