//! Places in a message.

use prost_reflect::{Kind, MessageDescriptor};

/// Turns a JSON pointer into a field path as errors of the contract name places: fields as the proto
/// spells them, joined by `.`, with an index or a map key in brackets. Where the pointer leaves the
/// message, its names are kept.
pub fn field_path(descriptor: &MessageDescriptor, pointer: &str) -> String {
    let mut path = String::new();
    let mut inside = Some(descriptor.clone());
    let mut in_brackets = false;
    for segment in pointer.split('/').skip(1) {
        let segment = segment.replace("~1", "/").replace("~0", "~");
        if std::mem::take(&mut in_brackets) {
            path.push_str(&format!("[{segment}]"));
            continue;
        }
        let field = inside.as_ref().and_then(|descriptor| {
            let by_json_name = descriptor.get_field_by_json_name(&segment);
            by_json_name.or_else(|| descriptor.get_field_by_name(&segment))
        });
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(field.as_ref().map_or(&segment, |field| field.name()));
        in_brackets = field
            .as_ref()
            .is_some_and(|field| field.is_list() || field.is_map());
        inside = field.and_then(|field| match field.kind() {
            Kind::Message(entry) if field.is_map() => match entry.map_entry_value_field().kind() {
                Kind::Message(message) => Some(message),
                _ => None,
            },
            Kind::Message(message) => Some(message),
            _ => None,
        });
    }
    path
}
