//! The waits of a plan's nodes.

use serde_json::Value;

use super::plan::Plan;
use super::wait::WAIT_SIGNAL;

/// Whether a node of the plan, or of a zone in it, can wait.
pub fn can_wait(plan: &Plan) -> bool {
    plan.nodes.iter().any(|node| {
        node.definition().waits || node.body.as_ref().is_some_and(|body| can_wait(body))
    })
}

/// Whether a zone of the plan, or of a zone in it, has a time limit.
pub fn has_timed_zones(plan: &Plan) -> bool {
    plan.nodes.iter().any(|node| {
        let execution = node.execution.as_ref();
        let timed = execution.is_some_and(|execution| {
            execution.timeout.is_some() || execution.total_timeout.is_some()
        });
        let body = node.body.as_ref();
        body.is_some_and(|body| timed || has_timed_zones(body))
    })
}

/// Returns the name and the schema of each signal that a node of the plan, or of a zone in it, waits for.
pub fn signals(plan: &Plan) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for node in &plan.nodes {
        if let Some(body) = &node.body {
            found.extend(signals(body));
        }
        let name = node.config.get("name").and_then(Value::as_str);
        if let Some(name) = name.filter(|_| node.definition().full_type == WAIT_SIGNAL) {
            let schema = node.config.get("schema").cloned().unwrap_or_default();
            found.push((name.to_owned(), schema));
        }
    }
    found
}
