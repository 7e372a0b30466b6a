//! `core:JsonSelector`: selects values of JSON by a path of RFC 9535.

mod budget;

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use json_schema::JsonLimits;
use serde_json::{Number, Value, json};
use serde_json_path::JsonPath;

use json_schema::pointer::join;
use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::limits::{MAX_JSON_DEPTH, MAX_VALUE_BYTES};
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::size::weight;
use workflow_domain::slot::{Shape, Slot};

const JSON: usize = 0;
const PATH: usize = 1;
const REQUIRED: usize = 2;

/// Selects values by a JSONPath.
#[derive(Debug)]
pub struct JsonSelector;

impl Node for JsonSelector {
    fn definition(&self) -> NodeDefinition {
        let value = "The value to look into. A text that is JSON is read as JSON; any other text stands for itself.";
        let inputs = vec![
            Slot::new("json", DataFlow::Wildcard, value)
                .required()
                .category("Json"),
            Slot::new(
                "path",
                DataFlow::String,
                "A JSONPath (RFC 9535), such as `$.items[0].name`.",
            )
            .excluded_from_bypass()
            .default(json!("$")),
            Slot::new(
                "required",
                DataFlow::Boolean,
                "Fails when nothing is found.",
            )
            .excluded_from_bypass()
            .default(json!(true)),
        ];
        let outputs = vec![
            Slot::new(
                "value",
                DataFlow::Wildcard,
                "The first value found; null if none was.",
            ),
            Slot::new("values", DataFlow::Array, "All values found, in order."),
            Slot::new("count", DataFlow::Integer, "How many were found.").excluded_from_bypass(),
        ];
        let shape = Shape::new(inputs, outputs);
        NodeDefinition {
            description: "Selects values from JSON by a path.".into(),
            category: "data".into(),
            ..NodeDefinition::new("core:JsonSelector", "JSON selector", shape)
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let preset = context.presets.get("path").and_then(Value::as_str);
        match preset.map(parse) {
            Some(Err(failure)) if !context.connected.contains(&"path") => {
                Err(vec![Violation::new(
                    join("/inputValues", "path"),
                    "invalid_path",
                    failure.message.clone(),
                )])
            }
            _ => Ok(context.definition.shape.clone()),
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let text = call.text(PATH).unwrap_or("$");
        let path = parse(text)?;
        let given = call.value(JSON).unwrap_or(&NULL);
        let read = given.as_str().and_then(read_json).map(Arc::new);
        let value = read.as_ref().unwrap_or(given);
        budget::check(text, value)?;
        let found = path.query(value).all();
        let bytes: usize = found.iter().map(|value| weight(value)).sum();
        // The first value is output twice.
        if bytes.saturating_mul(2) > MAX_VALUE_BYTES {
            let message = format!("`{text}` finds values of about {bytes} bytes; select less");
            return Err(Failure::limit("value_too_large", message));
        }
        let must_find = call
            .value(REQUIRED)
            .and_then(|value| value.as_bool())
            .unwrap_or(true);
        if found.is_empty() && must_find {
            let message =
                format!("`{text}` finds nothing; correct the path or set `required` to false");
            return Err(Failure::invalid("nothing_found", message).detail("path", text));
        }
        let first = found
            .first()
            .map_or_else(|| Arc::clone(&NULL), |value| Arc::new((*value).clone()));
        let count = Value::Number(Number::from(found.len()));
        let values = Value::Array(found.into_iter().cloned().collect());
        Ok(Step::Done(vec![first, Arc::new(values), Arc::new(count)]))
    }
}

fn parse(text: &str) -> Result<JsonPath, Failure> {
    budget::check_path(text)?;
    JsonPath::parse(text).map_err(|error| {
        let message = format!(
            "`{text}` is not a valid JSONPath at character {}: {}",
            error.position(),
            error.message()
        );
        Failure::invalid("invalid_path", message)
    })
}

/// Reads a text as JSON, if it is JSON.
fn read_json(text: &str) -> Option<Value> {
    let limits = JsonLimits {
        max_bytes: MAX_VALUE_BYTES,
        max_depth: MAX_JSON_DEPTH,
        ..JsonLimits::default()
    };
    json_schema::parse_json_strict_with(text, &limits).ok()
}
