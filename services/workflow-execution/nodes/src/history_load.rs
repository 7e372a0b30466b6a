//! `core:HistoryLoad`: the newest messages of a conversation.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use json_schema::pointer::join;
use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{
    Effect, HistoryRequest, Node, NodeCall, Settled, ShapeContext, Step,
};
use workflow_domain::slot::{Shape, Slot};

use super::{chat, messages};

const CONVERSATION_ID: usize = 0;

const LIMIT: &str = "limit";
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

/// Reads a conversation of the agent runtime.
#[derive(Debug)]
pub struct HistoryLoad;

impl Node for HistoryLoad {
    fn definition(&self) -> NodeDefinition {
        let outputs = vec![
            Slot::new(
                "messages",
                DataFlow::Array,
                "The messages, the oldest first.",
            )
            .category(Slot::CHAT_HISTORY),
            Slot::new(
                "revision",
                DataFlow::String,
                "The revision of the conversation, for HistorySave; `0` if it has not begun.",
            ),
        ];
        NodeDefinition {
            description: "Reads the newest messages of a conversation.".into(),
            category: "loaders".into(),
            config: vec![ConfigSlot {
                default: Some(json!(DEFAULT_LIMIT)),
                bounds: Some((0.0, MAX_LIMIT as f64)),
                ..ConfigSlot::new(LIMIT, DataFlow::Integer, "How many messages at most.")
            }],
            effects: NodeEffects::ReadOnly,
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                "core:HistoryLoad",
                "Load history",
                Shape::new(vec![conversation_slot()], outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        match limit(context.config) {
            Some(_) => Ok(context.definition.shape.clone()),
            None => Err(vec![Violation::new(
                join("/configValues", LIMIT),
                "out_of_range",
                format!("expected a whole number from 1 to {MAX_LIMIT}"),
            )]),
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        Ok(Step::Effect(Effect::History(HistoryRequest::Load {
            conversation_id: call.text(CONVERSATION_ID).unwrap_or("").to_owned(),
            limit: limit(call.config).unwrap_or(DEFAULT_LIMIT),
        })))
    }

    fn settle(&self, _call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let Settled::History { messages, revision } = settled else {
            return Err(super::wrong_effect(&self.definition()));
        };
        let messages = messages.iter().map(messages::write).collect();
        Ok(chat::outputs([
            Value::Array(messages),
            revision.to_string().into(),
        ]))
    }
}

/// Makes the slot that names a conversation.
pub(super) fn conversation_slot() -> Slot {
    let description = "The id of the conversation; empty for the one of the run.";
    Slot::new("conversation_id", DataFlow::String, description).excluded_from_bypass()
}

fn limit(config: &Map<String, Value>) -> Option<usize> {
    match config.get(LIMIT) {
        None | Some(Value::Null) => Some(DEFAULT_LIMIT),
        Some(limit) => {
            let limit = usize::try_from(limit.as_u64()?).ok()?;
            (1..=MAX_LIMIT).contains(&limit).then_some(limit)
        }
    }
}
