//! Objects whose types are Kubernetes' own. Those types pass over fields that they do not know; a hub does not, when asked
//! to be strict, and neither do we: a misspelt field would silently do nothing.

use serde::Serialize;
use serde_json::Value;

/// The path of a field in `given` that `typed`, which was read from it, has not kept.
pub(crate) fn unknown_field(given: &Value, typed: &impl Serialize) -> Option<String> {
    let kept = serde_json::to_value(typed).ok()?;
    dropped(given, &kept, "")
}

fn dropped(given: &Value, kept: &Value, path: &str) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => given.iter().find_map(|(key, given)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match kept.get(key) {
                Some(kept) => dropped(given, kept, &path),
                // An optional field without a value is not kept either.
                None => (!given.is_null()).then_some(path),
            }
        }),
        (Value::Array(given), Value::Array(kept)) => {
            given.iter().zip(kept).find_map(|(given, kept)| dropped(given, kept, path))
        }
        _ => None,
    }
}
