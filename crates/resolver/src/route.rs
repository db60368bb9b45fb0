//! Who is asked about a name on a control plane's behalf. Pure.
//!
//! | name | who |
//! |---|---|
//! | `localhost`, `invalid` | nobody (RFC 6761) |
//! | `NAME.NS.svc` | an alias: with the hub's domain behind it where `NS` is the control plane's own namespace there, else with the cluster's |
//! | at or below `NS.svc.HUB-DOMAIN`, `NS` the control plane's own namespace | the hub's DNS |
//! | at or below the cluster's domain, and addresses of its networks | the cluster's DNS |
//! | everything else of the hub's domain | nobody: for this control plane it is not there |
//! | everything else | the servers of the outside |
//!
//! The hub's and the cluster's domain are the same in most fleets (`cluster.local`). The control plane's own namespace then is
//! the hub's, and everything else the cluster's. No name leads to another cluster or to a neighbour's namespace: whoever could
//! ask for one could list them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::resolver::ResolverPart;
use model::{Cidr, DnsName};

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The DNS inside the cluster.
    Tenant,
    /// The hub's own.
    Hub,
    Upstream,
    /// The name stands for another one.
    Alias(DnsName),
    /// This machine.
    Loopback,
    /// There is no such name.
    Nothing,
    /// For this control plane there is no such name.
    Hidden,
    /// Nothing is there, and something below it.
    Between,
}

/// What a cluster's questions are routed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    domain: DnsName,
    networks: Vec<Cidr>,
    namespace: Option<String>,
    /// The control plane's own namespace there.
    own: Option<DnsName>,
    hub: DnsName,
    svc: DnsName,
    localhost: DnsName,
    invalid: DnsName,
}

impl Routes {
    pub fn new(part: &ResolverPart, hub: &DnsName) -> Self {
        let namespace = part.namespace.as_ref().map(ToString::to_string);
        let own = namespace.as_ref().and_then(|namespace| hub.prepend(&format!("{namespace}.svc")).ok());
        let single = |label: &str| DnsName::root().prepend(label).unwrap_or_else(|_| DnsName::root());
        Self {
            domain: part.dns.domain.clone(),
            networks: part.dns.services.iter().chain(&part.dns.pods).copied().collect(),
            namespace,
            own,
            hub: hub.clone(),
            svc: single("svc"),
            localhost: single("localhost"),
            invalid: single("invalid"),
        }
    }

    pub fn of(&self, name: &DnsName) -> Route {
        if name.is_at_or_under(&self.localhost) {
            return Route::Loopback;
        }
        if name.is_at_or_under(&self.invalid) {
            return Route::Nothing;
        }
        if self.own.as_ref().is_some_and(|own| name.is_at_or_under(own)) {
            return Route::Hub;
        }
        if name.is_at_or_under(&self.domain) {
            return Route::Tenant;
        }
        if name.is_at_or_under(&self.hub) {
            let is_above = self.own.as_ref().is_some_and(|own| own.is_at_or_under(name));
            return if is_above { Route::Between } else { Route::Hidden };
        }
        if name.is_at_or_under(&self.svc) {
            return self.in_full(name);
        }
        match address_of(name) {
            Some(address) if self.networks.iter().any(|network| network.contains(address)) => Route::Tenant,
            _ => Route::Upstream,
        }
    }

    /// `NAME.NS.svc`, which is what Kubernetes calls its Services by where it leaves the domain to a search list.
    fn in_full(&self, name: &DnsName) -> Route {
        let labels: Vec<&[u8]> = name.labels().collect();
        let [.., namespace, _] = labels.as_slice() else { return Route::Between };
        if labels.len() < 3 {
            return Route::Between;
        }
        let is_own = self.namespace.as_ref().is_some_and(|own| own.as_bytes() == *namespace);
        let domain = if is_own { &self.hub } else { &self.domain };
        let wire = name.as_wire();
        let full = [&wire[..wire.len() - 1], domain.as_wire()].concat();
        DnsName::from_wire(&full).map_or(Route::Nothing, Route::Alias)
    }
}

/// The address whose name is asked for (RFC 1035 3.5, RFC 3596 2.5).
fn address_of(name: &DnsName) -> Option<IpAddr> {
    let labels: Vec<&[u8]> = name.labels().collect();
    match labels.as_slice() {
        [d, c, b, a, b"in-addr", b"arpa"] => {
            let octet = |label: &[u8]| std::str::from_utf8(label).ok()?.parse::<u8>().ok();
            Some(Ipv4Addr::new(octet(a)?, octet(b)?, octet(c)?, octet(d)?).into())
        }
        [nibbles @ .., b"ip6", b"arpa"] if nibbles.len() == 32 => {
            let mut address = 0_u128;
            for nibble in nibbles.iter().rev() {
                let [digit] = *nibble else { return None };
                address = address << 4 | u128::from(char::from(*digit).to_digit(16)?);
            }
            Some(Ipv6Addr::from(address).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use model::resolver::ClusterDns;

    use super::*;

    fn routes(domain: &str, namespace: Option<&str>, hub: &str) -> Routes {
        let dns = ClusterDns {
            domain: domain.parse().unwrap(),
            services: vec!["10.10.0.0/16".parse().unwrap(), "fd00:10::/108".parse().unwrap()],
            pods: vec!["172.25.3.0/26".parse().unwrap()],
            ..ClusterDns::default()
        };
        let namespace = namespace.map(|namespace| namespace.parse().unwrap());
        Routes::new(&ResolverPart { dns, namespace, place: None }, &hub.parse().unwrap())
    }

    fn route(routes: &Routes, name: &str) -> String {
        match routes.of(&name.parse().unwrap()) {
            Route::Alias(target) => format!("{target}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn names_are_routed() {
        // The usual: one domain for both.
        let same = routes("cluster.local", Some("c1"), "cluster.local");
        // And a hub that is called otherwise.
        let other = routes("cluster.local", Some("c1"), "hub.test");
        let without = routes("cluster.local", None, "hub.test");
        for (name, expected) in [
            ("web.shop.svc.cluster.local", ["Tenant", "Tenant", "Tenant"]),
            ("WEB.Shop.SVC.Cluster.Local", ["Tenant", "Tenant", "Tenant"]),
            ("cluster.local", ["Tenant", "Tenant", "Tenant"]),
            ("svc.cluster.local", ["Tenant", "Tenant", "Tenant"]),
            ("kubernetes.default.svc.cluster.local", ["Tenant", "Tenant", "Tenant"]),
            // The control plane's own namespace.
            ("etcd.c1.svc.cluster.local", ["Hub", "Tenant", "Tenant"]),
            ("etcd-0.etcd.c1.svc.cluster.local", ["Hub", "Tenant", "Tenant"]),
            ("c1.svc.cluster.local", ["Hub", "Tenant", "Tenant"]),
            ("etcd.c1.svc.hub.test", ["Upstream", "Hub", "Hidden"]),
            ("c1.svc.hub.test", ["Upstream", "Hub", "Hidden"]),
            // Neighbours are not there, and nothing of the hub's beside.
            ("etcd.c2.svc.cluster.local", ["Tenant", "Tenant", "Tenant"]),
            ("etcd.c2.svc.hub.test", ["Upstream", "Hidden", "Hidden"]),
            ("c2.svc.hub.test", ["Upstream", "Hidden", "Hidden"]),
            ("10-0-0-1.c1.pod.hub.test", ["Upstream", "Hidden", "Hidden"]),
            ("xc1.svc.hub.test", ["Upstream", "Hidden", "Hidden"]),
            // RFC 8020: what is above something that is there is no no.
            ("svc.hub.test", ["Upstream", "Between", "Hidden"]),
            ("hub.test", ["Upstream", "Between", "Hidden"]),
            // Without a domain.
            (
                "web.shop.svc",
                ["web.shop.svc.cluster.local.", "web.shop.svc.cluster.local.", "web.shop.svc.cluster.local."],
            ),
            ("etcd.c1.svc", ["etcd.c1.svc.cluster.local.", "etcd.c1.svc.hub.test.", "etcd.c1.svc.cluster.local."]),
            ("_https._tcp.web.shop.svc", ["_https._tcp.web.shop.svc.cluster.local."; 3]),
            ("shop.svc", ["Between"; 3]),
            ("svc", ["Between"; 3]),
            // Addresses.
            ("9.7.10.10.in-addr.arpa", ["Tenant"; 3]),
            ("63.3.25.172.in-addr.arpa", ["Tenant"; 3]),
            ("64.3.25.172.in-addr.arpa", ["Upstream"; 3]),
            ("1.2.0.192.in-addr.arpa", ["Upstream"; 3]),
            ("10.in-addr.arpa", ["Upstream"; 3]),
            ("a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.0.d.f.ip6.arpa", ["Tenant"; 3]),
            ("a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.1.0.0.0.0.d.f.ip6.arpa", ["Upstream"; 3]),
            // The rest of the world.
            ("example.org", ["Upstream"; 3]),
            ("evilcluster.local", ["Upstream"; 3]),
            (".", ["Upstream"; 3]),
            ("localhost", ["Loopback"; 3]),
            ("a.localhost", ["Loopback"; 3]),
            ("a.invalid", ["Nothing"; 3]),
        ] {
            let found = [&same, &other, &without].map(|routes| route(routes, name).trim_end_matches('.').to_owned());
            let expected = expected.map(|text| text.trim_end_matches('.').to_owned());
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_name_that_would_be_too_long_is_none() {
        let label = "a".repeat(60);
        let name = format!("{label}.{label}.{label}.{label}.ns.svc").parse().unwrap();
        assert_eq!(routes("cluster.local", None, "cluster.local").of(&name), Route::Nothing);
    }
}
