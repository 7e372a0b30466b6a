//! `core:MatrixOperation`: calculation with matrices, by mode.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Number, Value};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition, NodeMode, NodeModes};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

const OPERATION_MODE: &str = "operationMode";
const MODES: [&str; 7] = [
    "add",
    "subtract",
    "multiply",
    "scale",
    "transpose",
    "determinant",
    "inverse",
];

/// The most rows, and the most columns.
const MAX_SIDE: usize = 128;

/// Rows of equal length, at least one of each.
type Matrix = Vec<Vec<f64>>;

/// Calculates with one or two matrices, given as arrays of rows.
#[derive(Debug)]
pub struct MatrixOperation;

fn matrix(key: &str, description: &str) -> Slot {
    Slot::new(key, DataFlow::Array, description).category("Matrix")
}

/// Returns the slots of a node in a mode.
fn shape_of(mode: &str) -> Shape {
    let mut inputs = vec![matrix("a", "The matrix.").required()];
    match mode {
        "add" | "subtract" | "multiply" => {
            inputs.push(matrix("b", "The other matrix.").required());
        }
        "scale" => {
            let factor = Slot::new("factor", DataFlow::Float, "The factor.");
            inputs.push(factor.required().excluded_from_bypass());
        }
        _ => {}
    }
    let result = match mode {
        "determinant" => Slot::new("result", DataFlow::Float, "The determinant."),
        _ => matrix("result", "The resulting matrix."),
    };
    Shape::new(inputs, vec![result])
}

/// Returns the slots of a node whose mode is not settled beforehand: the slots of all modes.
fn all_modes() -> Shape {
    let mode = Slot::new(OPERATION_MODE, DataFlow::String, "The calculation.")
        .suggest(MODES)
        .required()
        .excluded_from_bypass();
    let inputs = vec![
        mode,
        matrix("a", "The matrix.").required(),
        matrix("b", "The other matrix, for add, subtract and multiply."),
        Slot::new("factor", DataFlow::Float, "The factor, for scale.").excluded_from_bypass(),
    ];
    let result = "The resulting matrix, or the determinant.";
    Shape::new(
        inputs,
        vec![Slot::new("result", DataFlow::Wildcard, result)],
    )
}

impl Node for MatrixOperation {
    fn definition(&self) -> NodeDefinition {
        let modes = MODES.map(|id| NodeMode {
            id: id.into(),
            shape: shape_of(id),
        });
        NodeDefinition {
            description:
                "Calculates with matrices, which are arrays of rows of numbers, at most 128 \
                          rows and columns."
                    .into(),
            category: "math".into(),
            config: vec![ConfigSlot {
                options: MODES.map(Into::into).to_vec(),
                ..ConfigSlot::new(OPERATION_MODE, DataFlow::String, "The calculation.")
            }],
            modes: Some(NodeModes {
                config_key: OPERATION_MODE.into(),
                modes: modes.into(),
            }),
            ..NodeDefinition::new("core:MatrixOperation", "Matrix operation", all_modes())
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        match context.config.get(OPERATION_MODE) {
            None => Ok(context.definition.shape.clone()),
            Some(mode) if mode.as_str().is_some_and(|mode| MODES.contains(&mode)) => {
                Ok(shape_of(mode.as_str().unwrap_or_default()))
            }
            Some(mode) => {
                let name = mode.as_str().unwrap_or("");
                let pointer = format!("/configValues/{OPERATION_MODE}");
                let message = format!("there is no mode `{name}`");
                let violation = Violation::new(pointer, "unknown_mode", message);
                Err(vec![violation.nearest(name, MODES)])
            }
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let configured = call.config.get(OPERATION_MODE).and_then(Value::as_str);
        let named = call.named(OPERATION_MODE).and_then(|value| value.as_str());
        let a = read(call, "a")?;
        let result = match configured.or(named).unwrap_or("") {
            "add" => each(&a, &read(call, "b")?, |a, b| a + b).map(to_json)?,
            "subtract" => each(&a, &read(call, "b")?, |a, b| a - b).map(to_json)?,
            "multiply" => multiply(&a, &read(call, "b")?).map(to_json)?,
            "scale" => {
                let factor = call.named("factor").and_then(|factor| factor.as_f64());
                let factor = factor.ok_or_else(|| missing("factor"))?;
                let scaled = a
                    .iter()
                    .map(|row| row.iter().map(|item| item * factor).collect());
                to_json(scaled.collect())
            }
            "transpose" => {
                let rows = (0..a[0].len()).map(|at| a.iter().map(|row| row[at]).collect());
                to_json(rows.collect())
            }
            "determinant" => number(eliminate(square(a)?, Vec::new()).0),
            "inverse" => to_json(inverse(square(a)?)?),
            other => {
                let message = format!(
                    "there is no mode `{other}`; use one of {}",
                    MODES.join(", ")
                );
                return Err(Failure::invalid("unknown_mode", message));
            }
        };
        Ok(Step::Done(vec![Arc::new(result)]))
    }
}

fn missing(key: &str) -> Failure {
    Failure::invalid("missing_input", format!("this mode needs `{key}`"))
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::invalid("invalid_matrix", message)
}

fn read(call: NodeCall<'_>, key: &str) -> Result<Matrix, Failure> {
    let value = call.named(key).ok_or_else(|| missing(key))?;
    let rows = value.as_array().map_or(&[][..], Vec::as_slice);
    let columns = rows.first().and_then(Value::as_array).map_or(0, Vec::len);
    let sides = 1..=MAX_SIDE;
    if !sides.contains(&rows.len()) || !sides.contains(&columns) {
        return Err(wrong(format!(
            "`{key}` is not an array of 1 to {MAX_SIDE} rows of 1 to {MAX_SIDE} numbers"
        )));
    }
    let row_of = |row: &Value| -> Option<Vec<f64>> {
        let row = row.as_array().filter(|row| row.len() == columns)?;
        row.iter().map(Value::as_f64).collect()
    };
    let matrix: Option<Matrix> = rows.iter().map(row_of).collect();
    matrix.ok_or_else(|| {
        wrong(format!(
            "the rows of `{key}` are not numbers of equal count"
        ))
    })
}

fn each(a: &Matrix, b: &Matrix, calculate: impl Fn(f64, f64) -> f64) -> Result<Matrix, Failure> {
    if a.len() != b.len() || a[0].len() != b[0].len() {
        return Err(wrong("the matrices have different sizes"));
    }
    let row =
        |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| calculate(*a, *b)).collect();
    Ok(a.iter().zip(b).map(row).collect())
}

fn multiply(a: &Matrix, b: &Matrix) -> Result<Matrix, Failure> {
    if a[0].len() != b.len() {
        return Err(wrong("`a` has not as many columns as `b` has rows"));
    }
    let cell = |row: &Vec<f64>, at: usize| {
        row.iter()
            .zip(b)
            .map(|(item, other)| item * other[at])
            .sum()
    };
    let product = a
        .iter()
        .map(|row| (0..b[0].len()).map(|at| cell(row, at)).collect());
    Ok(product.collect())
}

fn square(a: Matrix) -> Result<Matrix, Failure> {
    if a.len() == a[0].len() {
        return Ok(a);
    }
    Err(wrong("the matrix has not as many rows as columns"))
}

fn inverse(a: Matrix) -> Result<Matrix, Failure> {
    let count = a.len();
    let unit = |at: usize| (0..count).map(|column| f64::from(column == at)).collect();
    let (determinant, inverse) = eliminate(a, (0..count).map(unit).collect());
    if determinant == 0.0 {
        let message = "the matrix has no inverse: its determinant is 0";
        return Err(Failure::invalid("undefined_result", message));
    }
    Ok(inverse)
}

/// Turns `a` into the unit matrix and applies the same steps to the rows of `with`, if it has any.
/// Returns the determinant of `a`, 0 where that is not possible, and the changed `with`.
fn eliminate(mut a: Matrix, mut with: Matrix) -> (f64, Matrix) {
    let count = a.len();
    let mut determinant = 1.0;
    for at in 0..count {
        let by_size =
            |one: &usize, other: &usize| a[*one][at].abs().total_cmp(&a[*other][at].abs());
        let Some(pivot) = (at..count).max_by(by_size).filter(|row| a[*row][at] != 0.0) else {
            return (0.0, with);
        };
        if pivot != at {
            a.swap(pivot, at);
            determinant = -determinant;
            if !with.is_empty() {
                with.swap(pivot, at);
            }
        }
        let divisor = a[at][at];
        determinant *= divisor;
        for row in [&mut a, &mut with]
            .into_iter()
            .filter_map(|matrix| matrix.get_mut(at))
        {
            row.iter_mut().for_each(|item| *item /= divisor);
        }
        for other in (0..count).filter(|other| *other != at) {
            let factor = a[other][at];
            for matrix in [&mut a, &mut with]
                .into_iter()
                .filter(|matrix| !matrix.is_empty())
            {
                let row = matrix[at].clone();
                for (item, own) in matrix[other].iter_mut().zip(row) {
                    *item -= factor * own;
                }
            }
        }
    }
    (determinant, with)
}

fn to_json(matrix: Matrix) -> Value {
    let row = |row: Vec<f64>| Value::Array(row.into_iter().map(number).collect());
    Value::Array(matrix.into_iter().map(row).collect())
}

/// Writes whole numbers without a fraction, and NaN and infinities as null.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9.0e15 {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
