//! Sizes in bytes as text with a unit: `512B`, `256KiB`, `4MiB`, `1GiB`.
//!
//! For fields of type `usize`: `#[serde(with = "settings::SizeText")]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serializer, de};

/// The accepted text, in words.
pub const EXPECTED: &str = "a size such as \"512B\", \"256KiB\", \"4MiB\" or \"1GiB\"";

const UNITS: [(&str, usize); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reads a size; `None` if the text is not one, or too large.
pub fn parse(text: &str) -> Option<usize> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<usize>().ok()?.checked_mul(*bytes)
}

/// Writes a size in the largest unit that holds it exactly.
pub fn print(bytes: usize) -> String {
    let (unit, size) = UNITS
        .iter()
        .rev()
        .find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size))
        .unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / size)
}

/// Reads, writes and describes fields of type `usize`.
#[derive(Debug)]
pub struct SizeText;

impl SizeText {
    /// Serialises a size as text.
    pub fn serialize<S: Serializer>(bytes: &usize, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&print(*bytes))
    }

    /// Deserialises a size from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &EXPECTED))
    }
}

impl JsonSchema for SizeText {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("SizeText")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("0B", 0),
            ("512B", 512),
            ("256KiB", 262_144),
            ("4MiB", 4_194_304),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
            assert_eq!(print(bytes), text);
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "4", "MiB", "4MB", "-1B", "99999999999999GiB"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
