//! `core:GroupOutput`: the outputs of the workflow.

use crate::domain::node_type::{Node, NodeCall, NodeDefinition, Role, ShapeContext, Step};
use crate::domain::slot::Shape;
use call_outcome::{Failure, Violation};

use super::group_input::{pass_through, present};

/// Takes the outputs of the run out of the graph. Its slots are the workflow's interface.
#[derive(Debug)]
pub struct GroupOutput {
    definition: NodeDefinition,
}

impl Default for GroupOutput {
    fn default() -> Self {
        let definition = NodeDefinition {
            full_type: "core:GroupOutput",
            display_name: "Group output",
            description: "Takes the outputs of the workflow. Its inputs are the workflow's interface outputs.",
            shape: Shape::new(Vec::new(), Vec::new()),
            pure: true,
            role: Role::Exit,
        };
        Self { definition }
    }
}

impl Node for GroupOutput {
    fn definition(&self) -> &NodeDefinition {
        &self.definition
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        Ok(pass_through(context.interface_outputs))
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        Ok(Step::Done(present(call)))
    }
}
