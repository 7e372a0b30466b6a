//! `core:NodeGroup`: another workflow as a part of this one.

use call_outcome::{Failure, Violation};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::flatten::REFERENCE;
use workflow_domain::node_definition::{
    ConfigSlot, FurtherSlots, NodeDefinition, NodeEffects, Reuse,
};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::Shape;

/// A placeholder for the nodes of a workflow, which replace it before the run begins.
#[derive(Debug)]
pub struct NodeGroup;

impl Node for NodeGroup {
    fn definition(&self) -> NodeDefinition {
        let workflow = "The id of the workflow. A workflow in a file refers to other files.";
        NodeDefinition {
            description:
                "Puts the nodes of another workflow here. Its slots are the interface of that \
                          workflow, whose nodes run as part of this run."
                    .into(),
            category: "io".into(),
            config: vec![ConfigSlot::new(REFERENCE, DataFlow::String, workflow)],
            further_slots: FurtherSlots::ReferencedWorkflow,
            effects: NodeEffects::External,
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                "core:NodeGroup",
                "Node group",
                Shape::new(Vec::new(), Vec::new()),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        referenced(context, REFERENCE)
    }

    fn run(&self, _call: NodeCall<'_>) -> Result<Step, Failure> {
        let message = "a group is replaced by its nodes before a run begins";
        Err(Failure::new(
            call_outcome::Category::Internal,
            "not_flattened",
            message,
        ))
    }
}

/// Returns the interface of the workflow that a node refers to.
pub(super) fn referenced(context: &ShapeContext<'_>, key: &str) -> Result<Shape, Vec<Violation>> {
    context.own_interface.cloned().ok_or_else(|| {
        let message = "the workflow is only known where the node is part of a stored definition or \
                       of one that is given whole";
        vec![Violation::new(
            format!("/configValues/{key}"),
            "unknown_workflow",
            message,
        )]
    })
}
