//! Brings the values of a node's inputs together just before it runs.

use call_outcome::Failure;
use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::data_flow::{Input, Inputs, Mismatch, NULL, Values};
use super::interface::RunInputs;
use super::limits::MAX_VALUE_BYTES;
use super::plan::{Edges, ManyEdge, Plan, PlanInput, PlanNode, Source};
use super::size::weight;
use super::slot::Slot;
use super::stream_value::whole_of;

/// The outputs of the nodes that have run, by node.
pub type OutputTable = Vec<Option<Values>>;

/// Puts a value for each input of `node` in `plan` into `values`, where they are not moved again.
///
/// # Errors
/// A required input without a value, a value that does not fit, or too much at once.
pub fn gather<'a>(
    plan: &Plan,
    node: &'a PlanNode,
    inputs: &'a RunInputs,
    outputs: &'a OutputTable,
    values: &mut Inputs<'a>,
) -> Result<(), Failure> {
    values.reserve(node.inputs.len());
    for (slot, input) in node.shape.inputs.iter().zip(&node.inputs) {
        let fallback = || input.fallback.as_ref().map(Cow::Borrowed);
        let mut value = gather_one(plan, slot, input, inputs, outputs)?.or_else(fallback);
        if node.accepts_absent() {
            // The edges brought null, or no edge leads here.
            if value.is_none() && !is_absent(input, inputs, outputs) {
                value = Some(Cow::Borrowed(&*NULL));
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
    Ok(())
}

fn gather_one<'a>(
    plan: &Plan,
    slot: &Slot,
    input: &'a PlanInput,
    inputs: &'a RunInputs,
    outputs: &'a OutputTable,
) -> Result<Option<Input<'a>>, Failure> {
    match &input.edges {
        Edges::None => Ok(None),
        Edges::Whole(source) => Ok(fetch(source, inputs, outputs).map(Cow::Borrowed)),
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
        Edges::Many(edges) => {
            let made = match slot.first {
                true => gather_first(slot, edges, inputs, outputs)?,
                false => Some(gather_many(slot, edges, inputs, outputs)?),
            };
            Ok(made.map(Cow::Owned))
        }
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

/// Returns the place and the value of the first edge that brings a value.
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

fn unwrap(value: Input<'_>) -> Value {
    match value {
        Cow::Borrowed(shared) => shared.as_ref().clone(),
        Cow::Owned(made) => Arc::unwrap_or_clone(made),
    }
}

/// Returns the value of a source.
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

fn fit<'a>(slot: &Slot, value: &'a Arc<Value>) -> Result<Input<'a>, Failure> {
    if slot.takes_otherwise(value) {
        return Ok(Cow::Borrowed(value));
    }
    // A slot for many accepts any array if its values are of any type, so only the item is checked.
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
