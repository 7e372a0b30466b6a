//! `core:MathOperation`: arithmetic by mode.

mod mode;

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Number, Value, json};

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition, NodeMode, NodeModes};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

use mode::Mode;

/// The setting, and for a node that is run by itself the input, that selects the mode.
const OPERATION_MODE: &str = "operationMode";

/// Calculates with one, two or three numbers.
///
/// A node in a workflow has the operands of its mode. Where the mode is not settled beforehand, as
/// when the node is run by itself, it has the operands of all modes and an input for the mode.
#[derive(Debug)]
pub struct MathOperation;

/// Returns the slots of a node in a mode.
fn shape_of(mode: &Mode) -> Shape {
    let operands = mode.operands.iter();
    let mut inputs: Vec<Slot> = operands
        .map(|operand| Slot::new(operand.key, DataFlow::Float, operand.description))
        .collect();
    inputs.push(clamp());
    Shape::new(inputs, vec![result()])
}

fn clamp() -> Slot {
    Slot::new(
        "clamp",
        DataFlow::Boolean,
        "Holds the result between 0 and 1.",
    )
    .excluded_from_bypass()
    .default(json!(false))
}

fn result() -> Slot {
    Slot::new(
        "result",
        DataFlow::Float,
        "The result; null where it is not a number.",
    )
}

impl Node for MathOperation {
    fn definition(&self) -> NodeDefinition {
        let names: Vec<&'static str> = Mode::ALL.iter().map(|mode| mode.name).collect();
        let described = format!("The calculation: one of {}.", names.join(", "));
        let mut inputs = vec![
            Slot::new(OPERATION_MODE, DataFlow::String, &described)
                .default(json!("add"))
                .suggest(names.iter().copied())
                .excluded_from_bypass(),
        ];
        for operand in Mode::ALL.iter().flat_map(|mode| mode.operands) {
            if !inputs.iter().any(|slot| &*slot.key == operand.key) {
                inputs.push(Slot::new(operand.key, DataFlow::Float, operand.description));
            }
        }
        inputs.push(clamp());
        let setting = "The calculation. Missing leaves the choice to the input of the same name.";
        let modes = Mode::ALL.iter().map(|mode| NodeMode {
            id: mode.name.into(),
            shape: shape_of(mode),
        });
        NodeDefinition {
            description: "Calculates with numbers. A missing operand counts as 0.".into(),
            category: "math".into(),
            config: vec![ConfigSlot {
                options: names.into_iter().map(Into::into).collect(),
                ..ConfigSlot::new(OPERATION_MODE, DataFlow::String, setting)
            }],
            modes: Some(NodeModes {
                config_key: OPERATION_MODE.into(),
                modes: modes.collect(),
            }),
            ..NodeDefinition::new(
                "core:MathOperation",
                "Math operation",
                Shape::new(inputs, vec![result()]),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let Some(setting) = context.config.get(OPERATION_MODE) else {
            return Ok(context.definition.shape.clone());
        };
        let name = setting.as_str().unwrap_or("");
        let mut modes = context
            .definition
            .modes
            .iter()
            .flat_map(|modes| &modes.modes);
        let Some(mode) = modes.find(|mode| mode.id == name) else {
            let pointer = format!("/configValues/{OPERATION_MODE}");
            let violation = Violation::new(
                pointer,
                "unknown_mode",
                format!("there is no mode `{name}`"),
            );
            return Err(vec![
                violation.nearest(name, Mode::ALL.iter().map(|mode| mode.name)),
            ]);
        };
        Ok(mode.shape.clone())
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let configured = call.config.get(OPERATION_MODE).and_then(Value::as_str);
        let named = call.named(OPERATION_MODE).and_then(|value| value.as_str());
        let name = configured.or(named).unwrap_or("add");
        let Some(mode) = Mode::by_name(name) else {
            let message =
                format!("there is no mode `{name}`; see the description of `{OPERATION_MODE}`");
            return Err(Failure::invalid("unknown_mode", message));
        };
        let mut numbers = [0.0; 3];
        for (number, operand) in numbers.iter_mut().zip(mode.operands) {
            *number = call
                .named(operand.key)
                .and_then(|value| value.as_f64())
                .unwrap_or(operand.default);
        }
        let mut value = (mode.calculate)(numbers)
            .map_err(|message| Failure::invalid("undefined_result", message))?;
        if call
            .named("clamp")
            .is_some_and(|clamp| clamp.as_bool() == Some(true))
            && !value.is_nan()
        {
            value = value.clamp(0.0, 1.0);
        }
        if value.is_infinite() {
            return Err(Failure::invalid(
                "undefined_result",
                format!("the result of `{name}` is too large"),
            ));
        }
        Ok(Step::Done(vec![number(value)]))
    }
}

/// Writes whole numbers without a fraction, as long as they are exact, and NaN as null.
fn number(value: f64) -> Arc<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Arc::new(Value::Number(Number::from(value as i64)));
    }
    Number::from_f64(value).map_or_else(
        || Arc::clone(&NULL),
        |number| Arc::new(Value::Number(number)),
    )
}
