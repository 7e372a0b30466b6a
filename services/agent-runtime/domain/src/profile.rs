//! Agent profiles: ComfyTavern's `agent_profile.json`, unmodified.
//!
//! Every key that ComfyTavern defines may be present, and any other; all are kept. Tavern's own
//! settings are under `custom_metadata.tavern`, the place that the format leaves to others:
//!
//! ```json
//! {"model": "house", "dialect": "action", "language": "en", "system_prompt": "You are ..."}
//! ```
//!
//! Profiles come from people, so all problems of one are reported together. A key without effect is
//! kept, and its use is a finding, as is a key that nothing reads.

mod approvals;
mod references;
mod remarks;
mod tavern;

use core_types::{LoadDiagnostic, ProfileId};
use json_schema::Schema;
use serde_json::{Map, Value};

pub use self::tavern::TavernSection;
pub(crate) use self::tavern::read_section;
use super::{
    document::{self, DocumentError, DocumentReader},
    knowledge::{self, GoalReference, KnowledgeReference},
    state::{self, MAX_PRIVATE_BYTES, StateError},
    subscription::{self, Subscription},
};

/// The largest profile that is read, in bytes.
pub const MAX_PROFILE_BYTES: usize = 1 << 20;
/// The most tools that a profile may name.
pub(crate) const MAX_INVENTORY: usize = 500;
/// The longest system prompt, in bytes.
pub(crate) const MAX_SYSTEM_PROMPT_BYTES: usize = 64 << 10;

/// The declaration of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The id.
    pub id: ProfileId,
    /// The name for people.
    pub name: String,
    /// The description; may be empty.
    pub description: String,
    /// The author's label of the revision; may be empty.
    pub version: String,
    /// `tool_ids_inventory` as the file names it.
    pub tool_ids: Vec<String>,
    /// The tool ids of the skills in `skill_workflow_ids_inventory`.
    pub skill_tool_ids: Vec<String>,
    /// The workflow that deliberates; the built-in deliberation if missing.
    pub deliberation: Option<String>,
    /// The JSON Schema of its private state; any object if missing.
    pub state_schema: Option<Value>,
    /// Its first private state; none if the profile declares none.
    pub first_state: Option<Value>,
    /// The knowledge bases that it reads and writes.
    pub knowledge: Vec<KnowledgeReference>,
    /// The goals that it begins with.
    pub goals: Vec<GoalReference>,
    /// The events that it takes in a scene.
    pub subscriptions: Vec<Subscription>,
    /// `custom_metadata.tavern`.
    pub tavern: TavernSection,
    /// The findings on keys without effect.
    pub diagnostics: Vec<LoadDiagnostic>,
    /// The profile as it was written.
    pub text: String,
}

impl Profile {
    /// Returns the etag, which changes with the text.
    pub fn etag(&self) -> String {
        document::etag(&self.text)
    }

    /// Returns every tool that the agent may use, once, tools before skills.
    pub fn inventory(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for id in self.tool_ids.iter().chain(&self.skill_tool_ids) {
            if !all.contains(id) {
                all.push(id.clone());
            }
        }
        all
    }

    /// Returns the instructions that the agent's model reads before the list of tools.
    pub fn system_prompt(&self) -> String {
        match &self.tavern.system_prompt {
            Some(prompt) => prompt.clone(),
            None if self.description.is_empty() => format!("You are {}.", self.name),
            None => format!("You are {}. {}", self.name, self.description),
        }
    }
}

/// Reads a profile.
///
/// # Errors
/// [`DocumentError`] with all problems.
pub fn read(text: &str) -> Result<Profile, DocumentError> {
    let limits = json_schema::JsonLimits {
        max_bytes: MAX_PROFILE_BYTES,
        ..Default::default()
    };
    let source = json_schema::strict_json::parse_json_strict_with(text, &limits)
        .map_err(DocumentError::whole)?;
    let Value::Object(object) = &source else {
        return Err(DocumentError::whole("the profile is not a JSON object"));
    };
    let mut reader = DocumentReader::default();
    let id = reader
        .required_text(object, "id")
        .and_then(|id| match ProfileId::new(id) {
            Ok(id) => Some(id),
            Err(error) => {
                reader.problem("/id", error);
                None
            }
        });
    let name = reader.optional_text(object, "", "name");
    let description = reader
        .optional_text(object, "", "description")
        .unwrap_or_default();
    let tool_ids = reader.ids(object, "tool_ids_inventory");
    let skills = reader.ids(object, "skill_workflow_ids_inventory");
    let deliberation = reader.optional_text(object, "", "core_deliberation_workflow_id");
    let tavern = tavern::read(&mut reader, object);
    let (state_schema, first_state) = private_state(&mut reader, object);
    let knowledge = knowledge::read_knowledge(&mut reader, object);
    let goals = knowledge::read_goals(&mut reader, object, "", "initial_goals_reference");
    let subscriptions = subscription::read(&mut reader, object);
    if tool_ids.len() + skills.len() > MAX_INVENTORY {
        reader.problem(
            "/tool_ids_inventory",
            format!(
                "it names {} tools and skills, but at most {MAX_INVENTORY} are allowed",
                tool_ids.len() + skills.len()
            ),
        );
    }
    match id {
        Some(id) if reader.problems.is_empty() => Ok(Profile {
            name: name
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| id.to_string()),
            id,
            description,
            version: document::label(object),
            tool_ids,
            deliberation: deliberation
                .filter(|id| !id.is_empty())
                .map(|id| workflow_stem(&id).to_owned()),
            skill_tool_ids: skills.iter().map(|skill| skill_tool(skill)).collect(),
            state_schema,
            first_state,
            knowledge,
            goals,
            subscriptions,
            tavern,
            diagnostics: remarks::diagnose(object),
            text: text.to_owned(),
        }),
        _ => Err(DocumentError {
            problems: reader.problems,
        }),
    }
}

/// Reads the schema of the private state and the first state (rules G106 and G303).
fn private_state(
    reader: &mut DocumentReader,
    object: &Map<String, Value>,
) -> (Option<Value>, Option<Value>) {
    const SCHEMA: &str = "initial_private_state_schema";
    const VALUES: &str = "initial_private_state_values";
    let empty = Value::Object(Map::new());
    let given = |key: &str| object.get(key).filter(|value| !value.is_null());
    let (schema, values) = (given(SCHEMA), given(VALUES));
    let declares_values = values.is_some_and(|values| *values != empty);
    if schema.is_none() && !declares_values {
        return (None, None);
    }
    if !values.is_none_or(Value::is_object) {
        reader.problem(
            &format!("/{VALUES}"),
            "it is not an object; give values by key",
        );
        return (None, None);
    }
    let compiled = match schema.map(Schema::compile).transpose() {
        Ok(compiled) => compiled,
        Err(error) => {
            reader.problem(&format!("/{SCHEMA}"), error);
            return (None, None);
        }
    };
    match state::first(
        compiled.as_ref(),
        values.unwrap_or(&empty),
        MAX_PRIVATE_BYTES,
    ) {
        Ok(first) => (schema.cloned(), Some(first)),
        Err(StateError::BreaksSchema(violations)) => {
            for found in violations {
                reader.problem(&format!("/{VALUES}{}", found.pointer), found.message);
            }
            (None, None)
        }
        Err(error) => {
            reader.problem(&format!("/{VALUES}"), error);
            (None, None)
        }
    }
}

/// Returns the tool by which a skill is called: the workflow that its id or path names.
fn skill_tool(skill: &str) -> String {
    format!("workflow:{}", workflow_stem(skill))
}

/// Returns the id of the workflow that an id, a tool's id or a path names (rule G107).
pub(crate) fn workflow_stem(written: &str) -> &str {
    let id = written.strip_prefix("workflow:").unwrap_or(written);
    let file = id.rsplit(['/', '\\']).next().unwrap_or(id);
    file.strip_suffix(".json").unwrap_or(file)
}

#[cfg(test)]
mod tests;
