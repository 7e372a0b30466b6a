//! The outputs of a bypassed node.

use std::sync::Arc;

use serde_json::Value;

use super::data_flow::DataFlow;
use super::node_type::NodeCall;
use super::slot::Slot;

/// Returns the outputs of a bypassed node: for each output the first input value that is of its
/// type and not taken yet, else the empty value of the type. An output for one value gets the first
/// of an input for many.
pub fn pass_by(call: NodeCall<'_>) -> Vec<Arc<Value>> {
    let mut taken = vec![false; call.inputs.len()];
    let mut pass = |wanted: &Slot| {
        for (at, (slot, value)) in call.shape.inputs.iter().zip(call.inputs).enumerate() {
            if taken[at] || slot.excluded_from_bypass || wanted.excluded_from_bypass {
                continue;
            }
            if let Some(value) = value
                .as_deref()
                .and_then(|value| passed(slot, value, wanted))
            {
                taken[at] = true;
                return value;
            }
        }
        Arc::new(match wanted.multi || wanted.streams_values() {
            true => Value::Array(Vec::new()),
            false => wanted.data_flow.empty(),
        })
    };
    call.shape.outputs.iter().map(&mut pass).collect()
}

/// Returns the value of the output `wanted` for a value of the input `slot`.
fn passed(slot: &Slot, value: &Arc<Value>, wanted: &Slot) -> Option<Arc<Value>> {
    let takes_all = wanted.multi || wanted.data_flow.is_any();
    match value.as_ref() {
        Value::Array(_) if slot.multi && wanted.data_flow == DataFlow::Array => {
            Some(Arc::clone(value))
        }
        _ if wanted.streams_values() && !slot.is_stream => None,
        _ if wanted.is_stream && !slot.data_flow.flows_into(wanted.data_flow) => None,
        _ if !wanted.is_stream && !slot.whole().flows_into(wanted.data_flow) => None,
        Value::Array(items) if slot.multi && !takes_all => items.first().cloned().map(Arc::new),
        _ if wanted.multi && !slot.multi => None,
        _ => Some(Arc::clone(value)),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::{Map, json};

    use super::*;
    use crate::data_flow::DataFlow;
    use crate::slot::{Shape, Slot};

    #[track_caller]
    fn check(inputs: Vec<(Slot, Option<Value>)>, outputs: Vec<Slot>, expected: Value) {
        let (slots, values): (Vec<Slot>, Vec<Option<Value>>) = inputs.into_iter().unzip();
        let values: Vec<_> = values
            .into_iter()
            .map(|value| value.map(Arc::new).map(Cow::Owned))
            .collect();
        let shape = Shape::new(slots, outputs);
        let config = Map::new();
        let passed = pass_by(NodeCall {
            shape: &shape,
            config: &config,
            inputs: &values,
            id: "n",
            run_seed: 0,
            written: "",
        });
        let passed: Vec<Value> = passed.iter().map(|value| value.as_ref().clone()).collect();
        assert_eq!(json!(passed), expected);
    }

    fn slot(data_flow: DataFlow) -> Slot {
        Slot::new("slot", data_flow, "")
    }

    #[test]
    fn values_pass_to_outputs_of_their_type_and_the_rest_is_empty() {
        check(
            vec![
                (slot(DataFlow::Integer), Some(json!(3))),
                (slot(DataFlow::String), Some(json!("a"))),
            ],
            vec![
                slot(DataFlow::Object),
                slot(DataFlow::String),
                slot(DataFlow::String),
                slot(DataFlow::String),
            ],
            json!([{}, 3, "a", ""]),
        );
    }

    #[test]
    fn slots_that_are_excluded_neither_pass_nor_receive() {
        let text = || slot(DataFlow::String);
        check(
            vec![
                (text().excluded_from_bypass(), Some(json!("separator"))),
                (text(), Some(json!("a"))),
            ],
            vec![text().excluded_from_bypass(), text(), text()],
            json!(["", "a", ""]),
        );
    }

    #[test]
    fn of_many_values_one_output_gets_the_first_and_one_for_many_gets_all() {
        let many = |values: Value| (slot(DataFlow::String).multi(), Some(values));
        check(
            vec![many(json!(["a", "b"]))],
            vec![slot(DataFlow::String)],
            json!(["a"]),
        );
        check(
            vec![many(json!([]))],
            vec![slot(DataFlow::String)],
            json!([""]),
        );
        for output in [
            slot(DataFlow::Array),
            slot(DataFlow::Wildcard),
            slot(DataFlow::String).multi(),
        ] {
            check(
                vec![many(json!(["a", "b"]))],
                vec![output],
                json!([["a", "b"]]),
            );
        }
    }
}
