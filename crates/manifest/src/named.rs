//! What an object names and does not hold itself: files beside a manifest, Secrets and `ConfigMap`s on a hub.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use model::{ObjectName, Refusal};

/// Where something that an object names is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source<'a> {
    /// A path beside the manifest.
    File(&'a str),
    /// What [`secret_value`] finds in it.
    Secret {
        namespace: &'a ObjectName,
        name: &'a ObjectName,
    },
    ConfigMap {
        namespace: &'a ObjectName,
        name: &'a ObjectName,
        key: &'a str,
    },
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Secret { namespace, name } => write!(f, "Secret {namespace}/{name}"),
            Self::ConfigMap { namespace, name, key } => write!(f, "key {key} of ConfigMap {namespace}/{name}"),
        }
    }
}

/// Why it cannot be had; shown to everybody, so it never repeats what is in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

/// Gives the content of what an object names. It is asked for files in a folder, and for the rest on a hub.
pub type Named<'a> = &'a mut dyn FnMut(Source<'_>) -> Result<Arc<Vec<u8>>, Missing>;

/// For documents that come alone.
pub fn nothing_named(_: Source<'_>) -> Result<Arc<Vec<u8>>, Missing> {
    Err(Missing("there is nothing beside it".into()))
}

/// The one value that a Secret is about: the one under `key`, or the only one.
pub fn secret_value(secret: &Secret) -> Result<&[u8], Missing> {
    let data = secret.data.as_ref();
    let only = || data.filter(|data| data.len() == 1).and_then(|data| data.values().next());
    let value = data.and_then(|data| data.get("key")).or_else(only);
    value.map(|value| value.0.as_slice()).ok_or_else(|| {
        let count = data.map_or(0, std::collections::BTreeMap::len);
        Missing(format!("it has {count} entries, and none of them is called `key`"))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    Folder,
    Hub,
}

/// Looks up what an object names, where the object lives.
pub(crate) struct Lookup<'a> {
    pub(crate) home: Home,
    pub(crate) named: Named<'a>,
}

/// A file that a manifest in a folder names and that is not as it should be: a mistake in the manifest, which is taken
/// whole or not at all.
pub(crate) struct WrongFile {
    /// As the manifest spells it.
    pub(crate) path: String,
    pub(crate) told: String,
}

/// Why the object cannot have what it names.
pub(crate) enum Lack {
    /// The object stands, and is refused.
    Hindrance(Refusal),
    WrongFile(WrongFile),
}

impl Lookup<'_> {
    /// `field` is the object's, and is told where this home has no such sources.
    pub(crate) fn get(&mut self, source: Source<'_>, field: &'static str) -> Result<Arc<Vec<u8>>, Lack> {
        match (self.home, source) {
            (Home::Folder, Source::Secret { .. } | Source::ConfigMap { .. }) => {
                Err(Lack::Hindrance(Refusal::NeedsHub(field)))
            }
            (Home::Hub, Source::File(_)) => Err(Lack::Hindrance(Refusal::NeedsFolder(field))),
            _ => (self.named)(source).map_err(|missing| unusable(source, missing.0)),
        }
    }
}

/// For content that is there and wrong.
pub(crate) fn unusable(source: Source<'_>, reason: String) -> Lack {
    match source {
        Source::File(path) => Lack::WrongFile(WrongFile { path: path.into(), told: format!("{path}: {reason}") }),
        _ => Lack::Hindrance(Refusal::Unreadable { what: source.to_string(), reason }),
    }
}

/// What could be had, and the first hindrance where something could not.
pub(crate) fn or_hindrance<T>(
    result: Result<T, Lack>,
    hindrance: &mut Option<Refusal>,
) -> Result<Option<T>, WrongFile> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Lack::WrongFile(wrong)) => Err(wrong),
        Err(Lack::Hindrance(refusal)) => {
            hindrance.get_or_insert(refusal);
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_secret_is_about_one_value() {
        for (entries, expected) in [
            (&[("key", "a")][..], Ok("a")),
            (&[("other", "a")], Ok("a")),
            (&[("key", "a"), ("other", "b")], Ok("a")),
            (&[("one", "a"), ("other", "b")], Err(2)),
            (&[], Err(0)),
        ] {
            let data = entries.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
            let secret = Secret { data: Some(data.collect()), ..Secret::default() };
            let found = secret_value(&secret);
            match expected {
                Ok(value) => assert_eq!(found, Ok(value.as_bytes()), "{entries:?}"),
                Err(count) => {
                    assert!(found.unwrap_err().0.starts_with(&format!("it has {count} entries")), "{entries:?}");
                }
            }
        }
        assert!(secret_value(&Secret::default()).is_err());
    }
}
