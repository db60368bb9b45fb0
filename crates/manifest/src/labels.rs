//! Labels and annotations, by Kubernetes' rules: what a hub would not take, a folder does not take either.

use std::fmt;
use std::str::FromStr;

use model::Timestamp;
use schemars::{Schema, json_schema};

use crate::text::{Moment, Written};

/// An annotation of a Zone or a Tenant: whatever was held of it until this moment may go. `fleetgate release` writes it.
pub const RELEASED: &str = "fleetgate.dev/released";

/// An annotation of a Cluster: since then no federated traffic is sent there. `fleetgate drain` writes it.
pub const DRAINED: &str = "fleetgate.dev/drained";

/// What an annotation says that is a moment.
pub(crate) fn moment(name: &str, annotation: Option<&str>) -> Result<Option<Timestamp>, String> {
    let moment = annotation.map(|text| text.parse::<Moment>().map_err(|error| format!("{name}: {error}")));
    Ok(moment.transpose()?.map(|moment| moment.0))
}

/// Kubernetes limits the name of a label and its value to this.
const MAX_PART: usize = 63;
/// And the domain before the name.
const MAX_PREFIX: usize = 253;

/// The key of a label or an annotation: `env` or `example.com/env`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelKey(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelValue(pub String);

#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    #[error("{0:?} is no label key: at most 63 letters, digits, `-`, `_` and `.`, perhaps after a domain and a slash")]
    Key(String),
    #[error(
        "{0:?} is no label value: at most 63 letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit"
    )]
    Value(String),
}

impl FromStr for LabelKey {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let (prefix, name) = match text.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, text),
        };
        let domain = |prefix: &str| prefix.len() <= MAX_PREFIX && prefix.parse::<model::ObjectName>().is_ok();
        if is_part(name) && prefix.is_none_or(domain) {
            Ok(Self(text.into()))
        } else {
            Err(LabelError::Key(text.into()))
        }
    }
}

impl FromStr for LabelValue {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        if text.is_empty() || is_part(text) { Ok(Self(text.into())) } else { Err(LabelError::Value(text.into())) }
    }
}

fn is_part(text: &str) -> bool {
    let octets = text.as_bytes();
    octets.len() <= MAX_PART
        && octets.first().is_some_and(u8::is_ascii_alphanumeric)
        && octets.last().is_some_and(u8::is_ascii_alphanumeric)
        && octets.iter().all(|octet| octet.is_ascii_alphanumeric() || b"-_.".contains(octet))
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for LabelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Written for LabelKey {
    const NAME: &'static str = "LabelKey";
    const EXPECTED: &'static str = "the key of a label";

    fn schema() -> Schema {
        // The keys of a map have no schema on a hub; metadata is checked by its own rules there.
        json_schema!({ "type": "string" })
    }
}

impl Written for LabelValue {
    const NAME: &'static str = "LabelValue";
    const EXPECTED: &'static str = "the value of a label";

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": MAX_PART,
            "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_kubernetes_own() {
        let long = "a".repeat(64);
        for (key, good) in [
            ("env", true),
            ("app.kubernetes.io/name", true),
            ("A_b.c", true),
            ("", false),
            ("a b", false),
            ("/a", false),
            ("a/", false),
            ("a/b/c", false),
            ("Example.com/a", false),
            (&long, false),
        ] {
            assert_eq!(key.parse::<LabelKey>().is_ok(), good, "{key}");
        }
        for (value, good) in
            [("", true), ("prod", true), ("v1.2_3-x", true), ("-a", false), ("a b", false), (&long, false)]
        {
            assert_eq!(value.parse::<LabelValue>().is_ok(), good, "{value}");
        }
    }
}
