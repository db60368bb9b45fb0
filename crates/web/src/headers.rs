//! What becomes of header fields on their way, as pure rules about names and values: every path of a request, whatever
//! reads and writes it, asks the same ones.

use std::net::IpAddr;

/// Ours, on requests: how often one has passed a gateway. Via would do, but nginx stops compressing for who sends it.
pub const HOPS: &str = "fleetgate-hops";
/// Ours, on responses: the code of a refusal. A member cannot pretend to be us.
pub const REFUSAL: &str = "fleetgate-refusal";
/// A request passes a global gateway, a hub's and perhaps a region's; what comes more often goes in a circle.
pub const MAX_HOPS: u32 = 4;

/// Fields that belong to one connection and not to what is carried over it (RFC 9110 7.6.1).
pub fn is_of_connection(name: &str) -> bool {
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a field of a request is for us and goes no further. `named` are the values of its Connection fields.
pub fn ends_here(name: &str, named: &[&[u8]]) -> bool {
    is_of_connection(name)
        // The rest is written anew: the length by who writes the body, the others by `forwarded`.
        || ["te", "content-length", "host", "expect", "http2-settings", "proxy-authorization", "proxy-authenticate", HOPS]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
        || is_forwarding(name)
        || is_named(name, named)
}

/// The same for a field of a response.
pub fn ends_here_in_response(name: &str, named: &[&[u8]]) -> bool {
    is_of_connection(name)
        || ["proxy-authenticate", "proxy-authentication-info", REFUSAL].iter().any(|known| name.eq_ignore_ascii_case(known))
        // A length is no connection's, whatever Connection says.
        || (is_named(name, named) && !name.eq_ignore_ascii_case("content-length"))
}

/// Whether a field may stand behind a body (RFC 9110 6.5.1): nothing that says where to, how long, or who.
pub fn may_trail(name: &str) -> bool {
    let barred =
        ["te", "content-length", "host", "expect", "trailer", "authorization", "cookie", "set-cookie", HOPS, REFUSAL];
    !is_of_connection(name) && !is_forwarding(name) && !barred.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Who the client is: only a trusted proxy may say so before us. An underscore reads like a hyphen to many programs.
pub fn is_forwarding(name: &str) -> bool {
    let same = |octet: u8| if octet == b'_' { b'-' } else { octet.to_ascii_lowercase() };
    let is = |known: &str| name.len() == known.len() && name.bytes().map(same).eq(known.bytes());
    let starts = |known: &str| name.len() > known.len() && name.bytes().map(same).take(known.len()).eq(known.bytes());
    is("forwarded") || is("x-real-ip") || starts("x-forwarded-")
}

fn is_named(name: &str, named: &[&[u8]]) -> bool {
    named.iter().flat_map(|value| tokens(value)).any(|token| token.eq_ignore_ascii_case(name.as_bytes()))
}

/// The elements of a list (RFC 9110 5.6.1).
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|octet| *octet == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// Who asks, and how: what members are told, in words of ours and not of the client's.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    pub client: IpAddr,
    pub is_https: bool,
    pub host: &'a str,
}

/// What a trusted proxy had said before us.
#[derive(Debug, Clone, Copy, Default)]
pub struct Said<'a> {
    pub forwarded: Option<&'a str>,
    pub for_: Option<&'a str>,
    pub proto: Option<&'a str>,
    pub host: Option<&'a str>,
}

/// The fields that tell who asks: Forwarded (RFC 7239) and what was there before it.
pub fn forwarded(asker: Asker<'_>, said: Said<'_>) -> [(&'static str, String); 4] {
    let Asker { client, is_https, host } = asker;
    let client = client.to_canonical();
    let proto = if is_https { "https" } else { "http" };
    let before = |said: Option<&str>| said.map(|said| format!("{said}, ")).unwrap_or_default();
    // RFC 7239 6: an IPv6 address stands in brackets and quotes.
    let node = if client.is_ipv6() { format!("\"[{client}]\"") } else { client.to_string() };
    let element = format!("for={node};host=\"{host}\";proto={proto}");
    [
        ("forwarded", format!("{}{element}", before(said.forwarded))),
        ("x-forwarded-for", format!("{}{client}", before(said.for_))),
        ("x-forwarded-proto", said.proto.unwrap_or(proto).to_owned()),
        ("x-forwarded-host", said.host.unwrap_or(host).to_owned()),
    ]
}

/// The first of what a chain of trusted proxies says: the client's own end.
pub fn first_proto(said: &str) -> &str {
    said.split(',').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_connection_end_here() {
        let named: &[&[u8]] = &[b"close, X-Mine", b" keep-alive ,, Cookie"];
        for (name, ends, in_response) in [
            ("Connection", true, true),
            ("keep-alive", true, true),
            ("Transfer-Encoding", true, true),
            ("upgrade", true, true),
            ("proxy-connection", true, true),
            ("x-mine", true, true),
            ("cookie", true, true),
            ("TE", true, false),
            ("content-length", true, false),
            ("host", true, false),
            ("x-forwarded-for", true, false),
            ("X_Forwarded_For", true, false),
            ("forwarded", true, false),
            ("x-real_ip", true, false),
            ("fleetgate-hops", true, false),
            ("fleetgate-refusal", false, true),
            ("x-forwarded", false, false),
            ("accept", false, false),
            ("x-min", false, false),
            ("trailer", false, false),
        ] {
            assert_eq!(ends_here(name, named), ends, "{name}");
            assert_eq!(ends_here_in_response(name, named), in_response, "{name} of a response");
        }
        assert!(!ends_here_in_response("content-length", &[b"content-length"]));
    }

    #[test]
    fn what_says_where_and_who_does_not_trail() {
        for (name, may) in [
            ("grpc-status", true),
            ("x-checksum", true),
            ("Content-Length", false),
            ("transfer-encoding", false),
            ("host", false),
            ("x-forwarded-for", false),
            ("authorization", false),
        ] {
            assert_eq!(may_trail(name), may, "{name}");
        }
    }

    #[test]
    fn clients_are_named_by_us() {
        let client: IpAddr = "2001:db8::7".parse().unwrap();
        let told = forwarded(Asker { client, is_https: true, host: "shop.test:8443" }, Said::default());
        let expected = [
            ("forwarded", "for=\"[2001:db8::7]\";host=\"shop.test:8443\";proto=https"),
            ("x-forwarded-for", "2001:db8::7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.test:8443"),
        ];
        assert_eq!(told.each_ref().map(|(name, value)| (*name, value.as_str())), expected);

        let client: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        let said = Said {
            forwarded: Some("for=198.51.100.1"),
            for_: Some("198.51.100.1"),
            proto: Some("https"),
            host: Some("shop.test"),
        };
        let told = forwarded(Asker { client, is_https: false, host: "shop.test" }, said);
        let expected = [
            ("forwarded", "for=198.51.100.1, for=192.0.2.7;host=\"shop.test\";proto=http"),
            ("x-forwarded-for", "198.51.100.1, 192.0.2.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.test"),
        ];
        assert_eq!(told.each_ref().map(|(name, value)| (*name, value.as_str())), expected);
    }
}
