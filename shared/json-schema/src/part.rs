//! A part of a schema as a validator of its own, for values that stand under it.

use std::fmt::Write;

use jsonschema::{Registry, Validator};
use serde_json::{Value, json};

use crate::schema::Schema;

/// Where the whole document stands while a part of it is compiled.
const WHOLE: &str = "json-schema:///whole";

/// One part of a schema, compiled; its references are those of the whole document.
#[derive(Debug)]
pub struct SchemaPart {
    whole: Schema,
    validator: Validator,
}

impl SchemaPart {
    /// Compiles the part at a JSON pointer; `None` where there is none.
    pub(crate) fn compile(whole: &Schema, pointer: &str) -> Option<Self> {
        let registry = Registry::new().add(WHOLE, whole.source().clone()).ok()?;
        let registry = registry.prepare().ok()?;
        let part = json!({"$ref": format!("{WHOLE}#{}", fragment(pointer))});
        let options = whole.options().with_registry(&registry);
        Some(Self {
            validator: options.build(&part).ok()?,
            whole: whole.clone(),
        })
    }

    /// Returns whether a value meets this part of the schema. It does not where checking it would
    /// take more work than the limits of the whole schema allow.
    pub fn is_valid(&self, instance: &Value) -> bool {
        self.whole.affords(instance) && self.validator.is_valid(instance)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_holds_values_against_its_own_rules_and_the_references_of_the_whole() {
        for extra in [
            json!({}),
            json!({"$id": "https://example.test/tool.json"}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
        ] {
            let mut schema = json!({
                "type": "object",
                "properties": {
                    "a b/c%": {"anyOf": [
                        {"$ref": "#/$defs/short"},
                        {"type": "array", "items": {"$ref": "#/properties/a%20b~1c%25"}},
                        {"type": "object", "properties": {"again": {"$ref": "#"}}, "required": ["again"]}
                    ]}
                },
                "$defs": {"short": {"type": "string", "maxLength": 2}}
            });
            let members = schema.as_object_mut().unwrap();
            members.extend(extra.as_object().unwrap().clone());
            let whole = Schema::compile(&schema).unwrap();
            let part = whole.part("/properties/a b~1c%").unwrap();
            for (value, valid) in [
                (json!("ab"), true),
                (json!("abc"), false),
                (json!(["ab", ["a"]]), true),
                (json!([3]), false),
                (json!({"again": {"a b/c%": "ab"}}), true),
                (json!({"again": {"a b/c%": "abc"}}), false),
            ] {
                assert_eq!(part.is_valid(&value), valid, "{value} {extra}");
            }
            assert!(whole.part("/properties/other").is_none());
        }
    }
}
