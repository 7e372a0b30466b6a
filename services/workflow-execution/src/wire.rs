//! Domain types as messages of the contract, and back.

use std::sync::Arc;

use contracts::tavern::workflow::v1 as workflow;
use json_schema::JsonLimits;
use serde_json::{Map, Value};

use crate::domain::data_flow::NULL;
use crate::domain::gather::Outputs;
use crate::domain::limits::{MAX_JSON_DEPTH, MAX_VALUE_BYTES};
use crate::domain::node_type::NodeDefinition;
use crate::domain::plan::PlanNode;
use crate::domain::slot::Slot;

/// Writes a node type.
pub fn node_type_to_proto(definition: &NodeDefinition) -> workflow::NodeType {
    workflow::NodeType {
        full_type: definition.full_type.to_owned(),
        display_name: definition.display_name.to_owned(),
        description: definition.description.to_owned(),
        inputs: definition
            .shape
            .inputs
            .iter()
            .map(|slot| slot_to_proto(slot, true))
            .collect(),
        outputs: definition
            .shape
            .outputs
            .iter()
            .map(|slot| slot_to_proto(slot, false))
            .collect(),
        pure: definition.pure,
    }
}

fn slot_to_proto(slot: &Slot, is_input: bool) -> workflow::Slot {
    workflow::Slot {
        key: slot.key.to_string(),
        data_flow_type: slot.data_flow.name().to_owned(),
        description: slot.description.clone(),
        required: is_input && slot.required,
        multi: slot.multi,
        default_json: slot
            .default
            .as_ref()
            .map(|value| value.to_string())
            .unwrap_or_default(),
    }
}

/// Writes the outputs of a node as an object by slot.
pub fn outputs_to_json(node: &PlanNode, outputs: &Outputs) -> String {
    // By hand, because building an object first would copy every value.
    let mut text = String::from("{");
    for (slot, value) in node.shape.outputs.iter().zip(outputs.iter()) {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&Value::from(&*slot.key).to_string());
        text.push(':');
        text.push_str(&value.to_string());
    }
    text.push('}');
    text
}

/// Reads the outputs of a node; an output that is not there is null.
///
/// # Errors
/// A sentence that says why the text is no object.
pub fn outputs_from_json(node: &PlanNode, text: &str) -> Result<Outputs, String> {
    let mut values = match read_value(text)? {
        Value::Object(values) => values,
        _ => return Err("the outputs are no object".to_owned()),
    };
    let take = |values: &mut Map<String, Value>, slot: &Slot| {
        values
            .remove(&*slot.key)
            .map_or_else(|| Arc::clone(&NULL), Arc::new)
    };
    Ok(node
        .shape
        .outputs
        .iter()
        .map(|slot| take(&mut values, slot))
        .collect())
}

/// Reads a JSON value that came over the wire or out of the log; empty text is null.
///
/// # Errors
/// A sentence that says why it is no JSON.
pub fn read_value(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    // Outputs are bounded by their weight, and their text may be a little longer.
    let limits = JsonLimits {
        max_bytes: 2 * MAX_VALUE_BYTES,
        max_depth: MAX_JSON_DEPTH + 2,
        ..JsonLimits::default()
    };
    json_schema::parse_json_strict_with(text, &limits).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_node_type_has_a_message() {
        let catalogue = crate::node::builtin();
        let message = node_type_to_proto(catalogue.get("core:TextMerge").unwrap().definition());
        assert_eq!(message.inputs[0].default_json, "\"\\\\n\"");
        assert!(message.inputs[1].required && message.inputs[1].multi && message.pure);
        assert!(!message.outputs[0].required);
    }

    #[test]
    fn values_from_outside_are_read_strictly() {
        assert_eq!(read_value(""), Ok(Value::Null));
        assert_eq!(
            read_value("[1.50]").map(|value| value.to_string()),
            Ok("[1.50]".into())
        );
        assert!(read_value("{\"a\":1,\"a\":2}").is_err());
        assert_eq!(read_value("{}"), Ok(json!({})));
    }
}
