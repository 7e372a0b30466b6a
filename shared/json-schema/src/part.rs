//! A part of a schema as a validator of its own, for values under it.

use std::fmt::Write;

use jsonschema::{Registry, ValidationOptions, Validator};
use serde_json::{Value, json};

/// The address of the whole document while a part of it is compiled.
const WHOLE: &str = "json-schema:///whole";

/// One part of a schema, compiled; its references resolve in the whole document.
/// [`crate::Schema::part_is_valid`] checks values against it.
#[derive(Debug)]
pub struct SchemaPart {
    pub(crate) validator: Validator,
}

/// Compiles the part of a document at a JSON pointer; `None` where there is none.
pub(crate) fn compile(
    whole: &Value,
    pointer: &str,
    options: ValidationOptions<'_>,
) -> Option<SchemaPart> {
    let registry = Registry::new().add(WHOLE, whole.clone()).ok()?;
    let registry = registry.prepare().ok()?;
    let part = json!({"$ref": format!("{WHOLE}#{}", fragment(pointer))});
    let validator = options.with_registry(&registry).build(&part).ok()?;
    Some(SchemaPart { validator })
}

/// The pointer as a fragment of a URI.
fn fragment(pointer: &str) -> String {
    let mut fragment = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        match byte {
            b'/' | b'~' | b'-' | b'.' | b'_' => fragment.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => fragment.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(fragment, "%{byte:02X}")),
        }
    }
    fragment
}
