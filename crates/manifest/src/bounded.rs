//! Lists and lines of text with bounds, so that a folder and a hub refuse the same ones: the bound stands once, in the
//! type, and both the parser and the schema take it from there.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::text::Written;

/// A list of `MIN` to `MAX` values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct List<T, const MAX: usize, const MIN: usize = 0>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize, const MIN: usize> Deserialize<'de> for List<T, MAX, MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `deserialize_seq`, which takes a field with nothing behind it for an empty list; a hub refuses it, or takes
        // the default.
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T, const MAX: usize, const MIN: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize, const MIN: usize> Visitor<'de> for ListVisitor<T, MAX, MIN> {
    type Value = List<T, MAX, MIN>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Err(E::custom("there is no list; write one, or leave the field out"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element()? {
            if values.len() == MAX {
                return Err(A::Error::custom(format!("the list has more than {MAX} entries")));
            }
            values.push(value);
        }
        if values.len() < MIN {
            return Err(A::Error::custom(format!("the list needs at least {MIN} entry")));
        }
        Ok(List(values))
    }
}

impl<T: JsonSchema, const MAX: usize, const MIN: usize> JsonSchema for List<T, MAX, MIN> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("List_of_{MIN}_to_{MAX}_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "array", "items": generator.subschema_for::<T>(), "maxItems": MAX });
        if MIN > 0 {
            schema.insert("minItems".into(), MIN.into());
        }
        schema
    }
}

impl<T, const MAX: usize, const MIN: usize> List<T, MAX, MIN> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T, const MAX: usize, const MIN: usize> Default for List<T, MAX, MIN> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize, const MIN: usize> Deref for List<T, MAX, MIN> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// A text of 1 to `MAX` characters whose content is nobody's business here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<const MAX: usize>(pub String);

#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("the text is empty; leave the field out instead")]
    Empty,
    #[error("the text is longer than {0} characters")]
    Long(usize),
}

impl<const MAX: usize> FromStr for Line<MAX> {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        // As the API server counts: characters, not octets.
        match text.chars().take(MAX + 1).count() {
            0 => Err(LineError::Empty),
            length if length > MAX => Err(LineError::Long(MAX)),
            _ => Ok(Self(text.into())),
        }
    }
}

impl<const MAX: usize> fmt::Display for Line<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MAX: usize> Written for Line<MAX> {
    const NAME: &'static str = "Line";
    const EXPECTED: &'static str = "a text";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;

    #[test]
    fn bounds_are_inclusive() {
        type Few = List<u8, 2, 1>;
        type Short = Text<Line<3>>;
        for (json, accepted) in [("[]", false), ("[1]", true), ("[1,2]", true), ("[1,2,3]", false), ("null", false)] {
            assert_eq!(serde_json::from_str::<Few>(json).is_ok(), accepted, "{json}");
        }
        for (json, accepted) in [("\"\"", false), ("\"ü\"", true), ("\"üüü\"", true), ("\"abcd\"", false), ("1", false)]
        {
            assert_eq!(serde_json::from_str::<Short>(json).is_ok(), accepted, "{json}");
        }
    }
}
