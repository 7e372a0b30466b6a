//! `core:LoopZone`: repeats the nodes inside.

use std::sync::Arc;

use call_outcome::{Failure, Violation};
use serde_json::{Value, json};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::flatten::REFERENCE;
use workflow_domain::node_definition::{ConfigSlot, FurtherSlots, NodeDefinition, Reuse};
use workflow_domain::node_type::{Effect, Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::Shape;
use workflow_domain::zone::settings::{LOOP_ZONE, OUTER, ZoneSettings};
use workflow_domain::zone::split::outer_slot;

/// Repeats the nodes inside it and carries variables from one iteration to the next.
#[derive(Debug)]
pub struct LoopZone;

impl Node for LoopZone {
    fn definition(&self) -> NodeDefinition {
        let variables = "What one iteration hands to the next: objects with `key`, `dataFlowType` and \
                         `default`. Each is an input, the initial value, and an output, the last one; the \
                         output of a text with `isStream` is shown while an iteration writes it.";
        let constants = "Inputs that each iteration sees unchanged: objects with `key`, `dataFlowType` \
                         and `default`.";
        let collect = "What is kept of each iteration: objects with `key` and `dataFlowType`. Each is an \
                       output with an array of at most 10,000 values.";
        let before = "A condition in CEL on `inputs`, `vars` and `index`; the loop ends before an \
                      iteration for which it does not hold.";
        let until = "A condition in CEL on `inputs`, `vars` and `index`; the loop ends after the \
                     iteration with which it holds.";
        let most = "The most iterations, from 1 to 1000000.";
        let on_max = "Whether reaching `maxIterations` ends the loop or fails it.";
        NodeDefinition {
            description: "Repeats the nodes inside it, until `count`, `while`, `until`, `break` or \
                          `maxIterations` ends it. Among them are one ZoneInput and one ZoneOutput. After \
                          a crash a loop whose nodes have effects continues where it was; any other \
                          begins again.".into(),
            category: "control".into(),
            config: vec![
                reference_slot(),
                ConfigSlot::new("variables", DataFlow::Array, variables),
                ConfigSlot::new("constants", DataFlow::Array, constants),
                ConfigSlot::new("collect", DataFlow::Array, collect),
                ConfigSlot::new("while", DataFlow::String, before),
                ConfigSlot::new("until", DataFlow::String, until),
                ConfigSlot {
                    default: Some(json!(100)),
                    ..ConfigSlot::new("maxIterations", DataFlow::Integer, most)
                },
                ConfigSlot {
                    default: Some(json!("stop")),
                    options: vec!["stop".into(), "fail".into()],
                    ..ConfigSlot::new("onMax", DataFlow::String, on_max)
                },
            ],
            further_slots: FurtherSlots::Zone,
            reuse: Reuse::Never,
            ..NodeDefinition::new(LOOP_ZONE, "Loop", fixed_shape(LOOP_ZONE))
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        zone_shape(LOOP_ZONE, context)
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        Ok(run_zone(call))
    }

    fn settle(&self, _call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        settle_zone(&self.definition(), settled)
    }
}

/// The setting that names a workflow to repeat.
pub(super) fn reference_slot() -> ConfigSlot {
    let reference = "The id of a workflow that is repeated in the place of nodes inside: its interface \
                     inputs and outputs are those of a ZoneInput and a ZoneOutput.";
    ConfigSlot::new(REFERENCE, DataFlow::String, reference)
}

/// Returns the slots of a zone without settings.
pub(super) fn fixed_shape(full_type: &str) -> Shape {
    let settings = ZoneSettings::read(full_type, &serde_json::Map::new());
    settings.expect("no setting is required").shape()
}

/// Returns the slots of a zone: the slots of its settings, then the inputs that edges bring from
/// around it.
pub(super) fn zone_shape(
    full_type: &str,
    context: &ShapeContext<'_>,
) -> Result<Shape, Vec<Violation>> {
    let shape = ZoneSettings::read(full_type, context.config)?.shape();
    let outer = context
        .connected
        .iter()
        .filter(|key| key.starts_with(OUTER));
    let inputs = shape.inputs.iter().cloned();
    Ok(Shape {
        inputs: inputs.chain(outer.map(|key| outer_slot(key))).collect(),
        outputs: shape.outputs,
    })
}

/// Requests the iterations of a zone.
pub(super) fn run_zone(call: NodeCall<'_>) -> Step {
    let inputs = call.owned_inputs();
    Step::Effect(Effect::RunZone { inputs })
}

/// Returns the outputs of a zone.
pub(super) fn settle_zone(
    definition: &NodeDefinition,
    settled: Settled,
) -> Result<Vec<Arc<Value>>, Failure> {
    match settled {
        Settled::Zone(outputs) => Ok(outputs),
        _ => Err(super::wrong_effect(definition)),
    }
}
