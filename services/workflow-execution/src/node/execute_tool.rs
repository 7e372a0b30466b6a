//! `core:ExecuteTool`: calls a tool of the registry.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::domain::data_flow::{DataFlow, NULL};
use crate::domain::node_definition::{ConfigSlot, FurtherSlots, NodeDefinition, NodeEffects};
use crate::domain::node_type::{Effect, Node, NodeCall, Settled, ShapeContext, Step};
use crate::domain::slot::{Shape, Slot};
use crate::domain::violation::join;

const TOOL_ID: usize = 0;
const ARGUMENTS: usize = 1;

/// The setting that makes outputs of a failed call instead of a failed node.
const CONTINUE_ON_ERROR: &str = "continueOnError";

/// Calls one tool. Every further input that the workflow names is an argument of that name.
#[derive(Debug)]
pub struct ExecuteTool {
    definition: NodeDefinition,
}

impl Default for ExecuteTool {
    fn default() -> Self {
        let arguments = "The arguments by name. Further inputs that the workflow connects or presets \
                         count as arguments too, and before these.";
        let inputs = vec![
            Slot::new("tool_id", DataFlow::String, "The id of the tool.")
                .required()
                .excluded_from_bypass(),
            Slot::new("arguments", DataFlow::Object, arguments),
        ];
        let outputs = vec![
            Slot::new(
                "result",
                DataFlow::Wildcard,
                "What the tool gave; null if it failed.",
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
                "Why it failed: code, message, retryable; null if it did not.",
            )
            .excluded_from_bypass(),
        ];
        let continues =
            "Whether a failed call makes outputs (`status`, `error`) instead of failing the node.";
        let shape = Shape::new(inputs, outputs);
        let definition = NodeDefinition {
            description: "Calls a tool of the registry. A call that fails fails the node, unless the \
                          setting `continueOnError` is true.",
            category: "tools",
            config: vec![ConfigSlot {
                default: Some(json!(false)),
                ..ConfigSlot::new(CONTINUE_ON_ERROR, DataFlow::Boolean, continues)
            }],
            further_slots: FurtherSlots::NamedInputs,
            effects: NodeEffects::External,
            ..NodeDefinition::new("core:ExecuteTool", "Execute tool", shape)
        };
        Self { definition }
    }
}

impl Node for ExecuteTool {
    fn definition(&self) -> &NodeDefinition {
        &self.definition
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        check_flag(context.config, CONTINUE_ON_ERROR)?;
        Ok(open_shape(&self.definition.shape, context))
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let tool_id = call.text(TOOL_ID).unwrap_or("").to_owned();
        let arguments = combine(call, ARGUMENTS, ARGUMENTS + 1);
        Ok(Step::Effect(Effect::CallTool { tool_id, arguments }))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let continues = call
            .config
            .get(CONTINUE_ON_ERROR)
            .and_then(Value::as_bool)
            .unwrap_or(false);
        match settled {
            Settled::Tool { output, .. } => Ok(vec![
                Arc::new(output),
                Arc::new(json!("succeeded")),
                Arc::clone(&NULL),
            ]),
            Settled::ToolFailed { status, failure } if continues => {
                let error = json!({
                    "code": failure.code,
                    "message": failure.message,
                    "retryable": failure.retryable,
                });
                Ok(vec![
                    Arc::clone(&NULL),
                    Arc::new(json!(status)),
                    Arc::new(error),
                ])
            }
            Settled::ToolFailed { failure, .. } => Err(failure),
            Settled::Script { .. } | Settled::Model(_) => {
                Err(super::wrong_effect(&self.definition))
            }
        }
    }
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

/// Puts the object at `base` and all inputs from `first` on together; the inputs count.
pub(super) fn combine(call: NodeCall<'_>, base: usize, first: usize) -> Map<String, Value> {
    let mut combined = call
        .value(base)
        .and_then(|value| value.as_object())
        .cloned()
        .unwrap_or_default();
    for (slot, value) in call.shape.inputs.iter().zip(call.inputs).skip(first) {
        if let Some(value) = value {
            combined.insert(slot.key.to_string(), value.as_ref().clone());
        }
    }
    combined
}

/// Refuses a setting that should be true or false and is neither.
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
