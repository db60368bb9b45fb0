//! How the resolver works, and what it refuses to start with.

use std::net::{IpAddr, SocketAddr};

use model::DnsName;
use model::resolver::Ports;

/// Of all clusters' answers together: some 300,000.
const CACHE: usize = 128 << 20;
/// A control plane that asks without pause asks some hundred times a second.
const RATE: u32 = 5_000;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where clusters have their ports.
    pub listen: Option<(IpAddr, Ports)>,
    /// One address for all, where the cluster follows from who asks.
    pub shared: Option<SocketAddr>,
    /// Who knows the rest of the world, in the order in which they are asked.
    pub upstreams: Vec<SocketAddr>,
    /// The domain of the hub's Services.
    pub hub_domain: DnsName,
    /// Who knows it.
    pub hub_servers: Vec<SocketAddr>,
    /// How many octets of answers are kept, of all clusters.
    pub cache: usize,
    /// How many questions a second a cluster may ask.
    pub rate: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("{0} is asked for names, and is the resolver itself: every question would come back")]
    Loop(SocketAddr),
    #[error("there is nobody to ask: give at least one server")]
    NoServers,
}

impl Settings {
    pub fn new(upstreams: Vec<SocketAddr>, hub_domain: DnsName) -> Self {
        let hub_servers = upstreams.clone();
        Self { listen: None, shared: None, upstreams, hub_domain, hub_servers, cache: CACHE, rate: RATE }
    }

    /// Whoever asks itself never has an answer.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if self.upstreams.is_empty() || self.hub_servers.is_empty() {
            return Err(SettingsError::NoServers);
        }
        let own = self.upstreams.iter().chain(&self.hub_servers).find(|server| self.is_own(**server));
        own.map_or(Ok(()), |server| Err(SettingsError::Loop(*server)))
    }

    fn is_own(&self, server: SocketAddr) -> bool {
        let at = |listener: IpAddr| {
            let is_any = listener.is_unspecified() && server.ip().is_loopback();
            // Who sends to no address in particular reaches itself.
            listener == server.ip().to_canonical() || is_any || server.ip().is_unspecified()
        };
        let own_port = self.listen.as_ref().is_some_and(|(ip, ports)| at(*ip) && ports.contains(server.port()));
        own_port || self.shared.is_some_and(|shared| at(shared.ip()) && shared.port() == server.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_asks_itself() {
        for (listen, shared, server, is_good) in [
            ("127.0.0.1", None, "127.0.0.1:5400", false),
            ("127.0.0.1", None, "127.0.0.1:5403", false),
            ("127.0.0.1", None, "127.0.0.1:53", true),
            ("127.0.0.1", None, "127.0.0.2:5400", true),
            ("0.0.0.0", None, "127.0.0.2:5400", false),
            ("0.0.0.0", None, "192.0.2.1:53", true),
            ("127.0.0.1", None, "0.0.0.0:5400", false),
            ("127.0.0.1", None, "[::ffff:127.0.0.1]:5400", false),
            ("192.0.2.1", Some("192.0.2.2:53"), "192.0.2.2:53", false),
            ("192.0.2.1", Some("192.0.2.2:53"), "192.0.2.3:53", true),
        ] {
            let server: SocketAddr = server.parse().unwrap();
            let listen = Some((listen.parse().unwrap(), "5400-5403".parse().unwrap()));
            let shared = shared.map(|shared| shared.parse().unwrap());
            let settings = Settings { listen, shared, ..Settings::new(vec![server], "cluster.local".parse().unwrap()) };
            assert_eq!(settings.check().is_ok(), is_good, "{server} {:?}", settings.listen);
        }
        assert_eq!(Settings::new(Vec::new(), DnsName::root()).check(), Err(SettingsError::NoServers));
    }
}
