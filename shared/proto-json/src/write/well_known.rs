//! The well-known types that JSON writes in a way of their own.

use prost_reflect::{DynamicMessage, ReflectMessage, Value as Field};
use serde_json::{Map, Value, json};

use super::{Style, WriteError};
use crate::has_own_form;

/// Writes a well-known type; `None` if the type is an ordinary message.
pub(super) fn write(style: Style, message: &DynamicMessage) -> Option<Result<Value, WriteError>> {
    let descriptor = message.descriptor();
    let name = descriptor.full_name().strip_prefix("google.protobuf.")?;
    Some(match name {
        "Any" => any(style, message),
        "Value" => value(style, message),
        "Struct" | "ListValue" => match descriptor.get_field(1) {
            Some(field) => style.field(&message.get_field(&field), &field.kind()),
            None => return None,
        },
        "Duration" if !has_one_sign(message) => Err(WriteError::Unwritable(
            "the seconds and the nanoseconds of a duration must have the same sign",
        )),
        "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value"
        | "UInt32Value" | "BoolValue" | "StringValue" | "BytesValue" => {
            let field = descriptor.get_field(1)?;
            style.field(&message.get_field(&field), &field.kind())
        }
        "Duration" | "Timestamp" | "FieldMask" => {
            serde_json::to_value(message).map_err(WriteError::from)
        }
        _ => return None,
    })
}

/// A message of any type: its fields next to `@type`, or the form of a well-known type under
/// `value`. Without a type it is empty.
fn any(style: Style, message: &DynamicMessage) -> Result<Value, WriteError> {
    let (url, bytes) = (
        message.get_field_by_name("type_url"),
        message.get_field_by_name("value"),
    );
    let url = url
        .as_ref()
        .and_then(|url| url.as_str())
        .unwrap_or_default();
    let bytes = bytes
        .as_ref()
        .and_then(|bytes| bytes.as_bytes().cloned())
        .unwrap_or_default();
    if url.is_empty() && bytes.is_empty() {
        return Ok(json!({}));
    }
    let name = url.rsplit_once('/').map_or("", |(_, name)| name);
    let pool = message.descriptor().parent_pool().clone();
    let held = pool
        .get_message_by_name(name)
        .ok_or(WriteError::Unwritable(
            "an Any holds a type that is not known",
        ))?;
    let held = DynamicMessage::decode(held, bytes)
        .map_err(|_| WriteError::Unwritable("an Any holds bytes that are not of its type"))?;
    let mut object = Map::from_iter([("@type".to_owned(), Value::from(url))]);
    match style.message(&held)? {
        Value::Object(fields) if !has_own_form(&held.descriptor()) => object.extend(fields),
        written => drop(object.insert("value".to_owned(), written)),
    }
    Ok(Value::Object(object))
}

fn value(style: Style, message: &DynamicMessage) -> Result<Value, WriteError> {
    let Some((field, set)) = message.fields().next() else {
        return Err(WriteError::Unwritable("a Value holds nothing"));
    };
    match set {
        Field::F64(number) if !number.is_finite() => Err(WriteError::Unwritable(
            "a Value holds a number that JSON has no digits for",
        )),
        set => style.field(set, &field.kind()),
    }
}

fn has_one_sign(duration: &DynamicMessage) -> bool {
    let part = |name: &str| match duration.get_field_by_name(name).as_deref() {
        Some(Field::I64(part)) => part.signum(),
        Some(Field::I32(part)) => i64::from(part.signum()),
        _ => 0,
    };
    part("seconds") * part("nanos") >= 0
}
