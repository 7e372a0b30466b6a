//! The settings of a node type as a JSON Schema.

use serde_json::{Map, Value, json};

use super::data_flow::DataFlow;
use super::node_definition::{ConfigSlot, NodeDefinition};

/// Writes the schema of the settings of a node type.
pub fn config_schema(definition: &NodeDefinition) -> Value {
    let settings = definition.config.iter();
    let properties = settings.map(|slot| (slot.key.to_owned(), setting(slot)));
    json!({
        "type": "object",
        "properties": properties.collect::<Map<_, _>>(),
    })
}

fn setting(slot: &ConfigSlot) -> Value {
    let mut schema = Map::new();
    let mut put = |keyword: &str, value: Value| schema.insert(keyword.to_owned(), value);
    put("description", json!(slot.description));
    if let Some(name) = type_name(slot.data_flow) {
        put("type", json!(name));
    }
    if !slot.options.is_empty() {
        put("enum", json!(slot.options));
    }
    if let Some((above, maximum)) = slot.bounds {
        put("exclusiveMinimum", json!(above));
        put("maximum", json!(maximum));
    }
    if let Some(default) = &slot.default {
        put("default", default.clone());
    }
    Value::Object(schema)
}

/// Returns the type of JSON of a type of values; none if any fits.
fn type_name(data_flow: DataFlow) -> Option<&'static str> {
    match data_flow {
        DataFlow::String | DataFlow::Binary => Some("string"),
        DataFlow::Integer => Some("integer"),
        DataFlow::Float => Some("number"),
        DataFlow::Boolean => Some("boolean"),
        DataFlow::Object => Some("object"),
        DataFlow::Array => Some("array"),
        DataFlow::Wildcard | DataFlow::ConvertibleAny => None,
    }
}
