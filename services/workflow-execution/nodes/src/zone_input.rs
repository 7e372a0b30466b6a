//! `core:ZoneInput`: brings values into an iteration.

use call_outcome::{Failure, Violation};

use workflow_domain::node_definition::{FurtherSlots, InterfaceRole, NodeDefinition, Reuse};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::Shape;
use workflow_domain::zone::settings::ZONE_INPUT;

use super::group_input::{pass_through, present};

/// Brings values into an iteration of the zone around it. Its slots follow that zone's settings.
#[derive(Debug)]
pub struct ZoneInput;

impl Node for ZoneInput {
    fn definition(&self) -> NodeDefinition {
        let shape = Shape::new(Vec::new(), Vec::new());
        NodeDefinition {
            description: "Provides what an iteration of the zone around it is given.".into(),
            category: "control".into(),
            further_slots: FurtherSlots::SurroundingZone,
            role: InterfaceRole::Entry,
            reuse: Reuse::Never,
            ..NodeDefinition::new(ZONE_INPUT, "Zone input", shape)
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        Ok(pass_through(context.interface_inputs))
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        Ok(Step::Branch(present(call)))
    }
}
