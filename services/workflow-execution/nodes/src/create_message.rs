//! `core:CreateMessage`: a text becomes a chat message.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::{Value, json};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::{Shape, Slot};

use super::messages::{message, text_slot};

const ROLE: usize = 0;
const CONTENT: usize = 1;

/// Makes a list of one message; of an empty text, an empty list.
#[derive(Debug)]
pub struct CreateMessage;

impl Node for CreateMessage {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new("role", DataFlow::String, "`user`, `assistant` or `system`.")
                .default(json!("user"))
                .suggest(["user", "assistant", "system"])
                .excluded_from_bypass(),
            Slot::new("content", DataFlow::String, "The text of the message."),
        ];
        let outputs = vec![text_slot(
            "messages",
            "A JSON array of the message; empty if the text is.",
        )];
        NodeDefinition {
            description: "Makes a chat message of a text.".into(),
            category: "llm".into(),
            ..NodeDefinition::new(
                "core:CreateMessage",
                "Create message",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let (role, content) = (call.text(ROLE).unwrap_or("user"), call.text(CONTENT));
        if !["user", "assistant", "system"].contains(&role) {
            let message = format!("`{role}` is not a role; use user, assistant or system");
            return Err(Failure::invalid("unknown_role", message));
        }
        let messages = match content.unwrap_or("") {
            "" => Vec::new(),
            content => vec![message(role, content)],
        };
        Ok(Step::Done(vec![Arc::new(Value::String(
            Value::Array(messages).to_string(),
        ))]))
    }
}
