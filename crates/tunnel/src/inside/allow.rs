//! What may be reached through an agent. Nothing here asks anybody: names are checked as they are asked for, and then each
//! address that they have.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use model::reach::{Reach, is_private};
use model::{Cidr, DnsName};

use crate::refused::Refused;

/// Where pods, Services and nodes mostly are: private (RFC 1918), shared with carriers (RFC 6598), unique local (RFC 4193).
const PRIVATE: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];

/// One rule: `CIDR`, `CIDR:PORT`, `CIDR:PORT-PORT`, and the same with a name in place of the CIDR, which is for all below it too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    what: What,
    ports: (u16, u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Range(Cidr),
    Under(DnsName),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    #[error("{0:?} is neither a range of addresses such as 10.0.0.0/8 nor a name such as svc.cluster.local")]
    What(String),
    #[error("{0:?} is neither a port nor a range of ports such as 8000-8999")]
    Ports(String),
}

impl FromStr for Allow {
    type Err = AllowError;

    fn from_str(text: &str) -> Result<Self, AllowError> {
        // An IPv6 range has colons itself; its prefix length comes before the port.
        let (what, ports) = match text.split_once('/') {
            Some((address, rest)) => match rest.split_once(':') {
                Some((length, ports)) => (format!("{address}/{length}"), Some(ports)),
                None => (text.to_owned(), None),
            },
            None => match text.split_once(':') {
                Some((name, ports)) => (name.to_owned(), Some(ports)),
                None => (text.to_owned(), None),
            },
        };
        let unclear = || AllowError::What(what.clone());
        let parsed = if what.contains('/') {
            What::Range(what.parse().map_err(|_| unclear())?)
        } else {
            match crate::Host::parse(&what).map_err(|_| unclear())? {
                crate::Host::Name(name) => What::Under(name),
                crate::Host::Address(address) => {
                    What::Range(Cidr::around(address, if address.is_ipv4() { 32 } else { 128 }))
                }
            }
        };
        Ok(Self { what: parsed, ports: ports.map_or(Ok((1, u16::MAX)), parse_ports)? })
    }
}

fn parse_ports(text: &str) -> Result<(u16, u16), AllowError> {
    let wrong = || AllowError::Ports(text.to_owned());
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(wrong);
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(text)?, port(text)?),
    };
    if first > last { Err(wrong()) } else { Ok((first, last)) }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Range(range) => write!(f, "{range}")?,
            What::Under(name) => write!(f, "{name}")?,
        }
        match self.ports {
            (1, u16::MAX) => Ok(()),
            (first, last) if first == last => write!(f, ":{first}"),
            (first, last) => write!(f, ":{first}-{last}"),
        }
    }
}

impl Allow {
    fn has_port(&self, port: u16) -> bool {
        (self.ports.0..=self.ports.1).contains(&port)
    }

    /// What is no ordinary address must be named as what it is: `0.0.0.0/0` does not mean this machine.
    fn allows(&self, address: IpAddr, reach: Reach, port: u16) -> bool {
        let What::Range(range) = &self.what else { return false };
        let literal = || Reach::of(range.network()) == reach && Reach::of(range.last()) == reach;
        range.contains(address) && self.has_port(port) && (reach == Reach::Ordinary || literal())
    }
}

/// All rules of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList(Vec<Allow>);

impl AllowList {
    /// As given, or what clusters mostly need where nothing is: private ranges, and names below the cluster's domain.
    pub fn new(given: Vec<Allow>, cluster_domain: &DnsName) -> Self {
        if !given.is_empty() {
            return Self(given);
        }
        let ranges = PRIVATE.iter().map(|range| range.parse().expect("these are ranges"));
        let domain = Allow { what: What::Under(cluster_domain.clone()), ports: (1, u16::MAX) };
        Self(ranges.chain([domain]).collect())
    }

    /// An address that was asked for as such.
    pub fn check_address(&self, address: IpAddr, port: u16) -> Result<(), Refused> {
        let reach = Reach::of(address);
        if self.0.iter().any(|rule| rule.allows(address, reach, port)) {
            return Ok(());
        }
        Err(Refused::Forbidden(match reach {
            Reach::Ordinary => format!("the agent's --allow has no {address} with port {port}"),
            reach => format!("{address} is a {reach} address"),
        }))
    }

    pub fn check_name(&self, name: &DnsName, port: u16) -> Result<(), Refused> {
        let allows = |rule: &Allow| match &rule.what {
            What::Under(ancestor) => name.is_at_or_under(ancestor) && rule.has_port(port),
            What::Range(_) => false,
        };
        if self.0.iter().any(allows) {
            return Ok(());
        }
        Err(Refused::Forbidden(format!("the agent's --allow has no {name} with port {port}")))
    }

    /// One that an allowed name has: public ones follow from the name, all others are allowed as such or not at all.
    pub fn check_address_of_name(&self, address: IpAddr, port: u16) -> Result<(), Refused> {
        if Reach::of(address) == Reach::Ordinary && !is_private(address.to_canonical()) {
            return Ok(());
        }
        self.check_address(address, port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rules: &[&str]) -> AllowList {
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        AllowList::new(rules, &DnsName::parse("cluster.local").unwrap())
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        for (text, expected) in [
            ("10.0.0.0/8", Ok("10.0.0.0/8")),
            ("10.0.0.0/8:443", Ok("10.0.0.0/8:443")),
            ("10.1.2.3:443", Ok("10.1.2.3/32:443")),
            ("fd00::/8:8000-8999", Ok("fd00::/8:8000-8999")),
            ("svc.cluster.local", Ok("svc.cluster.local")),
            ("Hooks.Example.net:443", Ok("hooks.example.net:443")),
            ("10.0.0.1/8", Err(AllowError::What("10.0.0.1/8".into()))),
            ("10.0.0.0/33", Err(AllowError::What("10.0.0.0/33".into()))),
            ("a b", Err(AllowError::What("a b".into()))),
            ("", Err(AllowError::What(String::new()))),
            ("10.0.0.0/8:0", Err(AllowError::Ports("0".into()))),
            ("10.0.0.0/8:9-8", Err(AllowError::Ports("9-8".into()))),
            ("web:http", Err(AllowError::Ports("http".into()))),
        ] {
            let rule: Result<Allow, _> = text.parse();
            assert_eq!(rule.map(|rule| rule.to_string()), expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn addresses_are_allowed_by_ranges_and_special_ones_by_their_own_alone() {
        let default: &[&str] = &[];
        for (rules, address, port, allowed) in [
            (default, "10.1.2.3", 443, true),
            (default, "172.31.0.1", 443, true),
            (default, "192.168.7.7", 10250, true),
            (default, "100.64.0.1", 80, true),
            (default, "fd12::1", 80, true),
            (default, "::ffff:10.1.2.3", 80, true),
            (default, "203.0.113.5", 443, false),
            (default, "2001:db8::1", 443, false),
            (default, "172.32.0.1", 443, false),
            (default, "127.0.0.1", 443, false),
            (default, "::1", 443, false),
            (default, "169.254.169.254", 80, false),
            (default, "::ffff:169.254.169.254", 80, false),
            (default, "64:ff9b::a9fe:a9fe", 80, false),
            (default, "fe80::1", 80, false),
            (default, "224.0.0.1", 80, false),
            (default, "0.0.0.0", 80, false),
            // Inside of private ranges, and still where clouds hand out credentials.
            (default, "fd00:ec2::254", 80, false),
            (default, "100.100.100.200", 80, false),
            (&["0.0.0.0/0", "::/0"], "203.0.113.5", 443, true),
            (&["0.0.0.0/0", "::/0"], "127.0.0.1", 443, false),
            (&["0.0.0.0/0", "::/0"], "169.254.169.254", 80, false),
            (&["0.0.0.0/0", "::/0"], "::1", 80, false),
            (&["127.0.0.0/8"], "127.0.0.1", 443, true),
            (&["127.0.0.0/8"], "10.1.2.3", 443, false),
            (&["169.254.169.254:80"], "169.254.169.254", 80, true),
            (&["169.254.169.254:80"], "169.254.169.254", 81, false),
            (&["169.254.0.0/16"], "169.254.1.1", 80, true),
            (&["10.0.0.0/8:8000-8999"], "10.1.2.3", 8000, true),
            (&["10.0.0.0/8:8000-8999"], "10.1.2.3", 9000, false),
        ] {
            let answer = list(rules).check_address(address.parse().unwrap(), port);
            assert_eq!(answer.is_ok(), allowed, "{rules:?} {address}:{port}");
        }
    }

    #[test]
    fn names_are_allowed_by_labels() {
        let default: &[&str] = &[];
        for (rules, name, port, allowed) in [
            (default, "web.default.svc.cluster.local", 443, true),
            (default, "cluster.local", 443, true),
            (default, "evilcluster.local", 443, false),
            (default, "localhost", 443, false),
            (default, "hooks.example.net", 443, false),
            (&["hooks.example.net:443"], "hooks.example.net", 443, true),
            (&["hooks.example.net:443"], "a.hooks.example.net", 443, true),
            (&["hooks.example.net:443"], "hooks.example.net", 80, false),
            (&["10.0.0.0/8"], "web.default.svc.cluster.local", 443, false),
        ] {
            let answer = list(rules).check_name(&DnsName::parse(name).unwrap(), port);
            assert_eq!(answer.is_ok(), allowed, "{rules:?} {name}:{port}");
        }
    }

    #[test]
    fn what_a_name_leads_to_is_looked_at_again() {
        for (rules, address, allowed) in [
            (&["hooks.example.net"][..], "203.0.113.5", true),
            (&["hooks.example.net"], "10.1.2.3", false),
            (&["hooks.example.net"], "169.254.169.254", false),
            (&["hooks.example.net"], "127.0.0.1", false),
            (&["hooks.example.net", "10.0.0.0/8"], "10.1.2.3", true),
            (&["hooks.example.net", "127.0.0.0/8"], "127.0.0.1", true),
            (&[], "10.1.2.3", true),
            (&[], "::ffff:127.0.0.1", false),
        ] {
            let answer = list(rules).check_address_of_name(address.parse().unwrap(), 443);
            assert_eq!(answer.is_ok(), allowed, "{rules:?} {address}");
        }
    }
}
