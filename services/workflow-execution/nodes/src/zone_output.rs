//! `core:ZoneOutput`: takes values out of an iteration.

use call_outcome::{Failure, Violation};

use workflow_domain::node_definition::{FurtherSlots, InterfaceRole, NodeDefinition, Reuse};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::Shape;
use workflow_domain::zone::settings::ZONE_OUTPUT;

use super::group_input::{pass_through, present};

/// Takes values out of an iteration of the zone around it. Its slots follow that zone's settings.
#[derive(Debug)]
pub struct ZoneOutput;

impl Node for ZoneOutput {
    fn definition(&self) -> NodeDefinition {
        let shape = Shape::new(Vec::new(), Vec::new());
        NodeDefinition {
            description: "Takes what an iteration of the zone around it gives. A variable without a value keeps the one that it has.".into(),
            category: "control".into(),
            further_slots: FurtherSlots::SurroundingZone,
            role: InterfaceRole::Exit,
            reuse: Reuse::Never,
            ..NodeDefinition::new(ZONE_OUTPUT, "Zone output", shape)
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        Ok(pass_through(context.interface_outputs))
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        Ok(Step::Branch(present(call)))
    }
}
