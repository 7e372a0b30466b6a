//! `core:GroupInput`: the inputs of the workflow.

use call_outcome::{Failure, Violation};

use workflow_domain::data_flow::Values;
use workflow_domain::node_definition::{FurtherSlots, InterfaceRole, NodeDefinition, Reuse};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

/// Brings the inputs of the run into the graph. Its slots are the workflow's interface.
#[derive(Debug)]
pub struct GroupInput;

impl Node for GroupInput {
    fn definition(&self) -> NodeDefinition {
        let shape = Shape::new(Vec::new(), Vec::new());
        NodeDefinition {
            description: "Provides the inputs of the workflow. Its outputs are the workflow's interface inputs.".into(),
            category: "io".into(),
            further_slots: FurtherSlots::InterfaceInputs,
            role: InterfaceRole::Entry,
            reuse: Reuse::Never,
            ..NodeDefinition::new("core:GroupInput", "Group input", shape)
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        Ok(match context.own_interface {
            Some(own) => Shape::new(own.inputs.to_vec(), relaying(&own.inputs)),
            None => pass_through(context.interface_inputs),
        })
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        Ok(Step::Branch(present(call)))
    }
}

/// Makes a node whose outputs are its inputs. Required inputs were settled at the interface.
pub(super) fn pass_through(slots: &[Slot]) -> Shape {
    let inputs = slots
        .iter()
        .map(|slot| Slot {
            required: false,
            ..slot.clone()
        })
        .collect();
    Shape::new(inputs, relaying(slots))
}

/// Makes outputs of inputs, each relaying the input of its key.
fn relaying(slots: &[Slot]) -> Vec<Slot> {
    let relaying = |slot: &Slot| slot.clone().relaying(&slot.key);
    slots.iter().map(relaying).collect()
}

/// Returns the inputs as outputs; an absent input stays absent.
pub(super) fn present(call: NodeCall<'_>) -> Values {
    call.owned_inputs()
}
