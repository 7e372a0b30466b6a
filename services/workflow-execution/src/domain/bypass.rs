//! What leaves a node that is switched off.

use std::sync::Arc;

use serde_json::Value;

use super::node_type::NodeCall;

/// Returns the outputs of a bypassed node: for each output the first input value that is of its
/// type and not taken yet, else the empty value of the type.
pub fn pass_by(call: NodeCall<'_>) -> Vec<Arc<Value>> {
    let mut taken = vec![false; call.inputs.len()];
    let mut pass = |wanted: &super::slot::Slot| {
        for (at, (slot, value)) in call.shape.inputs.iter().zip(call.inputs).enumerate() {
            let Some(value) = value else { continue };
            if !taken[at]
                && slot.multi == wanted.multi
                && slot.data_flow.flows_into(wanted.data_flow)
            {
                taken[at] = true;
                return Arc::clone(value);
            }
        }
        Arc::new(if wanted.multi {
            Value::Array(Vec::new())
        } else {
            wanted.data_flow.empty()
        })
    };
    call.shape.outputs.iter().map(&mut pass).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::domain::data_flow::DataFlow;
    use crate::domain::slot::{Shape, Slot};

    #[test]
    fn values_pass_to_outputs_of_their_type_and_the_rest_is_empty() {
        let shape = Shape::new(
            vec![
                Slot::new("count", DataFlow::Integer, ""),
                Slot::new("text", DataFlow::String, ""),
            ],
            vec![
                Slot::new("object", DataFlow::Object, ""),
                Slot::new("text", DataFlow::String, ""),
                Slot::new("more", DataFlow::String, ""),
                Slot::new("last", DataFlow::String, ""),
            ],
        );
        let inputs = [Some(Arc::new(json!(3))), Some(Arc::new(json!("a")))];
        let config = Map::new();
        let outputs = pass_by(NodeCall {
            shape: &shape,
            config: &config,
            inputs: &inputs,
        });
        assert_eq!(
            json!(
                outputs
                    .iter()
                    .map(|v| v.as_ref().clone())
                    .collect::<Vec<_>>()
            ),
            json!([{}, 3, "a", ""])
        );
    }
}
