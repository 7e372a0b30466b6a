//! A result as the driver sends it, of which a bounded number of media types is kept.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

/// The most media types of a result; more are left out.
pub(super) const MAX_TYPES: usize = 16;

/// A result of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ShownResult {
    /// The number of the cell.
    pub cell: u64,
    /// Its origin.
    pub origin: Origin,
    /// Its representations.
    pub data: Parts,
    /// The text of a JSON object; empty for none.
    #[serde(default)]
    pub metadata: String,
}

/// The origin of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The value of the last expression.
    Expression,
    /// A call of `display`.
    Display,
    /// A figure that was open.
    Figure,
}

/// Media types with their content. However many a cell has forged, reading them takes no more room than the kept ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Each type with its content: a text, the text of a JSON value, or anything else in Base64.
    pub parts: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Beginning)
    }
}

/// Reads a map and keeps its first entries.
struct Beginning;

impl<'de> Visitor<'de> for Beginning {
    type Value = Parts;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text for each media type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parts, A::Error> {
        let mut parts = Vec::new();
        while parts.len() < MAX_TYPES {
            let Some(part) = map.next_entry()? else {
                break;
            };
            parts.push(part);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Parts { parts })
    }
}
