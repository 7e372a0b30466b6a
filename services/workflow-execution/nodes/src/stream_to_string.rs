//! `core:StreamToString`: the whole text of a stream.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::Value;

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::{Shape, Slot};

const STREAM: usize = 0;

/// Waits for the end of a stream. Values other than text become lines.
#[derive(Debug)]
pub struct StreamToString;

impl Node for StreamToString {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new("stream", DataFlow::Wildcard, "The stream.")
                .required()
                .stream(),
        ];
        let outputs = vec![Slot::new(
            "text",
            DataFlow::String,
            "All of it as one text; of a stream of values a line for each: its text, or its JSON.",
        )];
        NodeDefinition {
            description: "Collects a stream and gives its whole text once it has ended.".into(),
            category: "text".into(),
            ..NodeDefinition::new(
                "core:StreamToString",
                "Stream to string",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let text = match call.value(STREAM).unwrap_or(&NULL).as_ref() {
            Value::String(text) => text.clone(),
            Value::Array(values) => {
                let line = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
                values.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        Ok(Step::Done(vec![Arc::new(Value::String(text))]))
    }
}
