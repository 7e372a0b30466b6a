//! `core:Switch`: passes a value to one of several outputs.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::Value;

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{ConfigSlot, FurtherSlots, NodeDefinition};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

use super::condition::{check_expression, failed, value_of, value_slot};
use super::execute_tool::open_shape;

const EXPRESSION: &str = "expression";
const CASES: &str = "cases";
const DEFAULT: &str = "default";

/// The most cases of one node.
const MAX_CASES: usize = 100;

/// Passes its value to the output of the first case that equals the expression.
#[derive(Debug)]
pub struct Switch;

fn default_slot() -> Slot {
    Slot::new(
        DEFAULT,
        DataFlow::Wildcard,
        "The value, if no case equals the expression; else absent.",
    )
}

impl Node for Switch {
    fn definition(&self) -> NodeDefinition {
        let expression = "The expression in CEL, such as `inputs.kind`. It sees all inputs by name in \
                          `inputs`.";
        let cases = "The cases in order, each with the key of its output and the value that it stands \
                     for: `[{\"key\": \"small\", \"equals\": 1}]`.";
        NodeDefinition {
            description:
                "Passes its value on to the output of the first case whose `equals` is the \
                          result of the expression, else to `default`. Nodes that need another \
                          output are skipped."
                    .into(),
            category: "control".into(),
            config: vec![
                ConfigSlot::new(EXPRESSION, DataFlow::String, expression),
                ConfigSlot::new(CASES, DataFlow::Array, cases),
            ],
            further_slots: FurtherSlots::Cases,
            ..NodeDefinition::new(
                "core:Switch",
                "Switch",
                Shape::new(vec![value_slot()], vec![default_slot()]),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let mut violations = check_expression(context.config, EXPRESSION, true)
            .err()
            .unwrap_or_default();
        let mut outputs: Vec<Slot> = Vec::new();
        for (at, case) in cases(context.config.get(CASES)).iter().enumerate() {
            let pointer = format!("/configValues/{CASES}/{at}");
            let key = case.get("key").and_then(Value::as_str).unwrap_or("");
            let taken = key == DEFAULT || outputs.iter().any(|slot| &*slot.key == key);
            if key.is_empty() || case.get("equals").is_none() {
                let message = "a case has a `key` and the value that it `equals`";
                violations.push(Violation::new(pointer, "missing", message));
            } else if taken {
                let message = format!("another output has the key `{key}`");
                violations.push(Violation::new(pointer, "duplicate_key", message));
            } else {
                let description = format!("The value, in the case `{key}`; else absent.");
                outputs.push(Slot::new(key, DataFlow::Wildcard, &description));
            }
        }
        if !(1..=MAX_CASES).contains(&outputs.len()) && violations.is_empty() {
            let message = format!("give an array of 1 to {MAX_CASES} cases");
            let pointer = format!("/configValues/{CASES}");
            violations.push(Violation::new(pointer, "out_of_range", message));
        }
        if !violations.is_empty() {
            return Err(violations);
        }
        outputs.push(default_slot());
        let mut shape = open_shape(&context.definition.shape, context);
        shape.outputs = outputs.into();
        Ok(shape)
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let source = call.config.get(EXPRESSION).and_then(Value::as_str);
        let inputs = call.inputs_by_name();
        let result = cel_guard::evaluate(source.unwrap_or(""), &[("inputs", &inputs)])
            .map_err(|problem| failed(EXPRESSION, &problem))?;
        let cases = cases(call.config.get(CASES));
        let equal = |case: &Value| case.get("equals").is_some_and(|value| same(value, &result));
        let taken = cases.iter().position(equal).unwrap_or(cases.len());
        let value = value_of(call);
        let outputs = (0..call.shape.outputs.len())
            .map(|at| (at == taken).then(|| Arc::clone(&value)))
            .collect();
        Ok(Step::Branch(outputs))
    }
}

fn cases(setting: Option<&Value>) -> &[Value] {
    setting.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether two values are equal; numbers are compared by value.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other).is_eq(),
        _ => one == other,
    }
}
