//! `core:MapList`: the nodes inside, for each item of a list.

use std::sync::Arc;

use call_outcome::{Failure, Violation};
use serde_json::{Value, json};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{ConfigSlot, FurtherSlots, NodeDefinition, Reuse};
use workflow_domain::node_type::{Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::Shape;
use workflow_domain::zone::settings::MAP_LIST;

use super::loop_zone::{fixed_shape, reference_slot, run_zone, settle_zone, zone_shape};

/// Runs the nodes inside it for each item of a list, and keeps the order.
#[derive(Debug)]
pub struct MapList;

impl Node for MapList {
    fn definition(&self) -> NodeDefinition {
        let constants = "Inputs that each item sees unchanged: objects with `key`, `dataFlowType` and \
                         `default`.";
        let concurrency = "At most how many items are under way at once, from 1 to 256. Items whose \
                           nodes have no effects are computed one after the other.";
        let on_error = "Whether an item that fails ends the map, or is listed in `errors`.";
        let tolerated = "How many items may fail under `continue`: a number, or a part such as `10%`. \
                         Missing tolerates all.";
        NodeDefinition {
            description: "Runs the nodes inside it for each item of a list. Among them are one ZoneInput \
                          and one ZoneOutput. `results` has the order and length of the list. After a \
                          crash a map whose nodes have effects continues where it was; any other begins \
                          again.".into(),
            category: "control".into(),
            config: vec![
                reference_slot(),
                ConfigSlot::new("constants", DataFlow::Array, constants),
                ConfigSlot {
                    default: Some(json!(4)),
                    bounds: Some((0.0, 256.0)),
                    ..ConfigSlot::new("concurrency", DataFlow::Integer, concurrency)
                },
                ConfigSlot {
                    default: Some(json!("fail")),
                    options: vec!["fail".into(), "continue".into()],
                    ..ConfigSlot::new("onItemError", DataFlow::String, on_error)
                },
                ConfigSlot::new("toleratedFailures", DataFlow::Wildcard, tolerated),
            ],
            further_slots: FurtherSlots::Zone,
            reuse: Reuse::Never,
            ..NodeDefinition::new(MAP_LIST, "Map over a list", fixed_shape(MAP_LIST))
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        zone_shape(MAP_LIST, context)
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        Ok(run_zone(call))
    }

    fn settle(&self, _call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        settle_zone(&self.definition(), settled)
    }
}
