//! The well-known types that JSON writes in a way of their own.

use prost_reflect::prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value as Field,
};
use serde_json::Value;

use super::{Reader, join, scalar};

/// Reads a well-known type; `None` if the type is an ordinary message.
pub(super) fn read(
    reader: &mut Reader,
    descriptor: &MessageDescriptor,
    value: &Value,
    pointer: &str,
) -> Option<Option<DynamicMessage>> {
    let name = descriptor.full_name().strip_prefix("google.protobuf.")?;
    Some(match name {
        "Timestamp" => from_text(
            reader,
            descriptor,
            value,
            pointer,
            "a time such as 2026-01-31T12:00:00Z",
        ),
        "Duration" => from_text(
            reader,
            descriptor,
            value,
            pointer,
            "a duration such as 1.5s",
        ),
        "FieldMask" => from_text(
            reader,
            descriptor,
            value,
            pointer,
            "field names joined by commas",
        ),
        "Struct" => read_struct(reader, descriptor, value, pointer),
        "ListValue" => read_list(reader, descriptor, value, pointer),
        "Value" => read_value(reader, descriptor, value, pointer),
        "Any" => read_any(reader, descriptor, value, pointer),
        "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value"
        | "UInt32Value" | "BoolValue" | "StringValue" | "BytesValue" => {
            read_wrapper(reader, descriptor, value, pointer)
        }
        _ => return None,
    })
}

/// Whether JSON writes a message of this type in another way than as an object of its fields.
pub(crate) fn has_own_form(descriptor: &MessageDescriptor) -> bool {
    let name = descriptor.full_name().strip_prefix("google.protobuf.");
    name.is_some_and(|name| {
        matches!(
            name,
            "Timestamp" | "Duration" | "FieldMask" | "Struct" | "ListValue" | "Value" | "Any"
        ) || (name.ends_with("Value") && name.len() > "Value".len())
    })
}

/// Returns whether a field can hold a JSON null.
pub(super) fn holds_null(field: &FieldDescriptor) -> bool {
    match field.kind() {
        _ if field.is_list() || field.is_map() => false,
        Kind::Message(descriptor) => descriptor.full_name() == "google.protobuf.Value",
        Kind::Enum(descriptor) => descriptor.full_name() == "google.protobuf.NullValue",
        _ => false,
    }
}

fn from_text(
    reader: &mut Reader,
    descriptor: &MessageDescriptor,
    value: &Value,
    pointer: &str,
    wanted: &str,
) -> Option<DynamicMessage> {
    let read = match value {
        // RFC 3339 has small letters and a space here as well; protobuf has not.
        Value::String(text)
            if text.contains(['t', 'z', ' ']) && descriptor.name() == "Timestamp" =>
        {
            None
        }
        Value::String(_) => DynamicMessage::deserialize(descriptor.clone(), value.clone()).ok(),
        _ => None,
    };
    if read.is_none() {
        reader.expected(pointer, wanted, value);
    }
    read
}

/// Reads a message of the type that `@type` names, from its sibling fields, or from `value` where
/// JSON writes that type in a way of its own. An empty object is a message of no type.
fn read_any(
    reader: &mut Reader,
    descriptor: &MessageDescriptor,
    value: &Value,
    pointer: &str,
) -> Option<DynamicMessage> {
    let mut message = DynamicMessage::new(descriptor.clone());
    let Value::Object(object) = value else {
        reader.expected(
            pointer,
            "an object with the name of a type in '@type'",
            value,
        );
        return None;
    };
    if object.is_empty() {
        return Some(message);
    }
    let url = object.get("@type").unwrap_or(&Value::Null);
    let name = url.as_str().and_then(|url| Some(url.rsplit_once('/')?.1));
    let held = name.and_then(|name| descriptor.parent_pool().get_message_by_name(name));
    let Some(held) = held else {
        let wanted = "the name of a known type, as in type.googleapis.com/google.protobuf.Duration";
        reader.expected(&join(pointer, "@type"), wanted, url);
        return None;
    };
    let read = match has_own_form(&held) {
        true => {
            for (name, value) in object
                .iter()
                .filter(|(name, _)| !["@type", "value"].contains(&name.as_str()))
            {
                reader.unknown_field(&held, name, &join(pointer, name), value);
            }
            let value = object.get("value").unwrap_or(&Value::Null);
            reader.message(&held, value, &join(pointer, "value"))
        }
        false => {
            let mut fields = object.clone();
            fields.remove("@type");
            reader.message(&held, &Value::Object(fields), pointer)
        }
    };
    message.set_field_by_name("type_url", Field::String(url.as_str()?.to_owned()));
    message.set_field_by_name("value", Field::Bytes(read?.encode_to_vec().into()));
    Some(message)
}

fn read_wrapper(
    reader: &mut Reader,
    descriptor: &MessageDescriptor,
    value: &Value,
    pointer: &str,
) -> Option<DynamicMessage> {
    let field = descriptor.get_field(1)?;
    let inner = reader.single(&field.kind(), value, pointer)?;
    let mut message = DynamicMessage::new(descriptor.clone());
    message.set_field(&field, inner);
    Some(message)
}

fn read_struct(
    reader: &mut Reader,
    descriptor: &MessageDescriptor,
    value: &Value,
    pointer: &str,
) -> Option<DynamicMessage> {
    let Value::Object(object) = value else {
        reader.expected(pointer, "an object", value);
        return None;
    };
    let field = descriptor.get_field(1)?;
    let Kind::Message(entry) = field.kind() else {
        return None;
    };
    let Kind::Message(inner) = entry.map_entry_value_field().kind() else {
        return None;
    };
    let mut map = std::collections::HashMap::with_capacity(object.len());
    for (name, value) in object {
        if let Some(read) = read_value(reader, &inner, value, &join(pointer, name)) {
            map.insert(MapKey::String(name.clone()), Field::Message(read));
        }
    }
    let mut message = DynamicMessage::new(descriptor.clone());
    message.set_field(&field, Field::Map(map));
    Some(message)
}

fn read_list(
    reader: &mut Reader,
    descriptor: &MessageDescriptor,
    value: &Value,
    pointer: &str,
) -> Option<DynamicMessage> {
    let Value::Array(items) = value else {
        reader.expected(pointer, "an array", value);
        return None;
    };
    let field = descriptor.get_field(1)?;
    let Kind::Message(inner) = field.kind() else {
        return None;
    };
    let mut list = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        list.extend(
            read_value(reader, &inner, item, &format!("{pointer}/{index}")).map(Field::Message),
        );
    }
    let mut message = DynamicMessage::new(descriptor.clone());
    message.set_field(&field, Field::List(list));
    Some(message)
}

fn read_value(
    reader: &mut Reader,
    descriptor: &MessageDescriptor,
    value: &Value,
    pointer: &str,
) -> Option<DynamicMessage> {
    let mut message = DynamicMessage::new(descriptor.clone());
    let inner = |name: &str| match descriptor.get_field_by_name(name)?.kind() {
        Kind::Message(inner) => Some(inner),
        _ => None,
    };
    let (name, field) = match value {
        Value::Null => ("null_value", Field::EnumNumber(0)),
        Value::Bool(flag) => ("bool_value", Field::Bool(*flag)),
        Value::String(text) => ("string_value", Field::String(text.clone())),
        Value::Number(_) => match scalar::double(value) {
            Some(double) => ("number_value", Field::F64(double)),
            None => {
                reader.expected(
                    pointer,
                    "a number that a double holds exactly; send it as text",
                    value,
                );
                return None;
            }
        },
        Value::Array(_) => (
            "list_value",
            Field::Message(read_list(reader, &inner("list_value")?, value, pointer)?),
        ),
        Value::Object(_) => (
            "struct_value",
            Field::Message(read_struct(
                reader,
                &inner("struct_value")?,
                value,
                pointer,
            )?),
        ),
    };
    message.set_field_by_name(name, field);
    Some(message)
}
