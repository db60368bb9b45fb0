//! Values that are written as text and parsed at the border, with the schema that tells a hub the same rule.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::jiff;
use model::identity::IdentityError;
use model::inside::InnerTarget;
use model::name::NameTemplate;
use model::network::CidrError;
use model::resolver::DNS_PORT;
use model::{Cidr, ClusterId, ClusterName, DnsName, ObjectName, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A `T` that stands in the manifest as text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<T>(pub T);

/// The rule of a text for the API server; never laxer by accident: what it cannot say, `T`'s parser still checks.
pub trait Written: FromStr<Err: fmt::Display> + fmt::Display {
    const NAME: &'static str;
    /// What is expected, for a value of another type.
    const EXPECTED: &'static str;
    fn schema() -> Schema;

    /// Parses `text` or says what is wrong with it; for types whose own parser is laxer or does not repeat the text.
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: Self::Err| error.to_string())
    }
}

impl<'de, T: Written> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor<T>(std::marker::PhantomData<T>);

        impl<T: Written> Visitor<'_> for TextVisitor<T> {
            type Value = Text<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<T>, E> {
                T::read(text).map(Text).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(TextVisitor(std::marker::PhantomData))
    }
}

impl<T: Written> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<T: Written> JsonSchema for Text<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }
}

impl<T> Text<T> {
    pub fn list(values: &[Self]) -> Vec<T>
    where
        T: Clone,
    {
        values.iter().map(|value| value.0.clone()).collect()
    }
}

/// One octet of a label in presentation form (RFC 1035 5.1), as a regular expression of the API server's.
const OCTET: &str = r"([!-\-/-\[\]-~]|\\[\x00-/:-\x7f]|\\([01][0-9]{2}|2[0-4][0-9]|25[0-5]))";

impl Written for DnsName {
    const NAME: &'static str = "DnsName";
    const EXPECTED: &'static str = "a DNS name";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            // 255 octets on the wire are at most 1,004 characters with every octet escaped.
            "maxLength": 1004,
            "pattern": format!(r"^(\.|{OCTET}{{1,63}}(\.{OCTET}{{1,63}})*\.?)$"),
            "x-kubernetes-validations": [{
                "rule": r"self.contains('\\') || size(self) <= (self.endsWith('.') ? 254 : 253)",
                "message": "a DNS name has at most 255 octets",
            }],
        })
    }
}

impl Written for NameTemplate {
    const NAME: &'static str = "NameTemplate";
    const EXPECTED: &'static str = "a name template such as `api.{cluster}`";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 255,
            "pattern": format!(r"^({OCTET}+\.)*{OCTET}*\{{cluster\}}{OCTET}*(\.{OCTET}+)*$"),
            "x-kubernetes-validations": [{
                "rule": "self.indexOf('{cluster}') == self.lastIndexOf('{cluster}')",
                "message": "a name template holds {cluster} exactly once",
            }],
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        // A template that alone is longer than a name cannot become one.
        if text.chars().count() > 255 {
            return Err("the name template is longer than 255 characters".into());
        }
        text.parse().map_err(|error: Self::Err| error.to_string())
    }
}

impl Written for ObjectName {
    const NAME: &'static str = "ObjectName";
    const EXPECTED: &'static str = "the name of an object";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 253,
            "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        })
    }
}

impl Written for ClusterName {
    const NAME: &'static str = "ClusterName";
    const EXPECTED: &'static str = "the name of a cluster";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "maxLength": 63, "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" })
    }
}

/// The name of a namespace: an object's name that is one DNS label, as Kubernetes wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace(pub ObjectName);

impl FromStr for Namespace {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        // The rule for both is the same: one label.
        let label: ClusterName = text.parse()?;
        Ok(Self(ObjectName::from(&label)))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Written for Namespace {
    const NAME: &'static str = "Namespace";
    const EXPECTED: &'static str = "the name of a namespace";

    fn schema() -> Schema {
        ClusterName::schema()
    }
}

impl Written for ClusterId {
    const NAME: &'static str = "ClusterId";
    const EXPECTED: &'static str = "a cluster id";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[!-~]+$" })
    }
}

impl Written for Cidr {
    const NAME: &'static str = "Cidr";
    const EXPECTED: &'static str = "a CIDR such as 192.0.2.0/24";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 43,
            "x-kubernetes-validations": [{
                "rule": "isCIDR(self) && cidr(self) == cidr(self).masked()",
                "message": "must be a CIDR without host bits, such as 192.0.2.0/24",
            }],
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        // The model's parser takes 010.0.0.0/08 for 10.0.0.0/8; others read 010 as 8.
        let malformed = || CidrError::Malformed(text.into()).to_string();
        let (address, prefix) = text.split_once('/').ok_or_else(malformed)?;
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        if prefix.len() > 1 && prefix.starts_with('0') {
            return Err(malformed());
        }
        if let Some(mapped) = ipv4_in_ipv6(address) {
            // Clients are compared in their IPv4 form, so that such a range would never hold one.
            return Err(format!("{text:?} is an IPv4 range in IPv6 form; write it with {mapped}"));
        }
        text.parse().map_err(|error: Self::Err| error.to_string())
    }
}

impl Written for IpAddr {
    const NAME: &'static str = "IpAddress";
    const EXPECTED: &'static str = "an IP address";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 45,
            "x-kubernetes-validations": [{ "rule": "isIP(self)", "message": "must be an IPv4 or IPv6 address" }],
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        let address: Self = text.parse().map_err(|_| format!("{text:?} is not {}", Self::EXPECTED))?;
        match ipv4_in_ipv6(address) {
            Some(mapped) => Err(format!("{text:?} is an IPv4 address in IPv6 form; write {mapped}")),
            None => Ok(address),
        }
    }
}

/// RFC 4291 2.5.5.2: `::ffff:192.0.2.1` is the IPv4 address that an IPv6 socket shows; no record may hold it.
fn ipv4_in_ipv6(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V6(address) => address.to_ipv4_mapped(),
        IpAddr::V4(_) => None,
    }
}

impl Written for SocketAddr {
    const NAME: &'static str = "SocketAddress";
    const EXPECTED: &'static str = "an address with its port, such as 192.0.2.1:6443";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 53,
            "pattern": r"^([0-9.]+|\[[0-9a-fA-F.]*:[0-9a-fA-F:.]*\]):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$",
            "x-kubernetes-validations": [{
                "rule": "isIP(self.startsWith('[') ? self.substring(1, self.lastIndexOf(']')) : self.substring(0, self.lastIndexOf(':')))",
                "message": "must be an IPv4 or IPv6 address with its port, such as 192.0.2.1:6443 or [2001:db8::1]:6443",
            }],
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        let error = || format!("{text:?} is not {}", Self::EXPECTED);
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        // Port 0 is none, and a scope is an interface of one machine only.
        if port.starts_with('0') || host.contains('%') {
            return Err(error());
        }
        let address: Self = text.parse().map_err(|_| error())?;
        match ipv4_in_ipv6(address.ip()) {
            Some(mapped) => Err(format!("{text:?} is an IPv4 address in IPv6 form; write {mapped}:{port}")),
            None => Ok(address),
        }
    }
}

impl Written for InnerTarget {
    const NAME: &'static str = "InnerTarget";
    const EXPECTED: &'static str = "an address or a name with its port, such as 10.0.0.1:443 or ingress.web.svc:443";

    fn schema() -> Schema {
        let label = "[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?";
        let port = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
        json_schema!({
            "type": "string",
            // The longest name, its final dot, and a port.
            "maxLength": 260,
            "pattern": format!(r"^(\[[0-9a-fA-F.]*:[0-9a-fA-F:.]*\]|{label}(\.{label})*\.?):{port}$"),
            "x-kubernetes-validations": [{
                // What ends with a number is an address, or nothing.
                "rule": r"self.startsWith('[') ? isIP(self.substring(1, self.lastIndexOf(']'))) : (!self.matches('(^|[.])[0-9][^.]*[.]?:[0-9]+$') || isIP(self.substring(0, self.lastIndexOf(':'))))",
                "message": "must be an address or a name with its port, such as 192.0.2.1:443, [2001:db8::1]:443 or ingress.web.svc:443",
            }],
        })
    }
}

/// Where a DNS server answers: an address, and its port where that is not 53.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsServer(pub SocketAddr);

impl FromStr for DnsServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = IpAddr::read(text) {
            return Ok(Self(SocketAddr::new(address, DNS_PORT)));
        }
        SocketAddr::read(text).map(Self).map_err(|_| format!("{text:?} is not {}", Self::EXPECTED))
    }
}

impl fmt::Display for DnsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.port() == DNS_PORT { self.0.ip().fmt(f) } else { self.0.fmt(f) }
    }
}

impl Written for DnsServer {
    const NAME: &'static str = "DnsServer";
    const EXPECTED: &'static str = "the address of a DNS server, such as 10.10.10.10 or 10.10.10.10:5353";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 53,
            "pattern": r"^([0-9a-fA-F:.]+|([0-9.]+|\[[0-9a-fA-F.]*:[0-9a-fA-F:.]*\]):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))$",
            "x-kubernetes-validations": [{
                "rule": "isIP(self) || isIP(self.startsWith('[') ? self.substring(1, self.lastIndexOf(']')) : self.substring(0, self.lastIndexOf(':')))",
                "message": "must be an IPv4 or IPv6 address, with its port where that is not 53",
            }],
        })
    }
}

/// A length of time such as `5s`, `250ms` or `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no length of time; write a whole number and its unit (ms, s, m or h), such as 60s or 1h30m")]
pub struct SpanError(String);

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let error = || SpanError(text.into());
        let mut rest = text;
        let mut total = Duration::ZERO;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
            // Nine digits, as the schema says; more would be no time that anybody waits.
            if digits > 9 {
                return Err(error());
            }
            let count: u32 = rest[..digits].parse().map_err(|_| error())?;
            rest = &rest[digits..];
            let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let one = match &rest[..unit] {
                "ms" => Duration::from_millis(1),
                "s" => Duration::from_secs(1),
                "m" => Duration::from_mins(1),
                "h" => Duration::from_hours(1),
                _ => return Err(error()),
            };
            total = one.checked_mul(count).and_then(|span| total.checked_add(span)).ok_or_else(error)?;
            rest = &rest[unit..];
        }
        if text.is_empty() || text.len() > 32 { Err(error()) } else { Ok(Self(total)) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            millis if millis.is_multiple_of(1000) => write!(f, "{}s", millis / 1000),
            millis => write!(f, "{millis}ms"),
        }
    }
}

impl Written for Span {
    const NAME: &'static str = "Span";
    const EXPECTED: &'static str = "a length of time such as 60s";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "maxLength": 32, "pattern": r"^([0-9]{1,9}(ms|s|m|h))+$" })
    }
}

/// A moment, to the nanosecond, so that everybody who waits for it waits for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no moment; write it as 2026-01-31T12:00:00Z")]
pub struct MomentError(String);

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        let moment: jiff::Timestamp = text.parse().map_err(|_| MomentError(text.into()))?;
        // The model's clock begins in 1970 and ends in 2554.
        u64::try_from(moment.as_nanosecond()).map(|nanos| Self(Timestamp(nanos))).map_err(|_| MomentError(text.into()))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_nanosecond(self.0.0.into()).unwrap_or(jiff::Timestamp::MAX);
        moment.fmt(f)
    }
}

impl Written for Moment {
    const NAME: &'static str = "Moment";
    const EXPECTED: &'static str = "a moment such as 2026-01-31T12:00:00Z";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// What a structure must hold beyond the types of its fields.
pub trait Check {
    fn check(&self) -> Result<(), String>;
}

/// For `#[serde(deserialize_with)]`: the mistake is found where it stands, so that the error can point at it.
pub fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de> + Check>(deserializer: D) -> Result<T, D::Error> {
    let value = T::deserialize(deserializer)?;
    value.check().map_err(D::Error::custom)?;
    Ok(value)
}

/// [`checked`] for fields that may be left out.
pub fn checked_option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Check,
{
    let value = Option::<T>::deserialize(deserializer)?;
    value.as_ref().map_or(Ok(()), Check::check).map_err(D::Error::custom)?;
    Ok(value)
}

/// For `#[serde(deserialize_with)]` on numbers and booleans: as a hub reads them, so that `"30"` in quotes is a text.
pub fn plain<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    T::deserialize(value).map_err(D::Error::custom)
}

/// [`plain`] for numbers with bounds; the schema has them as `minimum` and `maximum`.
pub fn within<'de, D: Deserializer<'de>, const MIN: u32, const MAX: u32>(deserializer: D) -> Result<u32, D::Error> {
    let number: u32 = plain(deserializer)?;
    if (MIN..=MAX).contains(&number) {
        Ok(number)
    } else {
        Err(D::Error::custom(format!("{number} is not between {MIN} and {MAX}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms that a hub takes and no others; the API server agrees in `crates/fleetgate/tests/hub_manifests.rs`.
    #[test]
    fn addresses_are_read_as_a_hub_reads_them() {
        for good in ["192.0.2.1", "2001:db8::1", "::1"] {
            assert!(IpAddr::read(good).is_ok(), "{good}");
            let bracketed = if good.contains(':') { format!("[{good}]") } else { good.into() };
            assert!(SocketAddr::read(&format!("{bracketed}:443")).is_ok(), "{good}");
        }
        for bad in ["", "192.0.2", "192.0.2.256", "010.0.0.1", "::ffff:192.0.2.1", "fe80::1%1"] {
            assert!(IpAddr::read(bad).is_err(), "{bad}");
            assert!(SocketAddr::read(&format!("[{bad}]:443")).is_err(), "{bad}");
        }
        for bad in ["192.0.2.1", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:0443", "192.0.2.1:65536", "::1:443", "a:1"] {
            assert!(SocketAddr::read(bad).is_err(), "{bad}");
        }
        for (cidr, accepted) in [
            ("0.0.0.0/0", true),
            ("2001:db8::/32", true),
            ("10.0.0.0/08", false),
            ("010.0.0.0/8", false),
            ("10.0.0.1/8", false),
            ("::ffff:10.0.0.0/104", false),
        ] {
            assert_eq!(Cidr::read(cidr).is_ok(), accepted, "{cidr}");
        }
    }

    #[test]
    fn dns_servers_are_read_and_written() {
        for (text, address) in [
            ("10.10.10.10", "10.10.10.10:53"),
            ("10.10.10.10:5353", "10.10.10.10:5353"),
            ("2001:db8::a", "[2001:db8::a]:53"),
            ("[2001:db8::a]:5353", "[2001:db8::a]:5353"),
        ] {
            let read = DnsServer::read(text).unwrap();
            assert_eq!((read.0.to_string().as_str(), read.to_string().as_str()), (address, text));
        }
        for bad in ["", "dns", "10.10.10", "10.10.10.10:0", "10.10.10.10:", "::ffff:10.0.0.1", "[::1]"] {
            assert!(DnsServer::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_are_read_and_written() {
        for (text, millis) in [("60s", 60_000), ("250ms", 250), ("1h30m", 5_400_000), ("0s", 0), ("1m1s1ms", 61_001)] {
            assert_eq!(text.parse::<Span>().unwrap().0, Duration::from_millis(millis), "{text}");
        }
        for bad in ["", "60", "s", "1.5s", "-1s", "1d", "1 s", "99999999999s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
        assert_eq!(Span(Duration::from_millis(61_001)).to_string(), "61001ms");
    }

    #[test]
    fn moments_lose_nothing() {
        for (text, nanos) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-01-31T12:00:00Z", 1_769_860_800_000_000_000),
            ("2026-01-31T12:00:00.000000001Z", 1_769_860_800_000_000_001),
            ("2554-07-21T23:34:33.709551615Z", u64::MAX),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap().0, Timestamp(nanos), "{text}");
            assert_eq!(Moment(Timestamp(nanos)).to_string(), text);
        }
        assert_eq!("2026-01-31T13:00:00+01:00".parse::<Moment>().unwrap().to_string(), "2026-01-31T12:00:00Z");
        for bad in ["", "now", "1969-12-31T23:59:59Z", "2600-01-01T00:00:00Z", "2026-01-31"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }
}
