//! JSON as the values of protobuf, and back.

use prost_types::{ListValue, Struct, Value as Wire, value::Kind};
use serde_json::{Map, Number, Value};

/// The largest integer that every reader of such a value reads exactly: 2^53.
const MAX_EXACT: u64 = 1 << 53;

/// The greatest depth of a value that every reader accepts. Deeper values are sent as their JSON
/// text.
const MAX_DEPTH: usize = 24;

/// Writes JSON. Integers beyond 2^53 become texts (rule G905).
pub(super) fn from_json(value: &Value) -> Wire {
    Wire {
        kind: Some(kind(value, 0)),
    }
}

/// Writes the fields of an object.
pub(super) fn fields<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Struct {
    let entries = entries.into_iter();
    Struct {
        fields: entries
            .map(|(key, value)| (key.to_owned(), from_json(&value)))
            .collect(),
    }
}

fn kind(value: &Value, depth: usize) -> Kind {
    let below = |value| Wire {
        kind: Some(kind(value, depth + 1)),
    };
    match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Number(number) => of_number(number),
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => {
            Kind::StringValue(value.to_string())
        }
        Value::Array(items) => Kind::ListValue(ListValue {
            values: items.iter().map(below).collect(),
        }),
        Value::Object(entries) => {
            let entries = entries.iter();
            let fields = entries.map(|(key, value)| (key.clone(), below(value)));
            Kind::StructValue(Struct {
                fields: fields.collect(),
            })
        }
    }
}

fn of_number(number: &Number) -> Kind {
    let is_integer = number.is_u64() || number.is_i64();
    let size = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
    match number.as_f64() {
        Some(exact) if !is_integer || size.is_some_and(|size| size <= MAX_EXACT) => {
            Kind::NumberValue(exact)
        }
        _ => Kind::StringValue(number.to_string()),
    }
}

/// Reads a value; none if it holds a number that JSON does not have.
pub(super) fn to_json(value: &Wire) -> Option<Value> {
    Some(match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(*value),
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::NumberValue(number)) => Value::Number(to_number(*number)?),
        Some(Kind::ListValue(list)) => {
            let items: Option<Vec<Value>> = list.values.iter().map(to_json).collect();
            Value::Array(items?)
        }
        Some(Kind::StructValue(object)) => {
            let entries = object.fields.iter();
            let entries = entries.map(|(key, value)| Some((key.clone(), to_json(value)?)));
            let entries: Option<Map<String, Value>> = entries.collect();
            Value::Object(entries?)
        }
    })
}

/// Reads a number; without a fraction it is an integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "only integers that are exact are converted"
)]
fn to_number(number: f64) -> Option<Number> {
    match number.fract() == 0.0 && number.abs() <= MAX_EXACT as f64 {
        true => Some(Number::from(number as i64)),
        false => Number::from_f64(number),
    }
}
