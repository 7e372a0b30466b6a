//! `core:GroupOutput`: the outputs of the workflow.

use call_outcome::{Failure, Violation};
use workflow_domain::node_definition::{FurtherSlots, InterfaceRole, NodeDefinition, Reuse};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::Shape;

use super::group_input::{pass_through, present};

/// Takes the outputs of the run out of the graph. Its slots are the workflow's interface.
#[derive(Debug)]
pub struct GroupOutput;

impl Node for GroupOutput {
    fn definition(&self) -> NodeDefinition {
        let shape = Shape::new(Vec::new(), Vec::new());
        NodeDefinition {
            description: "Takes the outputs of the workflow. Its inputs are the workflow's interface outputs.".into(),
            category: "io".into(),
            further_slots: FurtherSlots::InterfaceOutputs,
            role: InterfaceRole::Exit,
            reuse: Reuse::Never,
            ..NodeDefinition::new("core:GroupOutput", "Group output", shape)
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let own = context.own_interface.map(|own| &own.outputs[..]);
        Ok(pass_through(own.unwrap_or(context.interface_outputs)))
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        Ok(Step::Branch(present(call)))
    }
}
