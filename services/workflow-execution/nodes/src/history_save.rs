//! `core:HistorySave`: adds messages to a conversation.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::Value;

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Effect, HistoryRequest, Node, NodeCall, Settled, Step};
use workflow_domain::slot::{Shape, Slot};

use super::history_load::conversation_slot;
use super::{chat, decision_prompt, messages};

const MESSAGES: usize = 0;
const CONVERSATION_ID: usize = 1;
const EXPECTED_REVISION: usize = 2;

/// Appends the messages that a conversation does not end with yet (rule W35). Declarations of tools
/// are left out, as they belong to a chat and not to the conversation.
#[derive(Debug)]
pub struct HistorySave;

impl Node for HistorySave {
    fn definition(&self) -> NodeDefinition {
        let expected = "The revision that the conversation must have, as HistoryLoad returned it; empty \
                        for any.";
        let inputs = vec![
            Slot::new(
                "messages",
                DataFlow::Array,
                "The chat. It may begin with messages that the conversation ends with.",
            )
            .required()
            .category(Slot::CHAT_HISTORY),
            conversation_slot(),
            Slot::new("expected_revision", DataFlow::String, expected).excluded_from_bypass(),
        ];
        let outputs = vec![Slot::new(
            "revision",
            DataFlow::String,
            "The revision of the conversation after it.",
        )];
        NodeDefinition {
            description: "Adds to a conversation what is new in a chat. A conversation that was \
                          changed since its revision was read fails the node."
                .into(),
            category: "loaders".into(),
            effects: NodeEffects::External,
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                "core:HistorySave",
                "Save history",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let expected_revision = match call.text(EXPECTED_REVISION).unwrap_or("") {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                let message = "`expected_revision` is not a revision that HistoryLoad returned";
                Failure::invalid("invalid_revision", message)
            })?),
        };
        let given = messages::read(call.value(MESSAGES).unwrap_or(&NULL));
        let mut said = Vec::new();
        for message in given {
            let text = decision_prompt::said(&message).map(str::to_owned);
            let mut message = chat::message_to_model(&message)?;
            message.text = text.unwrap_or(message.text);
            if !message.is_empty() {
                said.push(message);
            }
        }
        Ok(Step::Effect(Effect::History(HistoryRequest::Save {
            conversation_id: call.text(CONVERSATION_ID).unwrap_or("").to_owned(),
            messages: said,
            expected_revision,
        })))
    }

    fn settle(&self, _call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        match settled {
            Settled::History { revision, .. } => Ok(chat::outputs([revision.to_string().into()])),
            _ => Err(super::wrong_effect(&self.definition())),
        }
    }
}
