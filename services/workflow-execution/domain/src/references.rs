//! The names in a definition that have to resolve for its runs to succeed: tools, models, languages and node types of
//! plugins. Workflows are looked up when a definition is compiled.

use core_types::{Reference, ReferenceKind};
use serde_json::Value;

use super::limits::MAX_NAME_BYTES;
use super::plugin_node::plugin_of;
use super::tool_choice::{self, LLM, LLM_DECISION};
use super::workflow::{NodeEntry, Workflow};
use json_schema::pointer::join;

/// The settings that are references, by type of node.
const SETTINGS: [(&str, &str, ReferenceKind); 2] = [
    (LLM, "profileId", ReferenceKind::Model),
    (LLM_DECISION, "profileId", ReferenceKind::Model),
];

/// The inputs that are references, by type of node.
const INPUTS: [(&str, &str, ReferenceKind); 3] = [
    ("core:ExecuteTool", "tool_id", ReferenceKind::Tool),
    ("core:LlmApiRequest", "model", ReferenceKind::Model),
    ("core:Script", "language", ReferenceKind::Language),
];

/// The prefixes of the ids of tools that a workflow or a profile defines.
const OF_DOCUMENTS: [&str; 2] = ["workflow:", "agent:"];

/// Returns every name in a definition, with its place. `source` is the JSON that `workflow` was
/// read from. A preset value counts if no edge leads to its input.
pub fn references(workflow: &Workflow, source: &Value) -> Vec<Reference> {
    let tools = tool_choice::named(&workflow.nodes, source);
    let mut all: Vec<Reference> = tools
        .into_iter()
        .map(|(path, id)| Reference::new(path, ReferenceKind::Tool, id))
        .collect();
    for node in &workflow.nodes {
        if plugin_of(&node.full_type).is_some() && node.full_type.len() <= MAX_NAME_BYTES {
            let place = join(&node.pointer, workflow.form.type_key());
            let kind = ReferenceKind::NodeType;
            all.push(Reference::new(place, kind, node.full_type.as_str()));
        }
        let presets = join(&node.pointer, workflow.form.presets_key());
        let settings = join(&node.pointer, "configValues");
        for (full_type, key, kind) in SETTINGS {
            let value = node.config.get(key).filter(|_| node.full_type == full_type);
            all.extend(reference(&settings, key, kind, value));
        }
        for (full_type, key, kind) in INPUTS {
            let counts = node.full_type == full_type && !is_connected(workflow, node, key);
            let value = node.presets.get(key).filter(|_| counts);
            all.extend(reference(&presets, key, kind, value));
        }
    }
    all
}

/// Whether a missing tool may be defined by a workflow or a profile that is stored later.
pub fn may_come(tool_id: &str) -> bool {
    OF_DOCUMENTS
        .iter()
        .any(|prefix| tool_id.starts_with(prefix))
}

fn reference(
    place: &str,
    key: &str,
    kind: ReferenceKind,
    value: Option<&Value>,
) -> Option<Reference> {
    let id = value?.as_str().filter(|id| !id.is_empty())?;
    Some(Reference::new(join(place, key), kind, id))
}

fn is_connected(workflow: &Workflow, node: &NodeEntry, input: &str) -> bool {
    workflow
        .edges
        .iter()
        .any(|edge| edge.target == node.id && edge.target_handle.as_deref() == Some(input))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::load::load_with_source;

    #[test]
    fn everything_that_a_definition_names_has_its_place() {
        let node = |id: &str, full_type: &str, config: Value, presets: Value| json!({"id": id, "type": full_type, "configValues": config, "inputValues": presets});
        let definition = json!({
            "availableTools": {"initial": ["a"]},
            "nodes": [
                node("call", "core:ExecuteTool", json!({}), json!({"tool_id": "b"})),
                node("given", "core:ExecuteTool", json!({}), json!({"tool_id": "unused"})),
                node("ask", "core:LLM", json!({"profileId": "house", "toolIds": ["c"]}), json!({})),
                node("raw", "core:LlmApiRequest", json!({}), json!({"model": "spare"})),
                node("run", "core:Script", json!({}), json!({"language": "python3", "code": ""})),
                node("text", "core:TextMerge", json!({}), json!({"language": "none"})),
            ],
            "edges": [{"id": "e", "source": "text", "sourceHandle": "text", "target": "given",
                       "targetHandle": "tool_id"}],
        });
        let (loaded, source) = load_with_source(&definition.to_string());
        let workflow = loaded.workflow.unwrap();
        let found = references(&workflow, &source);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|reference| (reference.path.as_str(), reference.id.as_str()))
            .collect();
        let expected = [
            ("/availableTools/initial", "a"),
            ("/nodes/2/configValues/toolIds", "c"),
            ("/nodes/0/inputValues/tool_id", "b"),
            ("/nodes/2/configValues/profileId", "house"),
            ("/nodes/3/inputValues/model", "spare"),
            ("/nodes/4/inputValues/language", "python3"),
        ];
        assert_eq!(found, expected);
    }
}
