//! `core:StreamSuffixRelay`: a stream with a mark at its end.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::Value;

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::{Shape, Slot};

const STREAM: usize = 0;
const SUFFIX: usize = 1;

/// Passes every piece of a stream on at once, and a suffix after the last one.
#[derive(Debug)]
pub struct StreamSuffixRelay;

impl Node for StreamSuffixRelay {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new("inputStream", DataFlow::String, "The stream.").stream(),
            Slot::new("suffix", DataFlow::String, "The text after its end.").excluded_from_bypass(),
        ];
        let outputs = vec![
            Slot::new(
                "outputStream",
                DataFlow::String,
                "The stream with the suffix.",
            )
            .stream()
            .relaying("inputStream"),
        ];
        NodeDefinition {
            description: "Passes a stream on piece by piece, and a suffix after its end.".into(),
            category: "text".into(),
            ..NodeDefinition::new(
                "core:StreamSuffixRelay",
                "Stream suffix relay",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let text = [STREAM, SUFFIX].map(|place| call.text(place).unwrap_or(""));
        Ok(Step::Done(vec![Arc::new(Value::String(text.concat()))]))
    }
}
