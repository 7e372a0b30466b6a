//! `core:FirstValue`: joins branches.

use call_outcome::Failure;
use std::sync::Arc;

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::{Shape, Slot};

const VALUES: usize = 0;

/// Takes the first value that exists, once all nodes that lead here have settled.
#[derive(Debug)]
pub struct FirstValue;

impl Node for FirstValue {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new(
                "values",
                DataFlow::Wildcard,
                "The values, in order; those that are absent are passed over.",
            )
            .first()
            .required(),
        ];
        let outputs = vec![
            Slot::new(
                "value",
                DataFlow::Wildcard,
                "The first value that is there.",
            ),
            Slot::new("index", DataFlow::Integer, "Its place, from 0.").excluded_from_bypass(),
        ];
        NodeDefinition {
            description:
                "Joins branches: gives the first value that is there. It is skipped if none \
                          is."
                .into(),
            category: "control".into(),
            ..NodeDefinition::new(
                "core:FirstValue",
                "First value",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let pair = call.value(VALUES).and_then(|pair| pair.as_array());
        let at = |place: usize| {
            let value = pair.and_then(|pair| pair.get(place)).cloned();
            value.map_or_else(|| Arc::clone(&NULL), Arc::new)
        };
        Ok(Step::Done(vec![at(1), at(0)]))
    }
}
