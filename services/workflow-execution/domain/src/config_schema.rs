//! The settings of a node type as a JSON Schema.

use serde_json::{Map, Value, json};

use super::node_definition::{ConfigSlot, NodeDefinition};

/// Writes the schema of the settings of a node type.
pub fn config_schema(definition: &NodeDefinition) -> Value {
    let settings = definition.config.iter();
    let properties = settings.map(|slot| (slot.key.to_string(), setting(slot)));
    json!({
        "type": "object",
        "properties": properties.collect::<Map<_, _>>(),
    })
}

fn setting(slot: &ConfigSlot) -> Value {
    node_file::setting_schema(
        &slot.description,
        slot.data_flow.name(),
        slot.options.iter().map(|option| &**option),
        slot.bounds,
        slot.default.as_ref(),
    )
}
