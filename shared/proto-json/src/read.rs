//! JSON to message.
//!
//! The mapping is proto3 JSON with one difference: a field that the message does not have is
//! refused, unless the protocol of the message has it ignored. A number that its field cannot hold exactly
//! is refused too, never rounded.

mod scalar;
mod well_known;

use std::collections::HashSet;

use call_outcome::Violation;
use json_schema::pointer::join;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value as Field};
use serde_json::Value;

pub(crate) use well_known::has_own_form;

/// Converts JSON to a message.
///
/// # Errors
/// All values that do not fit, each with a JSON pointer.
pub fn to_message(
    descriptor: &MessageDescriptor,
    value: &Value,
) -> Result<DynamicMessage, Vec<Violation>> {
    read(descriptor, value, Unknown::Refused)
}

/// Converts JSON to a message and ignores unknown fields, as protocols do whose clients may be
/// newer.
///
/// # Errors
/// All other values that do not fit, each with a JSON pointer.
pub fn to_message_without_unknown(
    descriptor: &MessageDescriptor,
    value: &Value,
) -> Result<DynamicMessage, Vec<Violation>> {
    read(descriptor, value, Unknown::Ignored)
}

fn read(
    descriptor: &MessageDescriptor,
    value: &Value,
    unknown: Unknown,
) -> Result<DynamicMessage, Vec<Violation>> {
    let wrong = Vec::new();
    let mut reader = Reader { wrong, unknown };
    match reader.message(descriptor, value, "") {
        Some(message) if reader.wrong.is_empty() => Ok(message),
        _ => Err(reader.wrong),
    }
}

/// The treatment of fields that a message does not have.
#[derive(Clone, Copy)]
enum Unknown {
    Refused,
    Ignored,
}

/// Reads values and collects all that do not fit.
struct Reader {
    wrong: Vec<Violation>,
    unknown: Unknown,
}

impl Reader {
    fn add(&mut self, pointer: &str, code: &'static str, message: String, received: &Value) {
        let mut violation = Violation::new(pointer, code, message);
        violation.received = received.to_string().chars().take(120).collect();
        self.wrong.push(violation);
    }

    fn expected(&mut self, pointer: &str, wanted: &str, received: &Value) {
        let place = if pointer.is_empty() {
            "the value"
        } else {
            pointer
        };
        let message = format!("{place} must be {wanted}");
        self.add(pointer, "type_mismatch", message, received);
        if let Some(last) = self.wrong.last_mut() {
            last.expected = wanted.to_owned();
        }
    }

    fn message(
        &mut self,
        descriptor: &MessageDescriptor,
        value: &Value,
        pointer: &str,
    ) -> Option<DynamicMessage> {
        if let Some(known) = well_known::read(self, descriptor, value, pointer) {
            return known;
        }
        let Value::Object(object) = value else {
            self.expected(pointer, "an object", value);
            return None;
        };
        let mut message = DynamicMessage::new(descriptor.clone());
        let mut given = HashSet::new();
        for (name, value) in object {
            let place = join(pointer, name);
            let field = descriptor
                .get_field_by_json_name(name)
                .or_else(|| descriptor.get_field_by_name(name));
            let Some(field) = field else {
                self.unknown_field(descriptor, name, &place, value);
                continue;
            };
            if !given.insert(field.number()) {
                self.given_twice(&field, &place, value);
                continue;
            }
            // A field that is null is a field that is not given, but for the type that holds null.
            if value.is_null() && !well_known::holds_null(&field) {
                continue;
            }
            if self.clashes(&message, &field, &place, value) {
                continue;
            }
            if let Some(read) = self.field(&field, value, &place) {
                message.set_field(&field, read);
            }
        }
        Some(message)
    }

    fn unknown_field(
        &mut self,
        descriptor: &MessageDescriptor,
        name: &str,
        place: &str,
        value: &Value,
    ) {
        if matches!(self.unknown, Unknown::Ignored) {
            return;
        }
        let names: Vec<String> = descriptor
            .fields()
            .map(|field| field.json_name().to_owned())
            .collect();
        let near = json_schema::nearest_names(name, names.iter().map(String::as_str));
        let hint = near
            .first()
            .map_or_else(String::new, |near| format!(", did you mean '{near}'?"));
        let message = format!("{} has no field '{name}'{hint}", descriptor.name());
        self.add(place, "unknown_parameter", message, value);
        if let Some(last) = self.wrong.last_mut() {
            last.suggestions = near;
        }
    }

    /// Records that a field was given under both of its names.
    fn given_twice(&mut self, field: &FieldDescriptor, place: &str, value: &Value) {
        let (json_name, name) = (field.json_name(), field.name());
        let text = format!("'{json_name}' and '{name}' are the same field; give one");
        self.add(place, "duplicate_parameter", text, value);
    }

    /// Records that another field of the same oneof was given already.
    fn clashes(
        &mut self,
        message: &DynamicMessage,
        field: &FieldDescriptor,
        place: &str,
        value: &Value,
    ) -> bool {
        let Some(group) = field.containing_oneof() else {
            return false;
        };
        let Some(other) = group.fields().find(|other| message.has_field(other)) else {
            return false;
        };
        let text = format!(
            "'{}' and '{}' exclude each other; give one",
            other.json_name(),
            field.json_name()
        );
        self.add(place, "many_variants", text, value);
        true
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Value, pointer: &str) -> Option<Field> {
        if field.is_map() {
            return self.map(field, value, pointer);
        }
        if !field.is_list() {
            return self.single(&field.kind(), value, pointer);
        }
        match value {
            Value::Array(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    list.extend(self.single(&field.kind(), item, &format!("{pointer}/{index}")));
                }
                Some(Field::List(list))
            }
            other => {
                self.expected(pointer, "an array", other);
                None
            }
        }
    }

    fn map(&mut self, field: &FieldDescriptor, value: &Value, pointer: &str) -> Option<Field> {
        let object = match value {
            Value::Object(object) => object,
            other => {
                self.expected(pointer, "an object", other);
                return None;
            }
        };
        let Kind::Message(entry) = field.kind() else {
            return None;
        };
        let (key_kind, value_kind) = (
            entry.map_entry_key_field().kind(),
            entry.map_entry_value_field().kind(),
        );
        let mut map = std::collections::HashMap::with_capacity(object.len());
        for (name, value) in object {
            let place = join(pointer, name);
            let key = scalar::map_key(&key_kind, name);
            if key.is_none() {
                self.expected(
                    &place,
                    "a key of the map's key type",
                    &Value::String(name.clone()),
                );
            }
            if let (Some(key), Some(value)) = (key, self.single(&value_kind, value, &place)) {
                map.insert(key, value);
            }
        }
        Some(Field::Map(map))
    }

    fn single(&mut self, kind: &Kind, value: &Value, pointer: &str) -> Option<Field> {
        match kind {
            Kind::Message(descriptor) => {
                self.message(descriptor, value, pointer).map(Field::Message)
            }
            scalar_kind => match scalar::read(scalar_kind, value) {
                Ok(field) => Some(field),
                Err(wanted) => {
                    self.expected(pointer, &wanted, value);
                    None
                }
            },
        }
    }
}
