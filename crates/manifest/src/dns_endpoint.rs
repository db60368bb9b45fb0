//! `kind: DNSEndpoint`: ExternalDNS' own object, read and written here, defined there.

use std::collections::BTreeMap;

use model::policy::{RecordClaim, Refused};
use model::record::{Exchange, Property, RecordData, Server, Strings};
use model::resource::{Endpoint, RecordClaims};
use model::{ClusterName, Digest, DnsName, Refusal};
use serde::{Deserialize, Serialize};

use crate::text::{Check, plain};

/// In front of the name of a cluster, as label: an agent asks for that cluster alone.
pub const CLUSTER_LABEL: &str = "fleetgate.dev/cluster";
/// Texts that are told again are cut here: a name has 255 octets at most.
const MOST_TOLD: usize = 300;

/// Nothing is required, as in ExternalDNS' own definition; the policy says what an endpoint lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnsEndpointSpec {
    #[serde(default)]
    pub endpoints: Vec<EndpointSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointSpec {
    #[serde(default)]
    pub dns_name: String,
    #[serde(default)]
    pub targets: Vec<String>,
    #[serde(default)]
    pub record_type: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set_identifier: String,
    #[serde(default, rename = "recordTTL", deserialize_with = "plain")]
    pub record_ttl: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provider_specific: Vec<ProviderSpecific>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpecific {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub value: String,
}

impl Check for DnsEndpointSpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl DnsEndpointSpec {
    pub fn to_model(&self, cluster: Option<ClusterName>) -> RecordClaims {
        let endpoints = self.endpoints.iter().map(EndpointSpec::to_model).collect();
        RecordClaims { cluster, digest: digest(&self.endpoints), endpoints }
    }
}

impl EndpointSpec {
    pub fn to_model(&self) -> Endpoint {
        Endpoint { part: self.part().into(), since: None, claim: self.claim() }
    }

    /// What people call it: its name and type, as far as they can be told.
    pub fn part(&self) -> String {
        let told = |text: &str| text.chars().take(MOST_TOLD).collect::<String>().escape_debug().to_string();
        format!("{} {}", told(&self.dns_name), told(&self.record_type))
    }

    /// What it asks for, in checked values.
    pub fn claim(&self) -> Result<RecordClaim, Refused> {
        if !self.set_identifier.is_empty() {
            return Err(Refused::new(Refusal::FieldNotSupported("setIdentifier"), "setIdentifier"));
        }
        if !self.provider_specific.is_empty() {
            return Err(Refused::new(Refusal::FieldNotSupported("providerSpecific"), "providerSpecific"));
        }
        let name = DnsName::parse(&self.dns_name)
            .map_err(|error| Refused::at_name(Refusal::BadName { reason: told(&error.to_string()) }))?;
        let data = self.data()?;
        let bad_ttl = || Refused::new(Refusal::BadTtl { ttl: self.record_ttl }, "recordTTL");
        let ttl = match self.record_ttl {
            0 => None,
            ttl => Some(u32::try_from(ttl).map_err(|_| bad_ttl())?),
        };
        Ok(RecordClaim { name, ttl, data })
    }

    fn data(&self) -> Result<RecordData, Refused> {
        if self.targets.is_empty() {
            return Err(Refused::new(Refusal::BadTarget { reason: "there is none".into() }, "targets"));
        }
        match self.record_type.as_str() {
            "A" => self.each(|target| plain_value(target, "IPv4 address")).map(RecordData::A),
            "AAAA" => self.each(|target| plain_value(target, "IPv6 address")).map(RecordData::Aaaa),
            "CNAME" => match self.each(host)?.as_slice() {
                [target] => Ok(RecordData::Cname(target.clone())),
                _ => Err(Refused::new(Refusal::BadTarget { reason: "an alias has one target".into() }, "targets")),
            },
            "MX" => self.each(exchange).map(RecordData::Mx),
            "SRV" => self.each(server).map(RecordData::Srv),
            "TXT" => self.each(text).map(RecordData::Txt),
            "CAA" => self.each(property).map(RecordData::Caa),
            other => {
                let rtype = other.chars().take(MOST_TOLD).collect();
                Err(Refused::new(Refusal::TypeNotAllowed { rtype }, "recordType"))
            }
        }
    }

    fn each<T>(&self, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, Refused> {
        let targets = self.targets.iter().enumerate();
        targets
            .map(|(number, target)| {
                read(target).map_err(|reason| Refused::at_target(Refusal::BadTarget { reason: told(&reason) }, number))
            })
            .collect()
    }
}

impl From<&RecordClaim> for EndpointSpec {
    fn from(RecordClaim { name, ttl, data }: &RecordClaim) -> Self {
        Self {
            dns_name: name.to_string(),
            targets: data.to_text(),
            record_type: data.type_name().into(),
            record_ttl: ttl.unwrap_or_default().into(),
            ..Self::default()
        }
    }
}

/// What these endpoints are recognised by, as they were written.
pub fn digest(endpoints: &[EndpointSpec]) -> Digest {
    Digest::of_text(&serde_json::to_vec(endpoints).expect("they are made of texts and numbers"))
}

/// Without what would make one line of a log two.
fn told(reason: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    reason.chars().take(MOST_TOLD).map(escaped).collect()
}

fn plain_value<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no {what}"))
}

fn host(text: &str) -> Result<DnsName, String> {
    DnsName::parse(text).map_err(|error| error.to_string())
}

fn exchange(text: &str) -> Result<Exchange, String> {
    match text.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        [preference, name] => {
            Ok(Exchange { preference: plain_value(preference, "number up to 65535")?, host: host(name)? })
        }
        _ => Err(format!("{text:?} is no preference and host, such as \"10 mail.example\"")),
    }
}

fn server(text: &str) -> Result<Server, String> {
    let number = |text| plain_value(text, "number up to 65535");
    match text.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        [priority, weight, port, name] => {
            Ok(Server { priority: number(priority)?, weight: number(weight)?, port: number(port)?, host: host(name)? })
        }
        _ => Err(format!("{text:?} is no priority, weight, port and host")),
    }
}

/// Strings in quotes, as ExternalDNS' registry writes them; or a text without, which is cut into strings.
fn text(text: &str) -> Result<Strings, String> {
    if !text.starts_with('"') {
        return Ok(Strings::of_text(text.as_bytes()));
    }
    let strings = quoted_strings(text)?;
    Strings::of_strings(strings.iter().map(Vec::as_slice)).ok_or_else(|| "a string is longer than 255 octets".into())
}

fn quoted_strings(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut strings = Vec::new();
    let mut octets = text.bytes();
    loop {
        match octets.by_ref().find(|octet| !octet.is_ascii_whitespace()) {
            None => return Ok(strings),
            Some(b'"') => strings.push(quoted_string(&mut octets)?),
            Some(_) => return Err("something stands between the quoted strings".into()),
        }
    }
}

/// What comes before the closing quote (RFC 1035 5.1: `\"`, `\\` and `\DDD`).
fn quoted_string(octets: &mut impl Iterator<Item = u8>) -> Result<Vec<u8>, String> {
    let open = || "a quote is not closed".to_owned();
    let mut string = Vec::new();
    loop {
        match octets.next().ok_or_else(open)? {
            b'"' => return Ok(string),
            b'\\' => match octets.next().ok_or_else(open)? {
                digit @ b'0'..=b'9' => {
                    let digits = [Some(digit), octets.next(), octets.next()].map(Option::unwrap_or_default);
                    let octet = std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok());
                    string.push(octet.ok_or("a backslash and digits are three digits up to 255")?);
                }
                octet => string.push(octet),
            },
            octet => string.push(octet),
        }
    }
}

fn property(text: &str) -> Result<Property, String> {
    let wrong = || format!("{text:?} is no flags, tag and value, such as 0 issue \"ca.example\"");
    let mut words = text.trim().splitn(3, ' ');
    let (Some(flags), Some(tag), Some(value)) = (words.next(), words.next(), words.next()) else { return Err(wrong()) };
    if tag.is_empty() || tag.len() > 255 || !tag.bytes().all(|octet| octet.is_ascii_alphanumeric()) {
        return Err(wrong());
    }
    let value = match value.trim() {
        quoted if quoted.starts_with('"') => match quoted_strings(quoted)?.as_slice() {
            [value] => value.clone(),
            _ => return Err(wrong()),
        },
        plain => plain.as_bytes().to_vec(),
    };
    if value.iter().any(u8::is_ascii_control) {
        return Err("the value has control characters".into());
    }
    let flags = plain_value(flags, "number up to 255")?;
    Ok(Property { flags, tag: tag.to_ascii_lowercase().into(), value: value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(rtype: &str, targets: &[&str]) -> EndpointSpec {
        EndpointSpec {
            dns_name: "www.c1.fleet.example".into(),
            record_type: rtype.into(),
            targets: targets.iter().map(|target| (*target).to_owned()).collect(),
            ..EndpointSpec::default()
        }
    }

    #[test]
    fn endpoints_become_claims() {
        for (rtype, targets, text) in [
            ("A", &["192.0.2.1", "192.0.2.2"][..], "192.0.2.1 192.0.2.2"),
            ("AAAA", &["2001:db8::1"], "2001:db8::1"),
            ("CNAME", &["Lb.Example.NET."], "lb.example.net"),
            ("MX", &["10 mail.example", "20  b.example."], "10 mail.example 20 b.example"),
            ("SRV", &["1 2 443 a.example"], "1 2 443 a.example"),
            ("TXT", &["plain text"], r#""plain text""#),
            (
                "TXT",
                &[r#""heritage=external-dns,external-dns/owner=x""#],
                r#""heritage=external-dns,external-dns/owner=x""#,
            ),
            ("TXT", &[r#""a\"b" "c\000""#], r#""a\"b" "c\000""#),
            ("TXT", &[""], r#""""#),
            (
                "CAA",
                &[r#"0 issue "ca.example""#, "128 iodef mailto:a@b.example"],
                r#"0 issue "ca.example" 128 iodef "mailto:a@b.example""#,
            ),
        ] {
            let claim = endpoint(rtype, targets).claim().unwrap();
            assert_eq!((claim.data.type_name(), claim.data.to_text().join(" ")), (rtype, text.to_owned()));
            assert_eq!(claim.ttl, None);
        }
        assert_eq!(EndpointSpec { record_ttl: 60, ..endpoint("A", &["192.0.2.1"]) }.claim().unwrap().ttl, Some(60));
    }

    #[test]
    fn what_cannot_be_read_is_refused_at_its_field() {
        let good = || endpoint("A", &["192.0.2.1"]);
        let long = "x".repeat(100_000);
        for (endpoint, code, field) in [
            (EndpointSpec { dns_name: String::new(), ..good() }, "BadName", "dnsName"),
            (EndpointSpec { dns_name: "a..b".into(), ..good() }, "BadName", "dnsName"),
            (EndpointSpec { dns_name: "a\0b.test".into(), ..good() }, "BadName", "dnsName"),
            (EndpointSpec { dns_name: long.clone(), ..good() }, "BadName", "dnsName"),
            (EndpointSpec { record_type: String::new(), ..good() }, "TypeNotAllowed", "recordType"),
            (EndpointSpec { record_type: long, ..good() }, "TypeNotAllowed", "recordType"),
            (endpoint("NS", &["ns.example"]), "TypeNotAllowed", "recordType"),
            (endpoint("DNAME", &["a.example"]), "TypeNotAllowed", "recordType"),
            (endpoint("a", &["192.0.2.1"]), "TypeNotAllowed", "recordType"),
            (endpoint("A", &[]), "BadTarget", "targets"),
            (endpoint("A", &["192.0.2.1", "192.0.2.1."]), "BadTarget", "targets[1]"),
            (endpoint("A", &["2001:db8::1"]), "BadTarget", "targets[0]"),
            (endpoint("A", &["192.0.2.1\n192.0.2.2"]), "BadTarget", "targets[0]"),
            (endpoint("AAAA", &["192.0.2.1"]), "BadTarget", "targets[0]"),
            (endpoint("CNAME", &["a.example", "b.example"]), "BadTarget", "targets"),
            (endpoint("MX", &["mail.example"]), "BadTarget", "targets[0]"),
            (endpoint("MX", &["65536 mail.example"]), "BadTarget", "targets[0]"),
            (endpoint("SRV", &["1 2 a.example"]), "BadTarget", "targets[0]"),
            (endpoint("TXT", &["\"open"]), "BadTarget", "targets[0]"),
            (endpoint("TXT", &["\"a\" b"]), "BadTarget", "targets[0]"),
            (endpoint("TXT", &[&format!("\"{}\"", "x".repeat(256))]), "BadTarget", "targets[0]"),
            (endpoint("CAA", &["0 issue"]), "BadTarget", "targets[0]"),
            (EndpointSpec { record_ttl: -1, ..good() }, "BadTTL", "recordTTL"),
            (EndpointSpec { record_ttl: 1 << 32, ..good() }, "BadTTL", "recordTTL"),
            (EndpointSpec { set_identifier: "x".into(), ..good() }, "FieldNotSupported", "setIdentifier"),
            (
                EndpointSpec { provider_specific: vec![ProviderSpecific::default()], ..good() },
                "FieldNotSupported",
                "providerSpecific",
            ),
        ] {
            let refused = endpoint.claim().unwrap_err();
            assert_eq!((refused.refusal.code(), refused.field.as_str()), (code, field), "{}", endpoint.part());
            let told = refused.refusal.to_string();
            assert!(told.len() < 2000 && !told.contains(['\n', '\0']), "{told:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_becomes_a_claim_or_is_refused(
            name in ".{0,40}",
            rtype in "A|AAAA|CNAME|MX|SRV|TXT|CAA|NS",
            target in "[\"\\\\ a-z0-9.:]{0,30}|.{0,40}",
            ttl: i64,
        ) {
            let spec = EndpointSpec { dns_name: name, record_ttl: ttl, ..endpoint(&rtype, &[&target]) };
            if let Ok(claim) = spec.claim() {
                // Its text means the same when it is read again.
                let again = EndpointSpec { targets: claim.data.to_text(), ..spec };
                proptest::prop_assert_eq!(again.claim().unwrap(), claim);
            }
        }
    }
}
