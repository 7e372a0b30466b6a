//! `core:LlmApiRequest`: requests the next message of a chat from a model.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::{Map, Value};

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::model::{ModelParameters, ModelRequest};
use workflow_domain::node_definition::{NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Effect, Node, NodeCall, Settled, Step};
use workflow_domain::slot::{Shape, Slot};

use super::chat;

const MESSAGES: usize = 0;
const TOOLS: usize = 1;
const MODEL: usize = 2;
const PARAMETERS: usize = 3;

/// Calls a model. Its text is shown while the model writes it.
#[derive(Debug)]
pub struct LlmApiRequest;

impl Node for LlmApiRequest {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new("messages", DataFlow::Array, "The chat, the oldest message first.")
                .required()
                .category(Slot::CHAT_HISTORY),
            Slot::new(
                "tools",
                DataFlow::Array,
                "The tools that the model may call natively, as AvailableTools lists them.",
            )
            .excluded_from_bypass(),
            Slot::new("model", DataFlow::String, "The name of the model in the settings.")
                .required()
                .excluded_from_bypass(),
            Slot::new(
                "parameters",
                DataFlow::Object,
                "`max_tokens`, `temperature`, `top_p` and `seed`; what is missing is left to the endpoint.",
            )
            .excluded_from_bypass(),
        ];
        let outputs = vec![
            Slot::new(
                "response",
                DataFlow::Object,
                "The standard response: `text`, `model`, `choices`, `usage` and `tool_calls`.",
            ),
            Slot::new("text", DataFlow::String, "What the model wrote."),
            Slot::new(
                "tool_calls",
                DataFlow::Array,
                "The native calls of the answer.",
            )
            .excluded_from_bypass(),
            Slot::new(
                "usage",
                DataFlow::Object,
                "The tokens of the request and the answer.",
            )
            .excluded_from_bypass(),
            Slot::new("messages", DataFlow::Array, "The chat with the answer.")
                .category(Slot::CHAT_HISTORY),
            Slot::new(
                "text_stream",
                DataFlow::String,
                "What the model writes, while it writes it.",
            )
            .stream()
            .excluded_from_bypass(),
        ];
        NodeDefinition {
            description:
                "Asks a language model for the next message of a chat. An answer that was \
                          recorded is never asked for again."
                    .into(),
            category: "llm".into(),
            effects: NodeEffects::ReadOnly,
            reuse: Reuse::Reads,
            ..NodeDefinition::new(
                "core:LlmApiRequest",
                "LLM API request",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let none = Map::new();
        let parameters = call.value(PARAMETERS).and_then(|value| value.as_object());
        let tools = call.value(TOOLS).and_then(|value| value.as_array());
        Ok(Step::Effect(Effect::AskModel(ModelRequest {
            model: call.text(MODEL).unwrap_or("").to_owned(),
            messages: chat::to_model(call.value(MESSAGES).unwrap_or(&NULL))?,
            tools: tools
                .map(|tools| tools.iter().map(declared).collect())
                .unwrap_or_default(),
            parameters: ModelParameters::read(parameters.unwrap_or(&none))?,
        })))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let Settled::Model(answer) = settled else {
            return Err(super::wrong_effect(&self.definition()));
        };
        let given = call.value(MESSAGES).unwrap_or(&NULL);
        Ok(chat::outputs([
            chat::response(call.text(MODEL).unwrap_or(""), &answer),
            answer.text.clone().into(),
            Value::Array(answer.tool_calls.clone()),
            chat::usage(&answer),
            chat::with_answer(given, &answer),
            answer.text.into(),
        ]))
    }
}

/// Returns the parts of a tool that a model is shown.
fn declared(tool: &Value) -> Value {
    let shown = ["name", "description", "parameters"];
    let fields = shown
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), tool.get(key)?.clone())));
    Value::Object(fields.collect())
}
