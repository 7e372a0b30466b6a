//! `core:MergeMessages`: several lists of messages become one.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::Value;

use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::Shape;

use super::messages::{read, text_slot};

const MESSAGE_INPUTS: usize = 0;

/// Concatenates messages; values other than messages are passed over.
#[derive(Debug)]
pub struct MergeMessages;

impl Node for MergeMessages {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            text_slot("message_inputs", "Lists of messages, in order.")
                .multi()
                .required(),
        ];
        let outputs = vec![text_slot("messages", "A JSON array of all messages.")];
        NodeDefinition {
            description: "Puts several lists of chat messages together.".into(),
            category: "llm".into(),
            ..NodeDefinition::new(
                "core:MergeMessages",
                "Merge messages",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let messages = call
            .value(MESSAGE_INPUTS)
            .map_or_else(Vec::new, |all| read(all));
        Ok(Step::Done(vec![Arc::new(Value::String(
            Value::Array(messages).to_string(),
        ))]))
    }
}
