//! JSON values as scalars, exactly or not at all.

use base64::{Engine, engine::general_purpose};
use call_catalogue::scalar;
use prost_reflect::{Kind, MapKey, Value as Field};
use serde_json::Value;

/// Reads a scalar or an enum. The error names the expected form.
pub(super) fn read(kind: &Kind, value: &Value) -> Result<Field, String> {
    let wanted = |text: &str| text.to_owned();
    match kind {
        Kind::Bool => value
            .as_bool()
            .map(Field::Bool)
            .ok_or_else(|| wanted("true or false")),
        Kind::String => match value {
            Value::String(text) => Ok(Field::String(text.clone())),
            _ => Err(wanted("a string")),
        },
        Kind::Bytes => bytes(value)
            .map(|bytes| Field::Bytes(bytes.into()))
            .ok_or_else(|| wanted("base64 text")),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => whole(value)
            .map(Field::I32)
            .ok_or_else(|| wanted("a whole number of 32 bits")),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => whole(value)
            .map(Field::I64)
            .ok_or_else(|| wanted("a whole number of 64 bits")),
        Kind::Uint32 | Kind::Fixed32 => whole(value)
            .map(Field::U32)
            .ok_or_else(|| wanted("a whole number from 0, of 32 bits")),
        Kind::Uint64 | Kind::Fixed64 => whole(value)
            .map(Field::U64)
            .ok_or_else(|| wanted("a whole number from 0, of 64 bits")),
        Kind::Double => double(value)
            .map(Field::F64)
            .ok_or_else(|| wanted("a number")),
        Kind::Float => {
            // A decimal fraction is rounded to the nearest float, as everywhere; an overflow is not.
            let narrow = double(value).map(|wide| (wide, wide as f32));
            match narrow {
                Some((wide, narrow)) if narrow.is_finite() || !wide.is_finite() => {
                    Ok(Field::F32(narrow))
                }
                _ => Err(wanted("a number within the range of a float")),
            }
        }
        Kind::Enum(descriptor) => {
            let number = match value {
                // The only value of the type that represents null.
                Value::Null if descriptor.full_name() == "google.protobuf.NullValue" => Some(0),
                Value::String(name) => descriptor
                    .get_value_by_name(name)
                    .map(|value| value.number()),
                other => whole(other),
            };
            number.map(Field::EnumNumber).ok_or_else(|| {
                let names: Vec<String> = descriptor
                    .values()
                    .map(|value| value.name().to_owned())
                    .collect();
                format!("one of {}", names.join(", "))
            })
        }
        Kind::Message(_) => Err(wanted("an object")),
    }
}

/// Reads the key of a map, which JSON writes as text.
pub(super) fn map_key(kind: &Kind, text: &str) -> Option<MapKey> {
    Some(match kind {
        Kind::String => MapKey::String(text.to_owned()),
        Kind::Bool => MapKey::Bool(text.parse().ok()?),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => MapKey::I32(text.parse().ok()?),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => MapKey::I64(text.parse().ok()?),
        Kind::Uint32 | Kind::Fixed32 => MapKey::U32(text.parse().ok()?),
        Kind::Uint64 | Kind::Fixed64 => MapKey::U64(text.parse().ok()?),
        _ => return None,
    })
}

/// Reads a number as a double, in digits or as text. Text also expresses values without digits,
/// such as `NaN`.
pub(super) fn double(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => return Some(f64::NAN),
        Some("Infinity") => return Some(f64::INFINITY),
        Some("-Infinity") => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    let text = number(value)?;
    let double: f64 = text.parse().ok()?;
    (double.is_finite() && keeps_digits(&text, double)).then_some(double)
}

/// The digits of a number, or of a text that is one by the grammar of JSON.
fn number(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => {
            let ends = |text: &str| text.ends_with(|c: char| c.is_ascii_digit());
            let begins = |text: &str| text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
            let number: serde_json::Number = text.parse().ok()?;
            (begins(text) && ends(text)).then(|| number.to_string())
        }
        _ => None,
    }
}

/// Returns whether a whole number written out in digits is exactly the double, not a neighbour.
fn keeps_digits(text: &str, double: f64) -> bool {
    let plain = text
        .trim_start_matches('-')
        .bytes()
        .all(|byte| byte.is_ascii_digit());
    !plain || format!("{double:.0}") == text || double == 0.0
}

/// Reads a whole number, however JSON spells it: `5`, `5.0`, `50e-1`, or one of these as text.
fn whole<N: std::str::FromStr>(value: &Value) -> Option<N> {
    let (whole, _) = scalar::integer(&number(value)?)?;
    whole.to_string().parse().ok()
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    let text = value.as_str()?.trim_end_matches('=');
    general_purpose::STANDARD_NO_PAD
        .decode(text)
        .or_else(|_| general_purpose::URL_SAFE_NO_PAD.decode(text))
        .ok()
}
