//! The tools that a workflow lets its models call: the tools of the workflow, and the tools that
//! one node adds (seed 003).

use std::sync::Arc;

use call_outcome::Violation;
use serde_json::{Map, Value};

use super::workflow::NodeEntry;
use json_schema::pointer::join;

/// The setting that names the tools of a node.
pub const TOOL_IDS: &str = "toolIds";

/// The type of a node that prepares, makes and reads one request to a model.
pub const LLM_DECISION: &str = "core:LLMDecisionWithTools";

/// The type of a node that calls a model and carries its calls out, until it requests none.
pub const LLM: &str = "core:LLM";

/// The type of a node that lists tools.
const AVAILABLE_TOOLS: &str = "core:AvailableTools";

/// The types of nodes that name tools.
const CHOOSING: [&str; 3] = [AVAILABLE_TOOLS, LLM_DECISION, LLM];

/// The id of the part of a composite node that lists its tools.
pub const LISTING_PART: &str = "tools";

/// The setting with the tools that one node adds.
pub(crate) const DYNAMIC: &str = "dynamicTools";

/// The keys of [`DYNAMIC`] that are read.
pub(crate) const DYNAMIC_KEYS: [&str; 2] = [TOOL_IDS, TEMPLATE];

const TEMPLATE: &str = "descriptionTemplate";

/// The most tools that a workflow or node names.
const MAX_TOOLS: usize = 500;

/// The tools that one node adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DynamicTools {
    /// Their ids.
    pub tool_ids: Vec<String>,
    /// The template of a tool's description for the model.
    pub template: Option<String>,
}

impl DynamicTools {
    /// Reads the setting `dynamicTools` of a node.
    ///
    /// # Errors
    /// All problems with it; pointers are relative to the node.
    pub fn read(config: &Map<String, Value>) -> Result<Self, Vec<Violation>> {
        let Some(given) = config.get(DYNAMIC).filter(|given| !given.is_null()) else {
            return Ok(Self::default());
        };
        let pointer = join("/configValues", DYNAMIC);
        let mut violations = Vec::new();
        let ids = given.get(TOOL_IDS).and_then(Value::as_array);
        let tool_ids = ids.and_then(|ids| texts(ids)).filter(|ids| !ids.is_empty());
        if tool_ids.is_none() {
            let message = format!("expected 1 to {MAX_TOOLS} tool ids in an array");
            let place = join(&pointer, TOOL_IDS);
            violations.push(Violation::new(place, "type_mismatch", message));
        }
        let template = match given.get(TEMPLATE) {
            None | Some(Value::Null) => None,
            Some(Value::String(template)) => Some(template.clone()),
            Some(_) => {
                let place = join(&pointer, TEMPLATE);
                violations.push(Violation::new(place, "type_mismatch", "expected a text"));
                None
            }
        };
        match violations.is_empty() {
            true => Ok(Self {
                tool_ids: tool_ids.unwrap_or_default(),
                template,
            }),
            false => Err(violations),
        }
    }
}

/// Reads `availableTools.initial` of a workflow: an array of ids, a set as some serialisers write it,
/// or an object whose keys are the ids.
///
/// # Errors
/// Its problems.
pub fn initial(root: &Map<String, Value>) -> Result<Vec<String>, Vec<Violation>> {
    let Some(given) = root
        .get("availableTools")
        .and_then(|tools| tools.get("initial"))
    else {
        return Ok(Vec::new());
    };
    let place = || "/availableTools/initial".to_owned();
    let lost = || {
        let message =
            "a set became `{}` when it was written as JSON, and its tools are lost; write an array";
        vec![Violation::new(place(), "lost_set", message)]
    };
    let ids = match given {
        Value::Null => return Ok(Vec::new()),
        Value::Array(ids) => texts(ids),
        Value::Object(fields) if fields.is_empty() => return Err(lost()),
        Value::Object(fields) if fields.get("type").and_then(Value::as_str) == Some("Set") => {
            fields
                .get("value")
                .and_then(Value::as_array)
                .and_then(|ids| texts(ids))
        }
        Value::Object(fields) => {
            let all = fields.values().all(|value| *value == Value::Bool(true));
            let ids = fields
                .keys()
                .cloned()
                .map(Value::String)
                .collect::<Vec<_>>();
            texts(&ids).filter(|_| all)
        }
        _ => None,
    };
    ids.ok_or_else(|| {
        let message = format!("expected at most {MAX_TOOLS} tool ids in an array");
        vec![Violation::new(place(), "type_mismatch", message)]
    })
}

/// Adds the tools of the workflow to nodes that name none.
pub fn inherit(nodes: &mut [NodeEntry], initial: &[String]) {
    for node in nodes {
        let chooses = CHOOSING.contains(&node.full_type.as_str());
        let named = node.config.get(TOOL_IDS).is_some_and(|ids| match ids {
            Value::Null => false,
            Value::Array(ids) => !ids.is_empty(),
            _ => true,
        });
        if chooses && !named && !initial.is_empty() {
            let ids = initial.iter().cloned().map(Value::String).collect();
            let config = Arc::make_mut(&mut node.config);
            config.insert(TOOL_IDS.to_owned(), Value::Array(ids));
        }
    }
}

/// Returns the ids that a definition names itself, each with its place.
pub fn named(nodes: &[NodeEntry], source: &Value) -> Vec<(String, String)> {
    let of_workflow = source.as_object().and_then(|root| initial(root).ok());
    let of_workflow = of_workflow.unwrap_or_default();
    let place = "/availableTools/initial".to_owned();
    let mut named: Vec<(String, String)> = of_workflow
        .iter()
        .map(|id| (place.clone(), id.clone()))
        .collect();
    let choose = |node: &&NodeEntry| CHOOSING.contains(&node.full_type.as_str());
    for node in nodes.iter().filter(choose) {
        let settings = join(&node.pointer, "configValues");
        let own = node.config.get(TOOL_IDS).and_then(Value::as_array);
        let own = own.and_then(|ids| texts(ids)).unwrap_or_default();
        let place = join(&settings, TOOL_IDS);
        let own = own.into_iter().filter(|id| !of_workflow.contains(id));
        named.extend(own.map(|id| (place.clone(), id)));
        let dynamic = DynamicTools::read(&node.config).unwrap_or_default();
        let place = join(&join(&settings, DYNAMIC), TOOL_IDS);
        named.extend(dynamic.tool_ids.into_iter().map(|id| (place.clone(), id)));
    }
    named
}

/// Returns the tools that a node of a workflow lists for a model, or without a path the tools of
/// all nodes; none if there is no such node. `nodes` are the nodes that run: groups and composite
/// nodes are replaced by their parts, and listing nodes without ids have the ids of the workflow.
pub fn listed(nodes: &[NodeEntry], path: &str) -> Option<Vec<String>> {
    let part = format!("{path}/{LISTING_PART}");
    let lists = |node: &&NodeEntry| {
        let named = path.is_empty() || node.id == path || node.id == part;
        node.full_type == AVAILABLE_TOOLS && named
    };
    let mut lists = nodes.iter().filter(lists).peekable();
    lists.peek()?;
    let ids = lists.filter_map(|node| node.config.get(TOOL_IDS)?.as_array());
    let ids: Vec<Value> = ids.flatten().cloned().collect();
    texts(&ids)
}

/// Returns the ids without repetitions.
fn texts(values: &[Value]) -> Option<Vec<String>> {
    let mut texts: Vec<String> = Vec::new();
    for value in values {
        let text = value.as_str().filter(|text| !text.is_empty())?;
        if !texts.iter().any(|known| known == text) {
            texts.push(text.to_owned());
        }
    }
    (texts.len() <= MAX_TOOLS).then_some(texts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tools_of_a_workflow_come_in_each_form_of_the_seed() {
        for (given, expected) in [
            (json!(["a", "b", "a"]), Ok(vec!["a", "b"])),
            (json!({"type": "Set", "value": ["a"]}), Ok(vec!["a"])),
            (json!({"a": true, "b": true}), Ok(vec!["a", "b"])),
            (json!([]), Ok(vec![])),
            (json!(null), Ok(vec![])),
            (json!({}), Err("lost_set")),
            (json!({"a": false}), Err("type_mismatch")),
            (json!([1]), Err("type_mismatch")),
            (json!("a"), Err("type_mismatch")),
        ] {
            let root = json!({"availableTools": {"initial": given}});
            let read = initial(root.as_object().unwrap());
            let read = read.map_err(|violations| violations[0].code.to_string());
            let expected = expected
                .map(|ids: Vec<&str>| ids.into_iter().map(str::to_owned).collect())
                .map_err(str::to_owned);
            assert_eq!(read, expected, "{root}");
        }
    }

    #[test]
    fn the_tools_of_a_node_are_checked_with_their_place() {
        for (given, expected) in [
            (
                json!({"toolIds": []}),
                vec!["/configValues/dynamicTools/toolIds"],
            ),
            (
                json!({"toolIds": "a", "descriptionTemplate": 1}),
                vec![
                    "/configValues/dynamicTools/toolIds",
                    "/configValues/dynamicTools/descriptionTemplate",
                ],
            ),
        ] {
            let config = Map::from_iter([("dynamicTools".to_owned(), given)]);
            let wrong = DynamicTools::read(&config).unwrap_err();
            let places: Vec<&str> = wrong.iter().map(|wrong| wrong.pointer.as_str()).collect();
            assert_eq!(places, expected);
        }
    }
}
