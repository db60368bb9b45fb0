//! Which host a request is for (RFC 9110 7.2, RFC 9112 3.2, RFC 9113 8.3.1), without I/O.

use http::HeaderMap;
use http::header::HOST;
use http::uri::{Authority, Uri};
use model::DnsName;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the request names no host")]
    Missing,
    #[error("the request names more than one host")]
    Several,
    #[error("the request's host is none")]
    Malformed,
}

/// Whom a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// As it was sent, with its port: what the member is asked for.
    pub text: String,
    /// Without the port, which says nothing about the route. None is an address, which is nobody's.
    pub name: Option<DnsName>,
}

/// The target's authority counts where there is one; a Host beside it has to be the same, lest two readers differ.
pub fn of(target: &Uri, headers: &HeaderMap) -> Result<Asked, HostError> {
    let mut hosts = headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(HostError::Several);
    }
    let sent = first.map(|host| host.to_str().map_err(|_| HostError::Malformed)).transpose()?;
    match (target.authority().map(Authority::as_str), sent) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => Err(HostError::Several),
        (Some(host), _) | (None, Some(host)) => read(host),
        (None, None) => Err(HostError::Missing),
    }
}

/// Strictly a name or an address, and a port: no user, no escapes, no list.
pub fn read(text: &str) -> Result<Asked, HostError> {
    if text.is_empty() {
        return Err(HostError::Missing);
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(HostError::Malformed)?;
        let _: std::net::Ipv6Addr = address.parse().map_err(|_| HostError::Malformed)?;
        (None, rest.strip_prefix(':').or(rest.is_empty().then_some("")).ok_or(HostError::Malformed)?)
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        (Some(host), port)
    };
    let is_port = port.bytes().all(|octet| octet.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok());
    if !is_port {
        return Err(HostError::Malformed);
    }
    let Some(host) = host else { return Ok(Asked { text: text.to_ascii_lowercase(), name: None }) };
    // DNS allows any octet in a name and writes some of them with escapes; in URLs these are all there are.
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
    if host.is_empty() || !host.bytes().all(plain) {
        return Err(HostError::Malformed);
    }
    let is_address = host.parse::<std::net::Ipv4Addr>().is_ok();
    let name = if is_address { None } else { Some(DnsName::parse(host).map_err(|_| HostError::Malformed)?) };
    if name.as_ref().is_some_and(DnsName::is_root) {
        return Err(HostError::Malformed);
    }
    Ok(Asked { text: text.to_ascii_lowercase(), name })
}

impl Asked {
    /// For a TLS server name, or a place to be redirected to.
    pub fn without_port(&self) -> &str {
        match self.text.rfind(':') {
            Some(colon) if !self.text[colon..].contains(']') => &self.text[..colon],
            _ => &self.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(target: &str, hosts: &[&str]) -> Result<Option<String>, HostError> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, http::HeaderValue::from_bytes(host.as_bytes()).unwrap());
        }
        of(&target.parse().unwrap(), &headers).map(|asked| asked.name.map(|name| name.to_string()))
    }

    #[test]
    fn hosts_are_read_as_strictly_as_routes_need_it() {
        use HostError::{Malformed, Missing, Several};
        let shop = || Ok(Some(DnsName::parse("shop.test").unwrap().to_string()));
        for (target, hosts, expected) in [
            ("/", vec!["shop.test"], shop()),
            ("/", vec!["SHOP.test:8080"], shop()),
            ("/", vec!["shop.test."], shop()),
            ("/", vec!["shop.test:"], shop()),
            ("http://shop.test/a", vec!["shop.test"], shop()),
            ("http://shop.test/a", vec![], shop()),
            ("http://shop.test/a", vec!["SHOP.test"], shop()),
            ("http://shop.test/a", vec!["other.test"], Err(Several)),
            ("/", vec![], Err(Missing)),
            ("/", vec![""], Err(Missing)),
            ("/", vec!["shop.test", "shop.test"], Err(Several)),
            ("/", vec!["a.test, b.test"], Err(Malformed)),
            ("/", vec!["user@shop.test"], Err(Malformed)),
            ("http://user@shop.test/", vec![], Err(Malformed)),
            ("/", vec!["shop.test:http"], Err(Malformed)),
            ("/", vec!["shop.test:65536"], Err(Malformed)),
            ("/", vec!["shop.test:80:80"], Err(Malformed)),
            ("/", vec!["shop.test/"], Err(Malformed)),
            ("/", vec!["shop.test#"], Err(Malformed)),
            ("/", vec!["shop test"], Err(Malformed)),
            ("/", vec!["shop\\.test"], Err(Malformed)),
            ("/", vec!["*.test"], Err(Malformed)),
            ("/", vec!["shop..test"], Err(Malformed)),
            ("/", vec!["."], Err(Malformed)),
            ("/", vec!["sch\u{f6}n.test"], Err(Malformed)),
            ("/", vec!["192.0.2.7"], Ok(None)),
            ("/", vec!["[2001:db8::7]:80"], Ok(None)),
            ("/", vec!["[2001:db8::7"], Err(Malformed)),
            ("/", vec!["[2001:db8::7]80"], Err(Malformed)),
            ("/", vec!["[shop.test]"], Err(Malformed)),
        ] {
            assert_eq!(asked(target, &hosts), expected, "{target} {hosts:?}");
        }
    }

    #[test]
    fn ports_are_cut_off_where_there_are_some() {
        for (text, expected) in
            [("shop.test:80", "shop.test"), ("shop.test", "shop.test"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]")]
        {
            assert_eq!(read(text).unwrap().without_port(), expected);
        }
    }
}
