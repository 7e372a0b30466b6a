//! The references of profiles and scenes to knowledge bases and goals (rule G106).

use serde_json::{Map, Value};

use crate::document::{DocumentReader, MAX_ID_BYTES};

/// The most references of one list.
const MAX_REFERENCES: usize = 100;
/// The priority of a goal that states none.
const DEFAULT_PRIORITY: f64 = 0.5;

/// Whether an agent writes into a knowledge base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    /// It does not.
    None,
    /// It suggests entries, which a person enables.
    Suggestions,
    /// It adds entries and changes its own.
    Own,
}

/// A knowledge base of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnowledgeReference {
    /// The knowledge base.
    pub source_id: String,
    /// The name by which the agent knows it; its id if the profile states none.
    pub alias: String,
    /// Whether the agent reads it.
    pub can_read: bool,
    /// Whether the agent writes into it.
    pub write: WriteAccess,
}

/// A goal that a profile or a scene assigns to an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalReference {
    /// The entry that describes it, and the id of the goal.
    pub caiu_id: String,
    /// The knowledge base of the entry, by alias or id; the first that has it if missing.
    pub kb: Option<String>,
    /// From 0 to 1.
    pub priority: f64,
}

/// Reads `knowledge_base_references` of a profile.
pub(crate) fn read_knowledge(
    reader: &mut DocumentReader,
    profile: &Map<String, Value>,
) -> Vec<KnowledgeReference> {
    let list = list(reader, profile, "", "knowledge_base_references");
    let mut references: Vec<KnowledgeReference> = Vec::new();
    for (place, object) in list {
        let source_id = named(reader, object, &place, "source_id");
        let alias = reader.optional_text(object, &place, "alias");
        let alias = alias.filter(|alias| !alias.is_empty());
        let alias = alias.unwrap_or_else(|| source_id.clone());
        if references.iter().any(|other| other.alias == alias) {
            let problem = format!("`{alias}` is the alias of another knowledge base");
            reader.problem(&format!("{place}/alias"), problem);
        }
        let permissions = object.get("access_permissions").and_then(Value::as_array);
        let has = |names: &[&str]| {
            let given = permissions.into_iter().flatten().filter_map(Value::as_str);
            given.into_iter().any(|name| names.contains(&name))
        };
        references.push(KnowledgeReference {
            source_id,
            alias,
            can_read: permissions.is_none() || has(&["read"]),
            write: match (
                has(&["write_caiu"]),
                has(&["write_suggestions", "suggest_edits"]),
            ) {
                (true, _) => WriteAccess::Own,
                (false, true) => WriteAccess::Suggestions,
                (false, false) => WriteAccess::None,
            },
        });
    }
    references
}

/// Reads a list of goals at a place of a profile or a scene.
pub(crate) fn read_goals(
    reader: &mut DocumentReader,
    object: &Map<String, Value>,
    above: &str,
    key: &str,
) -> Vec<GoalReference> {
    let mut goals: Vec<GoalReference> = Vec::new();
    for (place, object) in list(reader, object, above, key) {
        let caiu_id = named(reader, object, &place, "caiu_id");
        if goals.iter().any(|other| other.caiu_id == caiu_id) {
            let problem = format!("`{caiu_id}` is listed twice");
            reader.problem(&format!("{place}/caiu_id"), problem);
        }
        let kb = reader.optional_text(object, &place, "kb_alias_or_id");
        let priority = match object.get("activation_priority") {
            None | Some(Value::Null) => Some(DEFAULT_PRIORITY),
            Some(value) => value.as_f64().filter(|given| (0.0..=1.0).contains(given)),
        };
        if priority.is_none() {
            let problem = "give a number from 0 to 1";
            reader.problem(&format!("{place}/activation_priority"), problem);
        }
        goals.push(GoalReference {
            caiu_id,
            kb: kb.filter(|kb| !kb.is_empty()),
            priority: priority.unwrap_or(DEFAULT_PRIORITY),
        });
    }
    goals
}

/// Returns the objects of a list with their places.
fn list<'v>(
    reader: &mut DocumentReader,
    object: &'v Map<String, Value>,
    above: &str,
    key: &str,
) -> Vec<(String, &'v Map<String, Value>)> {
    let place = format!("{above}/{key}");
    let entries = match object.get(key) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(entries)) if entries.len() <= MAX_REFERENCES => entries,
        Some(_) => {
            let problem = format!("it is not a list of at most {MAX_REFERENCES} objects");
            reader.problem(&place, problem);
            return Vec::new();
        }
    };
    let mut objects = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let place = format!("{place}/{index}");
        match entry {
            Value::Object(object) => objects.push((place, object)),
            _ => reader.problem(&place, "it is not an object"),
        }
    }
    objects
}

fn named(
    reader: &mut DocumentReader,
    object: &Map<String, Value>,
    place: &str,
    key: &str,
) -> String {
    let id = object.get(key).and_then(Value::as_str).unwrap_or_default();
    if id.is_empty() || id.len() > MAX_ID_BYTES {
        let problem = format!("give a text of 1 to {MAX_ID_BYTES} bytes");
        reader.problem(&format!("{place}/{key}"), problem);
    }
    id.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::places;

    #[test]
    fn permissions_are_read_if_missing_and_suggestions_are_less_than_entries() {
        let of = |permissions: Value| {
            let profile = json!({"knowledge_base_references": [
                {"source_id": "kb", "alias": "lore", "access_permissions": permissions}]});
            let mut reader = DocumentReader::default();
            let read = read_knowledge(&mut reader, profile.as_object().unwrap());
            assert!(reader.problems.is_empty(), "{:?}", reader.problems);
            (read[0].can_read, read[0].write)
        };
        for (permissions, expected) in [
            (Value::Null, (true, WriteAccess::None)),
            (json!([]), (false, WriteAccess::None)),
            (json!(["read", "write_caiu"]), (true, WriteAccess::Own)),
            (
                json!(["write_suggestions"]),
                (false, WriteAccess::Suggestions),
            ),
            (
                json!(["suggest_edits", "write_caiu"]),
                (false, WriteAccess::Own),
            ),
        ] {
            assert_eq!(of(permissions.clone()), expected, "{permissions}");
        }
    }

    #[test]
    fn everything_wrong_with_references_is_named_with_its_place() {
        let profile = json!({
            "knowledge_base_references": [{"alias": "a"}, {"source_id": "kb", "alias": "a"}, 7],
            "initial_goals_reference": [
                {"caiu_id": "g", "activation_priority": 2}, {"caiu_id": "g"}, {}],
        });
        let mut reader = DocumentReader::default();
        let profile = profile.as_object().unwrap();
        read_knowledge(&mut reader, profile);
        let goals = read_goals(&mut reader, profile, "", "initial_goals_reference");
        assert_eq!(goals[1].priority, DEFAULT_PRIORITY);
        assert_eq!(
            places(&reader.problems),
            [
                "/knowledge_base_references/2",
                "/knowledge_base_references/0/source_id",
                "/knowledge_base_references/1/alias",
                "/initial_goals_reference/0/activation_priority",
                "/initial_goals_reference/1/caiu_id",
                "/initial_goals_reference/2/caiu_id"
            ]
        );
    }
}
