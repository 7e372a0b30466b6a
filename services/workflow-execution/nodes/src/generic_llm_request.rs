//! `core:GenericLlmRequest`: calls a model, with the slots of ComfyTavern's node.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::model::{ModelParameters, ModelRequest};
use workflow_domain::node_definition::{NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Effect, Node, NodeCall, Settled, Step};
use workflow_domain::slot::{Shape, Slot};

use super::{chat, messages};

const MESSAGES: usize = 0;
const PARAMETERS: usize = 1;
const MODEL: usize = 2;
/// The inputs from here on are parameters by their own names.
const FIRST_PARAMETER: usize = 3;

/// Calls a model. Each parameter may have its own input, which precedes `parameters`.
#[derive(Debug)]
pub struct GenericLlmRequest;

impl Node for GenericLlmRequest {
    fn definition(&self) -> NodeDefinition {
        let parameter = |key: &str, data_flow, description: &str| {
            Slot::new(key, data_flow, description).excluded_from_bypass()
        };
        let inputs = vec![
            messages::text_slot(
                "messages",
                "The chat as a JSON array, the oldest message first.",
            )
            .required(),
            parameter(
                "parameters",
                DataFlow::String,
                "A JSON object with the parameters that have no value of their own.",
            ),
            parameter(
                "activated_model_id",
                DataFlow::String,
                "The name of the model in the settings.",
            )
            .required(),
            parameter(
                "temperature",
                DataFlow::Float,
                "The sampling temperature, 0 to 2.",
            ),
            parameter("max_tokens", DataFlow::Integer, "The most tokens to write."),
            parameter(
                "top_p",
                DataFlow::Float,
                "The share of the most probable tokens to sample from, 0 to 1.",
            ),
            parameter("seed", DataFlow::Integer, "The seed of the sampling."),
            parameter(
                "stream",
                DataFlow::Boolean,
                "Accepted for files that have it; every answer is shown while it is written.",
            )
            .default(json!(true)),
        ];
        let outputs = vec![
            Slot::new(
                "response",
                DataFlow::Object,
                "The standard response: `text`, `model`, `choices`, `usage` and `tool_calls`.",
            ),
            Slot::new("responseText", DataFlow::String, "What the model wrote."),
            Slot::new(
                "usage",
                DataFlow::Object,
                "The tokens of the request and the answer.",
            )
            .excluded_from_bypass(),
            Slot::new(
                "stream_output",
                DataFlow::String,
                "What the model writes, while it writes it.",
            )
            .stream()
            .excluded_from_bypass(),
        ];
        NodeDefinition {
            description: "Asks a language model for the next message of a chat.".into(),
            category: "llm".into(),
            effects: NodeEffects::ReadOnly,
            reuse: Reuse::Reads,
            ..NodeDefinition::new(
                "core:GenericLlmRequest",
                "Generic LLM request",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let mut parameters = written(call.text(PARAMETERS).unwrap_or(""))?;
        for (slot, value) in call.given(FIRST_PARAMETER) {
            parameters.insert(slot.key.to_string(), value.clone());
        }
        Ok(Step::Effect(Effect::AskModel(ModelRequest {
            model: call.text(MODEL).unwrap_or("").to_owned(),
            messages: chat::to_model(call.value(MESSAGES).unwrap_or(&NULL))?,
            tools: Vec::new(),
            parameters: ModelParameters::read(&parameters)?,
        })))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let Settled::Model(answer) = settled else {
            return Err(super::wrong_effect(&self.definition()));
        };
        Ok(chat::outputs([
            chat::response(call.text(MODEL).unwrap_or(""), &answer),
            answer.text.clone().into(),
            chat::usage(&answer),
            answer.text.into(),
        ]))
    }
}

/// Reads parameters from JSON text; an empty text has none.
fn written(text: &str) -> Result<Map<String, Value>, Failure> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match json_schema::parse_json_strict(text) {
        Ok(Value::Object(parameters)) => Ok(parameters),
        _ => {
            let message = "`parameters` must be the text of a JSON object";
            Err(Failure::invalid("invalid_parameters", message))
        }
    }
}
