//! Brings the values of a node's inputs together just before it runs.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::Value;

use super::data_flow::{Mismatch, NULL, Values};
use super::interface::RunInputs;
use super::limits::MAX_VALUE_BYTES;
use super::plan::{Edges, ManyEdge, Plan, PlanInput, PlanNode, Source};
use super::size::weight;
use super::slot::Slot;
use super::stream_value::whole_of;

/// The outputs of the nodes that have run, by node.
pub type OutputTable = Vec<Option<Values>>;

/// Returns a value for each input of `node` in `plan`.
///
/// # Errors
/// A required input without a value, a value that does not fit, or too much at once.
pub fn gather(
    plan: &Plan,
    node: &PlanNode,
    inputs: &RunInputs,
    outputs: &OutputTable,
) -> Result<Values, Failure> {
    let mut values = Values::with_capacity(node.inputs.len());
    for (slot, input) in node.shape.inputs.iter().zip(&node.inputs) {
        let mut value =
            gather_one(plan, slot, input, inputs, outputs)?.or_else(|| input.fallback.clone());
        if node.accepts_absent() {
            // What leads here brought null, or nothing leads here.
            if value.is_none() && !is_absent(input, inputs, outputs) {
                value = Some(Arc::clone(&NULL));
            }
        } else if value.is_none() && slot.required && !node.bypassed {
            let message = format!(
                "input `{}` is required and what leads to it brought nothing",
                slot.key
            );
            return Err(Failure::invalid("missing_input", message).detail("slot", &*slot.key));
        }
        values.push(value);
    }
    Ok(values)
}

fn gather_one(
    plan: &Plan,
    slot: &Slot,
    input: &PlanInput,
    inputs: &RunInputs,
    outputs: &OutputTable,
) -> Result<Option<Arc<Value>>, Failure> {
    match &input.edges {
        Edges::None => Ok(None),
        Edges::Whole(source) => Ok(fetch(source, inputs, outputs).cloned()),
        Edges::One(source) => match fetch(source, inputs, outputs) {
            Some(value) if slot.is_stream && !value.is_null() => {
                let is_stream = plan.output_of(source).is_some_and(|from| from.is_stream);
                let whole = whole_of(slot, value, is_stream);
                whole
                    .map(Some)
                    .map_err(|mismatch| mistyped(slot, &mismatch))
            }
            Some(value) if !value.is_null() || slot.data_flow.is_any() => {
                fit(slot, value).map(Some)
            }
            _ => Ok(None),
        },
        Edges::Many(edges) if slot.first => gather_first(slot, edges, inputs, outputs),
        Edges::Many(edges) => gather_many(slot, edges, inputs, outputs).map(Some),
    }
}

/// Whether edges lead to an input and none of them brings a value (rule W7).
pub fn is_absent(input: &PlanInput, inputs: &RunInputs, outputs: &OutputTable) -> bool {
    let absent = |source: &Source| fetch(source, inputs, outputs).is_none();
    match &input.edges {
        Edges::None | Edges::Whole(_) => false,
        Edges::One(source) => absent(source),
        Edges::Many(edges) => edges.iter().all(|edge| absent(&edge.source)),
    }
}

/// Returns the place and the value of the first edge that brings one.
fn gather_first(
    slot: &Slot,
    edges: &[ManyEdge],
    inputs: &RunInputs,
    outputs: &OutputTable,
) -> Result<Option<Arc<Value>>, Failure> {
    for (place, edge) in edges.iter().enumerate() {
        if let Some(value) = fetch(&edge.source, inputs, outputs) {
            let value = unwrap(fit(slot, value)?);
            return Ok(Some(Arc::new(Value::Array(vec![
                Value::from(place),
                value,
            ]))));
        }
    }
    Ok(None)
}

fn gather_many(
    slot: &Slot,
    edges: &[ManyEdge],
    inputs: &RunInputs,
    outputs: &OutputTable,
) -> Result<Arc<Value>, Failure> {
    let mut items = Vec::with_capacity(edges.len());
    let mut bytes = 0;
    for edge in edges {
        let Some(value) = fetch(&edge.source, inputs, outputs) else {
            continue;
        };
        bytes += weight(value);
        if bytes > MAX_VALUE_BYTES {
            let message = format!(
                "the values of input `{}` have more than {MAX_VALUE_BYTES} bytes together",
                slot.key
            );
            return Err(Failure::limit("value_too_large", message).detail("slot", &*slot.key));
        }
        match value.as_ref() {
            Value::Null if edge.spread => {}
            Value::Array(parts) if edge.spread => {
                for part in parts {
                    items.push(unwrap(fit(slot, &Arc::new(part.clone()))?));
                }
            }
            Value::Null => items.push(Value::Null),
            _ => items.push(unwrap(fit(slot, value)?)),
        }
    }
    Ok(Arc::new(Value::Array(items)))
}

fn unwrap(value: Arc<Value>) -> Value {
    Arc::try_unwrap(value).unwrap_or_else(|shared| shared.as_ref().clone())
}

/// Returns what a source holds.
pub fn fetch<'a>(
    source: &'a Source,
    inputs: &'a RunInputs,
    outputs: &'a OutputTable,
) -> Option<&'a Arc<Value>> {
    match source {
        Source::Absent => None,
        Source::Constant(value) => Some(value),
        Source::RunInput(at) => inputs.get(*at as usize)?.as_ref(),
        Source::Output { node, slot } => outputs
            .get(*node as usize)?
            .as_ref()?
            .get(*slot as usize)?
            .as_ref(),
    }
}

fn fit(slot: &Slot, value: &Arc<Value>) -> Result<Arc<Value>, Failure> {
    if slot.takes_otherwise(value) {
        return Ok(Arc::clone(value));
    }
    // A slot for many takes any array where its values are of any type, so only the item is checked.
    slot.data_flow
        .fit(value)
        .map_err(|mismatch| mistyped(slot, &mismatch))
}

fn mistyped(slot: &Slot, mismatch: &Mismatch) -> Failure {
    let message = format!(
        "input `{}` takes {}, but {} came",
        slot.key, mismatch.expected, mismatch.received
    );
    Failure::invalid("type_mismatch", message).detail("slot", &*slot.key)
}
