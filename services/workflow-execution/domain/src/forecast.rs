//! The most executions and effects of a run of a plan (rule W49).

use std::collections::VecDeque;

use serde_json::Value;

use super::node_definition::NodeEffects;
use super::plan::{Edges, NodeIndex, Plan, PlanNode};
use super::zone::settings::{MAX_ITEMS, ZoneKind, ZoneSettings};

/// The most executions and effects of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// The nodes in an order in which they may run.
    pub nodes: Vec<ForecastNode>,
    /// The most executions of nodes in all.
    pub max_executions: u64,
    /// The most of these executions that may change state outside the run.
    pub max_effects: u64,
}

/// A node of a forecast.
#[derive(Debug, PartialEq, Eq)]
pub struct ForecastNode {
    /// The id with the ids of the zones around it.
    pub path: String,
    /// The full type.
    pub full_type: String,
    /// Its effects beyond computing its outputs.
    pub effects: NodeEffects,
    /// Whether values pass by it.
    pub bypassed: bool,
    /// The tool, workflow or model that it uses, where the definition fixes that.
    pub uses: Option<String>,
    /// The most executions.
    pub max_executions: u64,
}

impl Forecast {
    /// Forecasts the runs of a plan.
    pub fn of(plan: &Plan) -> Self {
        let mut forecast = Self::default();
        forecast.add(plan, "", 1);
        forecast
    }

    fn add(&mut self, plan: &Plan, around: &str, times: u64) {
        for node in order(plan)
            .into_iter()
            .map(|node| &plan.nodes[node as usize])
        {
            let path = format!("{around}{}", node.id);
            let attempts = node.execution.as_ref();
            let attempts = attempts.map_or(1, |execution| execution.retry.max_attempts);
            let executions = match node.bypassed {
                true => 0,
                false => times.saturating_mul(u64::from(attempts)),
            };
            self.max_executions = self.max_executions.saturating_add(executions);
            let effects = node.definition().effects;
            if effects == NodeEffects::External {
                self.max_effects = self.max_effects.saturating_add(executions);
            }
            self.nodes.push(ForecastNode {
                full_type: node.definition().full_type.to_string(),
                effects,
                bypassed: node.bypassed,
                uses: uses(node),
                max_executions: executions,
                path: path.clone(),
            });
            if let Some(body) = &node.body {
                let times = executions.saturating_mul(iterations(node));
                self.add(body, &format!("{path}/"), times);
            }
        }
    }
}

/// Returns the nodes so that each follows the nodes that it needs.
fn order(plan: &Plan) -> Vec<NodeIndex> {
    let mut missing: Vec<u32> = plan.nodes.iter().map(|node| node.predecessors).collect();
    let numbered = (0..).zip(&missing);
    let ready = numbered.filter(|(_, missing)| **missing == 0);
    let mut ready: VecDeque<NodeIndex> = ready.map(|(node, _)| node).collect();
    let mut ordered = Vec::with_capacity(missing.len());
    while let Some(node) = ready.pop_front() {
        ordered.push(node);
        for successor in &plan.nodes[node as usize].successors {
            let left = &mut missing[*successor as usize];
            *left -= 1;
            if *left == 0 {
                ready.push_back(*successor);
            }
        }
    }
    ordered
}

/// Returns the value of an input that no edge can change.
fn fixed<'a>(node: &'a PlanNode, key: &str) -> Option<&'a Value> {
    let input = node.inputs.get(node.shape.input(key)?)?;
    match input.edges {
        Edges::None => input.fallback.as_deref(),
        _ => None,
    }
}

fn uses(node: &PlanNode) -> Option<String> {
    let of_input = ["tool_id", "model"]
        .into_iter()
        .find_map(|key| fixed(node, key));
    let named = of_input.or_else(|| node.config.get("workflowId"));
    named.and_then(Value::as_str).map(str::to_owned)
}

fn iterations(zone: &PlanNode) -> u64 {
    let settings = ZoneSettings::read(&zone.definition().full_type, &zone.config);
    match settings.map(|settings| settings.kind) {
        Ok(ZoneKind::Loop(settings)) => {
            let count = fixed(zone, "count").and_then(Value::as_u64);
            count.map_or(settings.max_iterations, |count| {
                count.min(settings.max_iterations)
            })
        }
        Ok(ZoneKind::Map(_)) => {
            let items = fixed(zone, "items").and_then(Value::as_array);
            items.map_or(MAX_ITEMS as u64, |items| items.len() as u64)
        }
        Err(_) => 0,
    }
}
