//! A tool's schema in its compiled form, which dispatch uses as well, so that both find the same.

use std::sync::OnceLock;

use serde_json::Value;

use super::Types;

/// The compiled schema of a tool's arguments, made when a call asks for it first.
#[derive(Debug)]
pub(crate) struct Checked {
    /// Whether typing alone holds everything that the schema says.
    plain: bool,
    /// `None` for a schema that does not compile, which no registry accepts.
    compiled: OnceLock<Option<json_schema::Schema>>,
}

impl Checked {
    pub(crate) fn of(parameters: &Value) -> Self {
        Self {
            plain: parameters.is_null() || is_plain(parameters),
            compiled: OnceLock::new(),
        }
    }

    /// The compiled form, where it can find more than typing does.
    pub(crate) fn beyond_typing(&self, parameters: &Value) -> Option<&json_schema::Schema> {
        match self.plain {
            true => None,
            false => self.compiled(parameters),
        }
    }

    pub(super) fn compiled(&self, parameters: &Value) -> Option<&json_schema::Schema> {
        let compiled = || json_schema::Schema::compile_parameters(parameters).ok();
        self.compiled.get_or_init(compiled).as_ref()
    }
}

/// Whether a schema lists parameters of plain types and says nothing else: most tools' do.
fn is_plain(parameters: &Value) -> bool {
    let words = ["$schema", "title", "description", "required"];
    let Value::Object(keywords) = parameters else {
        return false;
    };
    keywords.iter().all(|(key, value)| match key.as_str() {
        "type" => value == "object",
        "properties" => value
            .as_object()
            .is_some_and(|properties| properties.values().all(is_plain_parameter)),
        "additionalProperties" => value.is_boolean(),
        key => words.contains(&key),
    })
}

/// Whether a parameter is a string, a number or a boolean, or one of listed values of its type.
fn is_plain_parameter(schema: &Value) -> bool {
    let words = ["title", "description", "examples", "default"];
    let name = schema.get("type").and_then(Value::as_str);
    let Some(name) =
        name.filter(|name| matches!(*name, "string" | "integer" | "number" | "boolean"))
    else {
        return false;
    };
    let of_type = |value: &Value| Types::of_value(value).has(Types::of_name(name));
    schema
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| {
            let listed = |values: &Vec<Value>| values.iter().all(of_type);
            match key.as_str() {
                "type" => true,
                "enum" => value.as_array().is_some_and(listed),
                "const" => of_type(value),
                key => words.contains(&key),
            }
        })
}
