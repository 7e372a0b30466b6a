//! Values and outputs of nodes as JSON text, and back.

use std::sync::Arc;

use json_schema::JsonLimits;
use serde::Serializer as _;
use serde_json::{Map, Value};

use workflow_domain::data_flow::Values;
use workflow_domain::limits::{MAX_JSON_DEPTH, MAX_VALUE_BYTES};
use workflow_domain::plan::PlanNode;
use workflow_domain::slot::Slot;

/// Writes the outputs of a node as an object by slot; absent ones are left out.
pub fn outputs_to_json(node: &PlanNode, outputs: &Values) -> String {
    values_to_json(&node.shape.outputs, outputs)
}

/// Writes values as an object by slot; absent ones are left out.
pub fn values_to_json(slots: &[Slot], values: &[Option<Arc<Value>>]) -> String {
    let present = slots.iter().zip(values);
    let present = present.filter_map(|(slot, value)| Some((&*slot.key, value.as_deref()?)));
    let mut text = Vec::new();
    (&mut serde_json::Serializer::new(&mut text))
        .collect_map(present)
        .expect("a map with text keys always serialises");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Reads the outputs of a node; a missing output is absent.
///
/// # Errors
/// The reason for which the text is not an object.
pub fn outputs_from_json(node: &PlanNode, text: &str) -> Result<Values, String> {
    values_from_json(&node.shape.outputs, text)
}

/// Reads values by slot; a missing value is absent.
///
/// # Errors
/// The reason for which the text is not an object.
pub fn values_from_json(slots: &[Slot], text: &str) -> Result<Values, String> {
    let mut values = match read_value(text)? {
        Value::Object(values) => values,
        _ => return Err("the outputs are not an object".to_owned()),
    };
    let take =
        |values: &mut Map<String, Value>, slot: &Slot| values.remove(&*slot.key).map(Arc::new);
    Ok(slots.iter().map(|slot| take(&mut values, slot)).collect())
}

/// Reads a JSON value from the wire or the log; empty text is null.
///
/// # Errors
/// The reason for which the text is not JSON.
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
