//! `core:RunWorkflow`: runs another workflow as a run of its own.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Map, Value};

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{
    ConfigSlot, FurtherSlots, NodeDefinition, NodeEffects, Reuse,
};
use workflow_domain::node_type::{Effect, Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

use super::node_group::referenced;

const WORKFLOW_ID: &str = "workflowId";
const RUN_ID: &str = "run_id";

/// Calls the tool of a workflow, so that the child is a run below this one, cancelled with it and
/// never started twice.
#[derive(Debug)]
pub struct RunWorkflow;

impl RunWorkflow {
    /// The full type of the node.
    pub const FULL_TYPE: &str = "core:RunWorkflow";
}

fn run_id() -> Slot {
    Slot::new(RUN_ID, DataFlow::String, "The id of the child's run.").excluded_from_bypass()
}

impl Node for RunWorkflow {
    fn definition(&self) -> NodeDefinition {
        let workflow = "The id of the workflow to run.";
        NodeDefinition {
            description: "Runs another workflow as a run of its own and waits for its outputs. Its \
                          slots are the interface of that workflow; what streams there streams here.".into(),
            category: "control".into(),
            config: vec![ConfigSlot::new(WORKFLOW_ID, DataFlow::String, workflow)],
            further_slots: FurtherSlots::ReferencedWorkflow,
            effects: NodeEffects::External,
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                Self::FULL_TYPE,
                "Run workflow",
                Shape::new(Vec::new(), vec![run_id()]),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let mut shape = referenced(context, WORKFLOW_ID)?;
        if shape.output(RUN_ID).is_none() {
            let outputs = shape.outputs.iter().cloned().chain([run_id()]);
            shape.outputs = outputs.collect();
        }
        Ok(shape)
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let id = call.config.get(WORKFLOW_ID).and_then(Value::as_str);
        let inputs = call.given(0);
        let arguments: Map<String, Value> = inputs
            .map(|(slot, value)| (slot.key.to_string(), value.clone()))
            .collect();
        Ok(Step::Effect(Effect::CallTool {
            tool_id: format!("workflow:{}", id.unwrap_or_default()),
            arguments,
        }))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        match settled {
            Settled::Tool {
                mut output,
                child_run_id,
            } => {
                let mut keys = call.shape.outputs.iter().map(|slot| &*slot.key);
                let own = keys.by_ref().take_while(|key| *key != RUN_ID).next();
                if let Some(key) = own.filter(|_| call.shape.outputs.len() == 2) {
                    // The tool of a workflow with one output returns it bare.
                    output = Value::Object(Map::from_iter([(key.to_owned(), output)]));
                }
                let outputs = call.shape.outputs.iter().map(|slot| {
                    let taken = output.get_mut(&*slot.key).map(Value::take);
                    match taken {
                        Some(value) => Arc::new(value),
                        None if &*slot.key == RUN_ID => Arc::new(Value::from(&*child_run_id)),
                        None => Arc::clone(&NULL),
                    }
                });
                Ok(outputs.collect())
            }
            Settled::ToolFailed { failure, .. } => Err(failure),
            _ => Err(super::wrong_effect(&self.definition())),
        }
    }
}
