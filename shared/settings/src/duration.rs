//! Durations as text with a unit: `250ms`, `30s`, `5m`, `2h`, `1d`.
//!
//! For fields: `#[serde(with = "settings::DurationText")]`.

use std::{borrow::Cow, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serializer, de};

/// The accepted text, in words.
pub const EXPECTED: &str = "a duration such as \"250ms\", \"30s\", \"5m\", \"2h\" or \"1d\"";

const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Reads a duration; `None` if the text is not one, or too large.
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, milliseconds) = UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(*milliseconds)
        .map(Duration::from_millis)
}

/// Writes a duration in the largest unit that holds it exactly; parts below 1 ms are dropped.
pub fn print(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    let (unit, size) = UNITS
        .iter()
        .rev()
        .find(|(_, size)| milliseconds > 0 && milliseconds.is_multiple_of(u128::from(*size)))
        .unwrap_or(&("ms", 1));
    format!("{}{unit}", milliseconds / u128::from(*size))
}

/// Reads, writes and describes fields of type `Duration`.
#[derive(Debug)]
pub struct DurationText;

impl DurationText {
    /// Serialises a duration as text.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&print(*duration))
    }

    /// Deserialises a duration from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &EXPECTED))
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("DurationText")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, milliseconds) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("0ms", 0),
        ] {
            assert_eq!(
                parse(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
            assert_eq!(print(Duration::from_millis(milliseconds)), text);
        }
        assert_eq!(parse("90 s"), Some(Duration::from_secs(90)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "30",
            "s",
            "-1s",
            "1.5s",
            "1y",
            "99999999999999999999s",
            "1s1s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
