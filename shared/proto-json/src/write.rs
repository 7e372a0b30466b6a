//! Message to JSON.

mod well_known;

use base64::{Engine, engine::general_purpose};
use prost_reflect::{DynamicMessage, Kind, MapKey, ReflectMessage, Value as Field};
use serde_json::{Map, Value};

/// The most messages within messages. Decoding stops at 100 of them, but begins anew inside each `Any`.
const MAX_DEPTH: usize = 128;

/// The reason for which a message cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A well-known type holds a value that its text cannot express, such as a time beyond the year
    /// 9999.
    #[error("the message cannot be written as JSON")]
    Text(#[from] serde_json::Error),
    /// A message holds a value that JSON cannot express.
    #[error("the message cannot be written as JSON: {0}")]
    Unwritable(&'static str),
}

/// Converts a message to JSON that shows every field, with 64-bit integers as numbers: our JSON
/// keeps every digit.
///
/// # Errors
/// [`WriteError`] for values that JSON cannot express.
pub fn to_value(message: &DynamicMessage) -> Result<Value, WriteError> {
    Style::new(true).message(message)
}

/// Converts a message to proto3 JSON as specified: 64-bit integers are strings, and default values
/// are left out.
///
/// # Errors
/// [`WriteError`] for values that JSON cannot express.
pub fn to_text(message: &DynamicMessage) -> Result<String, WriteError> {
    Ok(Style::new(false).message(message)?.to_string())
}

/// The form in which messages are written.
#[derive(Clone, Copy)]
struct Style {
    /// Whether fields with their default are written too, and 64-bit integers as numbers.
    shows_all: bool,
    /// The number of messages that enclose the message.
    depth: usize,
}

impl Style {
    fn new(shows_all: bool) -> Self {
        Self {
            shows_all,
            depth: 0,
        }
    }

    fn message(self, message: &DynamicMessage) -> Result<Value, WriteError> {
        if self.depth == MAX_DEPTH {
            return Err(WriteError::Unwritable(
                "it holds too many messages in one another",
            ));
        }
        let style = Self {
            depth: self.depth + 1,
            ..self
        };
        match well_known::write(style, message) {
            Some(written) => written,
            None => Ok(Value::Object(style.fields(message)?)),
        }
    }

    fn fields(self, message: &DynamicMessage) -> Result<Map<String, Value>, WriteError> {
        let mut object = Map::new();
        for field in message.descriptor().fields() {
            let by_default = self.shows_all && !field.supports_presence();
            if by_default || message.has_field(&field) {
                let value = self.field(&message.get_field(&field), &field.kind())?;
                object.insert(field.json_name().to_owned(), value);
            }
        }
        Ok(object)
    }

    fn field(self, field: &Field, kind: &Kind) -> Result<Value, WriteError> {
        Ok(match field {
            Field::Message(message) => self.message(message)?,
            Field::List(items) => {
                let items = items.iter().map(|item| self.field(item, kind));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Field::Map(entries) => {
                let kind = match kind {
                    Kind::Message(entry) => entry.map_entry_value_field().kind(),
                    _ => return Err(WriteError::Unwritable("a map without entries")),
                };
                let written =
                    |(key, value): (&MapKey, &Field)| Ok((map_key(key), self.field(value, &kind)?));
                Value::Object(
                    entries
                        .iter()
                        .map(written)
                        .collect::<Result<_, WriteError>>()?,
                )
            }
            Field::Bool(value) => Value::Bool(*value),
            Field::I32(value) => Value::from(*value),
            Field::U32(value) => Value::from(*value),
            Field::I64(value) if self.shows_all => Value::from(*value),
            Field::U64(value) if self.shows_all => Value::from(*value),
            Field::I64(value) => Value::String(value.to_string()),
            Field::U64(value) => Value::String(value.to_string()),
            Field::F32(value) if value.is_finite() => serde_json::to_value(value)?,
            Field::F32(value) => endless((*value).into()),
            Field::F64(value) if value.is_finite() => Value::from(*value),
            Field::F64(value) => endless(*value),
            Field::String(value) => Value::String(value.clone()),
            Field::Bytes(value) => Value::String(general_purpose::STANDARD.encode(value)),
            Field::EnumNumber(number) => match kind {
                Kind::Enum(values) if values.full_name() == "google.protobuf.NullValue" => {
                    Value::Null
                }
                Kind::Enum(values) => match values.get_value(*number) {
                    Some(value) => Value::String(value.name().to_owned()),
                    None => Value::from(*number),
                },
                _ => Value::from(*number),
            },
        })
    }
}

/// A number that JSON has no digits for.
fn endless(value: f64) -> Value {
    Value::from(match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    })
}

fn map_key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}
