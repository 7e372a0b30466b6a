//! `core:ExecuteTool`: calls tools of the registry.

mod requests;

use call_outcome::{Failure, Violation};
use call_prompt::observation;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use json_schema::pointer::join;
use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{
    ConfigSlot, FurtherSlots, NodeDefinition, NodeEffects, Reuse,
};
use workflow_domain::node_type::{Effect, Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::tool::ToolOutcome;

use super::yields;

const REQUESTS: usize = 0;
const TOOL_ID: usize = 1;
const ARGUMENTS: usize = 2;
const MESSAGES: usize = 3;

const RESULT: usize = 0;
const RESULTS: usize = 3;

/// The setting that turns a failed call into outputs instead of a failed node.
const CONTINUE_ON_ERROR: &str = "continueOnError";

/// Calls one tool, of which every further input that the workflow names is an argument, or the
/// tools that a model requested (rule W34).
#[derive(Debug)]
pub struct ExecuteTool;

fn inputs() -> Vec<Slot> {
    let arguments = "The arguments by name. Further inputs that the workflow connects or presets \
                         count as arguments too, and before these.";
    let requests = "One request or a list of them, as ParseLlmDecision makes them. It takes the place \
                        of `tool_id`. They run in order; behind one that fails or cannot run the rest is \
                        skipped, unless its `continueOnError` is true.";
    let chat = "The chat that ends with the answer that made the requests. With `tool_id` it is an \
                    argument like others.";
    vec![
        Slot::new("requests", DataFlow::Wildcard, requests).excluded_from_bypass(),
        Slot::new("tool_id", DataFlow::String, "The id of the tool.").excluded_from_bypass(),
        Slot::new("arguments", DataFlow::Object, arguments),
        Slot::new("messages", DataFlow::Wildcard, chat)
            .category(Slot::CHAT_HISTORY)
            .excluded_from_bypass(),
    ]
}

fn outputs() -> Vec<Slot> {
    vec![
        Slot::new(
            "result",
            DataFlow::Wildcard,
            "What the tool gave, of requests the last one that succeeded; null if none did.",
        ),
        Slot::new(
            "status",
            DataFlow::String,
            "`succeeded`, or how the call failed.",
        )
        .excluded_from_bypass(),
        Slot::new(
            "error",
            DataFlow::Wildcard,
            "Why the first failed: code, message, retryable; null if none did.",
        )
        .excluded_from_bypass(),
        Slot::new(
            "results",
            DataFlow::Array,
            "For each request `id`, `toolName`, `status`, `result`, `error` and `observation`; \
             empty for `tool_id`.",
        )
        .excluded_from_bypass(),
        Slot::new(
            "observation",
            DataFlow::String,
            "What a model reads about the calls; where a chat is given, about those without \
             a message.",
        )
        .excluded_from_bypass(),
        Slot::new(
            "output",
            DataFlow::String,
            "What the tools write to standard output, while they write it; its first 64 KiB.",
        )
        .stream()
        .excluded_from_bypass(),
        Slot::new(
            "messages",
            DataFlow::Array,
            "The chat with a message of a tool for each native call; empty for `tool_id`.",
        )
        .category(Slot::CHAT_HISTORY)
        .excluded_from_bypass(),
    ]
}

impl Node for ExecuteTool {
    fn definition(&self) -> NodeDefinition {
        let continues =
            "Whether a failed call makes outputs (`status`, `error`) instead of failing the node.";
        let yielded = "The type of the values that the tools give one after the other: the messages of a \
                       method that streams, while they come, or the items of a list; any other result is \
                       a stream of one. They are the further output `values`.";
        let shape = Shape::new(inputs(), outputs());
        NodeDefinition {
            description: "Calls tools of the registry: the one that is named, or those that a model asked \
                          for. A call of the named one that fails fails the node, unless the setting \
                          `continueOnError` is true.".into(),
            category: "tools".into(),
            config: vec![
                ConfigSlot {
                    default: Some(json!(false)),
                    ..ConfigSlot::new(CONTINUE_ON_ERROR, DataFlow::Boolean, continues)
                },
                yields::setting(yielded),
            ],
            further_slots: FurtherSlots::NamedInputs,
            effects: NodeEffects::External,
            reuse: Reuse::Reads,
            ..NodeDefinition::new("core:ExecuteTool", "Execute tool", shape)
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        check_flag(context.config, CONTINUE_ON_ERROR)?;
        let given =
            |key: &str| context.connected.contains(&key) || context.presets.contains_key(key);
        let message = match (given("requests"), given("tool_id")) {
            (true, true) => "`requests` and `tool_id` exclude each other",
            (false, false) => "the node needs `tool_id` or `requests`",
            _ => {
                let mut shape = open_shape(&context.definition.shape, context);
                if let Some(yielded) = yields::yielded(context.config)? {
                    let outputs = shape.outputs.iter().cloned();
                    shape.outputs = outputs.chain([yields::slot(yielded)]).collect();
                }
                return Ok(shape);
            }
        };
        Err(vec![Violation::new(
            "/inputValues/tool_id",
            "missing_input",
            message,
        )])
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        if let Some(given) = call.value(REQUESTS) {
            let asked = requests::read(given)?;
            let calls = requests::to_call(&asked);
            return Ok(match calls.is_empty() {
                true => Step::Done(with_values(
                    call,
                    requests::outputs(&asked, Vec::new(), call.value(MESSAGES), ""),
                )?),
                false => Step::Effect(Effect::CallTools(calls)),
            });
        }
        let tool_id = call.text(TOOL_ID).unwrap_or("").to_owned();
        if tool_id.is_empty() {
            let message = "the node was given neither a tool nor requests";
            return Err(Failure::invalid("no_tool", message));
        }
        let arguments = combine(call, ARGUMENTS, ARGUMENTS + 1);
        Ok(Step::Effect(Effect::CallTool { tool_id, arguments }))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let continues = call
            .config
            .get(CONTINUE_ON_ERROR)
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let outcome = match settled {
            Settled::Calls(outcomes) => {
                let asked = requests::read(call.value(REQUESTS).unwrap_or(&NULL))?;
                let outputs =
                    requests::outputs(&asked, outcomes, call.value(MESSAGES), call.written);
                return with_values(call, outputs);
            }
            Settled::Tool { output, .. } => ToolOutcome {
                observation: observation::success(call.text(TOOL_ID).unwrap_or(""), &output),
                status: "succeeded",
                output,
                failure: None,
            },
            Settled::ToolFailed { status, failure } if continues => ToolOutcome {
                observation: requests::failed(call.text(TOOL_ID).unwrap_or(""), &failure),
                status,
                output: Value::Null,
                failure: Some(failure),
            },
            Settled::ToolFailed { failure, .. } => return Err(failure),
            _ => return Err(super::wrong_effect(&self.definition())),
        };
        with_values(call, requests::outputs_of_one(outcome, call.written))
    }
}

/// Adds the values of the tools, if the settings request them: the results of the requests that
/// succeeded, else the result of the one tool.
fn with_values(
    call: NodeCall<'_>,
    mut outputs: Vec<Arc<Value>>,
) -> Result<Vec<Arc<Value>>, Failure> {
    let Some(data_flow) = yields::yielded(call.config).unwrap_or_default() else {
        return Ok(outputs);
    };
    let values = match outputs[RESULTS].as_array() {
        Some(results) if call.value(REQUESTS).is_some() => {
            yields::values(data_flow, results.iter().map(|result| &result["result"]))
        }
        _ => yields::values(data_flow, [&*outputs[RESULT]]),
    };
    outputs.push(values?);
    Ok(outputs)
}

/// Adds an input for every name that the workflow uses beyond the fixed ones.
pub(super) fn open_shape(fixed: &Shape, context: &ShapeContext<'_>) -> Shape {
    let mut inputs = fixed.inputs.to_vec();
    inputs.extend(context.further_inputs(&fixed.inputs));
    Shape {
        inputs: inputs.into(),
        outputs: Arc::clone(&fixed.outputs),
    }
}

/// Merges the object at `base` with all inputs from `first` on; the inputs win.
pub(super) fn combine(call: NodeCall<'_>, base: usize, first: usize) -> Map<String, Value> {
    let mut combined = call
        .value(base)
        .and_then(|value| value.as_object())
        .cloned()
        .unwrap_or_default();
    for (slot, value) in call.given(first) {
        combined.insert(slot.key.to_string(), value.clone());
    }
    combined
}

/// Refuses a setting that should be a boolean and is not.
fn check_flag(config: &Map<String, Value>, key: &str) -> Result<(), Vec<Violation>> {
    match config.get(key) {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(other) => {
            let violation = Violation::new(
                join("/configValues", key),
                "type_mismatch",
                "expected true or false",
            );
            Err(vec![violation.found("boolean", &other.to_string())])
        }
    }
}
