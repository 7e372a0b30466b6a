//! `core:AvailableTools`: lists the tools that a model may call.

use call_catalogue::Dialect;
use call_outcome::{Failure, Violation};
use call_prompt::prompt::{Detail, Language, render_tools};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use json_schema::pointer::join;
use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Effect, Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::tool;

/// The setting that names the tools.
pub const TOOL_IDS: &str = "toolIds";

/// Requests the descriptions of tools from the registry.
#[derive(Debug)]
pub struct AvailableTools;

impl Node for AvailableTools {
    fn definition(&self) -> NodeDefinition {
        let ids =
            "The ids of the tools; missing or empty for `availableTools.initial` of the workflow.";
        let outputs = vec![
            Slot::new(
                "tools",
                DataFlow::Array,
                "The tools: `name`, `description`, `parameters` and what they declare of their effects.",
            ),
            Slot::new(
                "manifest",
                DataFlow::String,
                "The same as the part of a prompt that teaches a model to call them.",
            ),
        ];
        NodeDefinition {
            description: "Lists tools of the registry, for a model to call. A tool that does not \
                          exist fails the node. Of a workflow that runs for an agent, what the \
                          agent's inventory lacks is left out."
                .into(),
            category: "tools".into(),
            config: vec![ConfigSlot {
                default: Some(json!([])),
                ..ConfigSlot::new(TOOL_IDS, DataFlow::Array, ids)
            }],
            effects: NodeEffects::ReadOnly,
            // The list depends on the agent for which the workflow runs.
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                "core:AvailableTools",
                "Available tools",
                Shape::new(Vec::new(), outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        match tool_ids(context.config) {
            Some(_) => Ok(context.definition.shape.clone()),
            None => Err(vec![Violation::new(
                join("/configValues", TOOL_IDS),
                "type_mismatch",
                "expected an array of tool ids",
            )]),
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let ids = tool_ids(call.config).unwrap_or_default();
        if ids.is_empty() {
            return Ok(Step::Done(listed(&[])?));
        }
        Ok(Step::Effect(Effect::DescribeTools(ids)))
    }

    fn settle(&self, _call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        match settled {
            Settled::Tools(tools) => listed(&tools),
            _ => Err(super::wrong_effect(&self.definition())),
        }
    }
}

fn listed(tools: &[Value]) -> Result<Vec<Arc<Value>>, Failure> {
    let catalogue = tool::catalogue(tools)?;
    let manifest = render_tools(&catalogue, Dialect::Action, Language::En, Detail::Full);
    Ok(vec![
        Arc::new(Value::Array(tools.to_vec())),
        Arc::new(manifest.text.into()),
    ])
}

/// Returns the ids of the settings without repetitions; none if they are not an array of texts.
fn tool_ids(config: &Map<String, Value>) -> Option<Vec<String>> {
    let mut ids: Vec<String> = Vec::new();
    let given = match config.get(TOOL_IDS) {
        None | Some(Value::Null) => return Some(ids),
        Some(given) => given.as_array()?,
    };
    for id in given {
        let id = id.as_str()?;
        if !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
    }
    Some(ids)
}
