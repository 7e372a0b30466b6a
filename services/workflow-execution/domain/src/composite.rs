//! Node types that stand for several nodes (rule W32): before a run begins they are replaced by their
//! parts, as a group is by the nodes of its workflow.

mod budgets;
mod decision;
mod rounds;

use std::collections::BTreeSet;

use call_outcome::Violation;
use serde_json::{Map, Value, json};

use super::tool_choice::{DynamicTools, LLM, LLM_DECISION, TOOL_IDS};
use super::workflow::NodeEntry;
use json_schema::pointer::join;

pub use budgets::Budgets;

/// Whether nodes of a type are replaced by their parts.
pub fn is_composite(full_type: &str) -> bool {
    [LLM_DECISION, LLM].contains(&full_type)
}

/// Returns the parts of a composite node as a workflow, in a text of the storage form. `given` are
/// the inputs that have an edge or a preset value.
///
/// # Errors
/// All problems with its settings; pointers are relative to the node.
pub fn parts(node: &NodeEntry, given: &BTreeSet<String>) -> Result<String, Vec<Violation>> {
    let mut violations = Vec::new();
    let config = &node.config;
    if !config.get("profileId").is_some_and(Value::is_string) {
        let message = "the node names no model";
        let place = join("/configValues", "profileId");
        violations.push(Violation::new(place, "missing", message));
    }
    let mut wrong = |found| violations.extend(found);
    let dynamic = DynamicTools::read(config).unwrap_or_else(|found| {
        wrong(found);
        DynamicTools::default()
    });
    let budgets = Budgets::read(config).unwrap_or_else(|found| {
        wrong(found);
        Budgets::default()
    });
    if !violations.is_empty() {
        return Err(violations);
    }
    let choice = Choice {
        ids: tool_ids(config, &dynamic),
        described: json!({
            "dialect": setting(config, "dialect"),
            "descriptionTemplate": dynamic.template,
            "templateToolIds": dynamic.tool_ids,
        }),
        native: config.get("dialect").and_then(Value::as_str) == Some("native"),
    };
    let workflow = match node.full_type.as_str() {
        LLM => rounds::parts(config, &choice, &budgets, given),
        _ => decision::parts(config, &choice, given.contains("tools")),
    };
    Ok(workflow.to_string())
}

/// The tools of a composite node, and the form of their calls.
struct Choice {
    ids: Vec<Value>,
    /// The settings of the part that describes them: the template is for dynamic tools only.
    described: Value,
    native: bool,
}

fn tool_ids(config: &Map<String, Value>, dynamic: &DynamicTools) -> Vec<Value> {
    let ids = config.get(TOOL_IDS).and_then(Value::as_array);
    let mut ids = ids.cloned().unwrap_or_default();
    ids.extend(dynamic.tool_ids.iter().map(|id| json!(id)));
    ids
}

fn setting(config: &Map<String, Value>, key: &str) -> Value {
    config.get(key).cloned().unwrap_or(Value::Null)
}

fn edge(from: (&str, &str), to: (&str, &str)) -> Value {
    json!({"source": from.0, "sourceHandle": from.1, "target": to.0, "targetHandle": to.1})
}

fn of(data_flow: &str) -> Value {
    json!({"dataFlowType": data_flow})
}

fn chat() -> Value {
    json!({"dataFlowType": "ARRAY", "matchCategories": ["ChatHistory"]})
}
