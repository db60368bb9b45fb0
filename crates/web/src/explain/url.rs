//! A URL as somebody types it, and what a client sends because of it.

use http::Uri;

use crate::authority::{self, Asked};
use crate::head;

/// Octets. What a browser's address bar and most servers take; our own doors take four times as much.
pub const MAX_URL: usize = 8 << 10;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub is_https: bool,
    pub asked: Asked,
    /// The port, where one is written.
    pub port: Option<u16>,
    /// Path and query; the fragment stays with the client.
    pub target: Uri,
}

/// Why it is none; all of it is for who typed it to mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("it has {0} octets; {MAX_URL} are the most that is explained")]
    TooLong(usize),
    #[error("it has no scheme: begin it with https:// or http://")]
    NoScheme,
    #[error("{0}:// is nothing that is served here: begin it with https:// or http://")]
    OtherScheme(String),
    #[error("it names no host")]
    NoHost,
    #[error("leave out the user before the @: clients send it as a header, and no rule goes by it")]
    User,
    #[error("write the host as clients send it: letters beyond ASCII as xn--, nothing with %")]
    EncodedHost,
    #[error("{0:?} is no host with an optional port")]
    BadHost(String),
    #[error("write path and query as clients send them: spaces and what is beyond ASCII with %")]
    BadTarget,
}

impl Url {
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        if text.len() > MAX_URL {
            return Err(BadUrl::TooLong(text.len()));
        }
        let (scheme, rest) = text.split_once("://").ok_or(BadUrl::NoScheme)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(BadUrl::OtherScheme(scheme.chars().take(20).collect())),
        };
        // RFC 3986 3.2, 3.5.
        let (rest, _fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if host.contains('@') {
            return Err(BadUrl::User);
        }
        if !host.is_ascii() || host.contains('%') {
            return Err(BadUrl::EncodedHost);
        }
        let asked = authority::read(host).map_err(|error| match error {
            authority::HostError::Missing => BadUrl::NoHost,
            _ => BadUrl::BadHost(host.into()),
        })?;
        let port = asked.text.strip_prefix(asked.without_port()).and_then(|port| port.strip_prefix(':')?.parse().ok());
        // RFC 9112 3.2.1: without a path, clients send the root.
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let target = Some(target).filter(|target| head::is_target(target)).and_then(|target| target.parse().ok());
        Ok(Self { is_https, asked, port, target: target.ok_or(BadUrl::BadTarget)? })
    }

    /// As its rules compare it.
    pub fn path(&self) -> &str {
        self.target.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_clients_send_them() {
        for (text, is_https, host, name, port, target) in [
            ("https://shop.test/cart", true, "shop.test", Some("shop.test"), None, "/cart"),
            ("HTTPS://Shop.TEST/Cart", true, "shop.test", Some("shop.test"), None, "/Cart"),
            ("http://shop.test", false, "shop.test", Some("shop.test"), None, "/"),
            ("http://shop.test?a=b", false, "shop.test", Some("shop.test"), None, "/?a=b"),
            ("http://shop.test#top", false, "shop.test", Some("shop.test"), None, "/"),
            ("https://shop.test:8443/a%20b?c#d", true, "shop.test:8443", Some("shop.test"), Some(8443), "/a%20b?c"),
            ("https://shop.test:/", true, "shop.test:", Some("shop.test"), None, "/"),
            ("https://shop.test./", true, "shop.test.", Some("shop.test"), None, "/"),
            ("https://shop.test/a/../b//c", true, "shop.test", Some("shop.test"), None, "/a/../b//c"),
            ("https://shop.test/?u=http://x/", true, "shop.test", Some("shop.test"), None, "/?u=http://x/"),
            ("https://192.0.2.7:443/", true, "192.0.2.7:443", None, Some(443), "/"),
            ("http://[2001:db8::7]:80/", false, "[2001:db8::7]:80", None, Some(80), "/"),
            ("http://[2001:db8::7]/", false, "[2001:db8::7]", None, None, "/"),
        ] {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let (asked, name) = (url.asked.text.as_str(), name.map(|name| name.parse().unwrap()));
            assert_eq!((url.is_https, asked, url.port), (is_https, host, port), "{text}");
            assert_eq!((&url.asked.name, url.target.to_string().as_str()), (&name, target), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told() {
        let long = format!("https://shop.test/{}", "a".repeat(MAX_URL));
        for (text, expected) in [
            ("", BadUrl::NoScheme),
            ("shop.test/cart", BadUrl::NoScheme),
            ("https:/shop.test", BadUrl::NoScheme),
            ("ftp://shop.test/", BadUrl::OtherScheme("ftp".into())),
            ("://shop.test/", BadUrl::OtherScheme(String::new())),
            (&long, BadUrl::TooLong(long.len())),
            ("https://", BadUrl::NoHost),
            ("https:///cart", BadUrl::NoHost),
            ("https://me:secret@shop.test/", BadUrl::User),
            ("https://sch\u{f6}n.test/", BadUrl::EncodedHost),
            ("https://sh%6fp.test/", BadUrl::EncodedHost),
            ("https://shop..test/", BadUrl::BadHost("shop..test".into())),
            ("https://shop.test:http/", BadUrl::BadHost("shop.test:http".into())),
            ("https://shop.test:65536/", BadUrl::BadHost("shop.test:65536".into())),
            ("https://*.test/", BadUrl::BadHost("*.test".into())),
            ("https://[::1/", BadUrl::BadHost("[::1".into())),
            ("https://shop.test/a b", BadUrl::BadTarget),
            ("https://shop.test/sch\u{f6}n", BadUrl::BadTarget),
            ("https://shop.test/\n", BadUrl::BadTarget),
        ] {
            assert_eq!(Url::parse(text), Err(expected), "{text}");
        }
    }
}
