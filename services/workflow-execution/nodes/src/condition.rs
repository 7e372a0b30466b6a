//! `core:Condition`: passes a value to one of two outputs.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Map, Value};
use smallvec::smallvec;

use json_schema::pointer::join;
use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{ConfigSlot, FurtherSlots, NodeDefinition};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

use super::execute_tool::open_shape;

const VALUE: usize = 0;
const CONDITION: &str = "condition";

/// The variables that an expression of a node sees.
pub(super) const VARIABLES: &[&str] = &["inputs"];

/// Passes its value to one of two outputs and leaves the other absent.
#[derive(Debug)]
pub struct Condition;

impl Node for Condition {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![value_slot()];
        let outputs = vec![
            Slot::new(
                "then",
                DataFlow::Wildcard,
                "The value, if the condition holds; else absent.",
            ),
            Slot::new(
                "else",
                DataFlow::Wildcard,
                "The value, if the condition does not hold; else absent.",
            ),
            Slot::new("matched", DataFlow::Boolean, "Whether the condition holds.")
                .excluded_from_bypass(),
        ];
        let condition = "The condition in CEL, such as `inputs.value > 3`. It sees all inputs by name \
                         in `inputs`.";
        NodeDefinition {
            description: "Passes its value on to `then` or to `else`. Nodes that need the other \
                          output are skipped. An error in the condition fails the node."
                .into(),
            category: "control".into(),
            config: vec![ConfigSlot::new(CONDITION, DataFlow::String, condition)],
            further_slots: FurtherSlots::NamedInputs,
            ..NodeDefinition::new("core:Condition", "Condition", Shape::new(inputs, outputs))
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        check_expression(context.config, CONDITION, true)?;
        Ok(open_shape(&context.definition.shape, context))
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let matched = holds(call, CONDITION)?;
        let value = Some(value_of(call));
        let matched_output = Some(Arc::new(Value::Bool(matched)));
        Ok(Step::Branch(match matched {
            true => smallvec![value, None, matched_output],
            false => smallvec![None, value, matched_output],
        }))
    }
}

/// The input that a branching node passes on.
pub(super) fn value_slot() -> Slot {
    Slot::new(
        "value",
        DataFlow::Wildcard,
        "The value to pass on; null if nothing is connected.",
    )
}

/// Returns the value of the first input.
pub(super) fn value_of(call: NodeCall<'_>) -> Arc<Value> {
    Arc::clone(call.value(VALUE).unwrap_or(&NULL))
}

/// Evaluates the condition of a setting on the inputs.
pub(super) fn holds(call: NodeCall<'_>, key: &str) -> Result<bool, Failure> {
    let source = call.config.get(key).and_then(Value::as_str).unwrap_or("");
    let inputs = call.inputs_by_name();
    cel_guard::holds(source, &[("inputs", &inputs)]).map_err(|problem| failed(key, &problem))
}

/// Makes the failure of an expression without a result.
pub(super) fn failed(key: &str, problem: &str) -> Failure {
    let message = format!("`{key}` has no result: {problem}");
    Failure::invalid("condition_failed", message)
}

/// Checks the expression of a setting when the workflow is validated.
pub(super) fn check_expression(
    config: &Map<String, Value>,
    key: &str,
    required: bool,
) -> Result<(), Vec<Violation>> {
    let pointer = join("/configValues", key);
    let refuse = |code: &'static str, message: String| {
        Err(vec![Violation::new(pointer.clone(), code, message)])
    };
    match config.get(key) {
        None | Some(Value::Null) if !required => Ok(()),
        Some(Value::String(source)) if !source.is_empty() => cel_guard::check(source, VARIABLES)
            .or_else(|problem| refuse("invalid_condition", problem)),
        None | Some(Value::Null | Value::String(_)) => refuse(
            "missing",
            format!("there is no `{key}`; give an expression in CEL"),
        ),
        Some(_) => refuse("type_mismatch", format!("`{key}` is not a string")),
    }
}
