//! Scenes: ComfyTavern's scene documents, unmodified (rule G101).
//!
//! Every key that ComfyTavern defines may be present, and any other; all are kept. A key without
//! effect here, such as panels and states, is a finding.

pub mod conversation;
mod instance;
mod moments;
mod references;
mod remarks;
mod tasks;

use core_types::LoadDiagnostic;
use json_schema::Schema;
use serde_json::{Map, Value};

use super::{
    document::{self, DocumentError, DocumentReader},
    event::MAX_TTL_SECONDS,
    state::{self, MAX_WORLD_BYTES, StateError},
};

pub use instance::Instance;
pub use moments::{Workflow, WorkflowTrigger};
pub use tasks::Task;

/// The largest scene that is read, in bytes.
pub const MAX_SCENE_BYTES: usize = 1 << 20;
/// The time for which events wait if the scene states none, in seconds.
const DEFAULT_TTL_SECONDS: u32 = 3_600;
/// The longest id, in bytes.
const MAX_ID_BYTES: usize = 128;

/// A scene.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The id.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The description; may be empty.
    pub description: String,
    /// The author's label of the revision; may be empty.
    pub version: String,
    /// Its agents.
    pub instances: Vec<Instance>,
    /// The first world state.
    pub first_world: Value,
    /// The JSON Schema of the world state; any object if missing.
    pub world_schema: Option<Value>,
    /// The namespace in front of the types of its events.
    pub namespace: String,
    /// The time for which events wait, in seconds.
    pub ttl_seconds: u32,
    /// Its workflows by moment.
    pub workflows: Vec<Workflow>,
    /// Its timers.
    pub tasks: Vec<Task>,
    /// The findings on keys without effect.
    pub diagnostics: Vec<LoadDiagnostic>,
    /// The document as it was written.
    pub text: String,
}

impl Scene {
    /// Returns the etag, which changes with the text.
    pub fn etag(&self) -> String {
        document::etag(&self.text)
    }

    /// Returns an agent.
    pub fn instance(&self, instance_id: &str) -> Option<&Instance> {
        let mut all = self.instances.iter();
        all.find(|instance| instance.id == instance_id)
    }

    /// Returns the type of an event with the namespace in front.
    pub fn qualified(&self, event_type: &str) -> String {
        format!("{}.{event_type}", self.namespace)
    }
}

/// Reads a scene.
///
/// # Errors
/// [`DocumentError`] with all problems.
pub fn read(text: &str) -> Result<Scene, DocumentError> {
    let limits = json_schema::JsonLimits {
        max_bytes: MAX_SCENE_BYTES,
        ..Default::default()
    };
    let source = json_schema::strict_json::parse_json_strict_with(text, &limits)
        .map_err(DocumentError::whole)?;
    let Value::Object(object) = &source else {
        return Err(DocumentError::whole("the scene is not a JSON object"));
    };
    let mut reader = DocumentReader::default();
    let id = reader.required_text(object, "id");
    let id = id.filter(|id| {
        let is_good = is_id(id);
        if !is_good {
            let problem = "give 1 to 128 letters, digits, `_` or `-`";
            reader.problem("/id", problem);
        }
        is_good
    });
    let name = reader.optional_text(object, "", "name");
    let description = reader.optional_text(object, "", "description");
    let instances = instance::read(&mut reader, object);
    let (namespace, ttl) = event_bus(&mut reader, object);
    let (world_schema, first_world) = world(&mut reader, object);
    let workflows = moments::read(&mut reader, object);
    let tasks = tasks::read(&mut reader, object);
    match id {
        Some(id) if reader.problems.is_empty() => Ok(Scene {
            name: name
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| id.clone()),
            namespace: namespace.unwrap_or_else(|| id.clone()),
            id,
            description: description.unwrap_or_default(),
            version: document::label(object),
            instances,
            first_world,
            world_schema,
            ttl_seconds: ttl.unwrap_or(DEFAULT_TTL_SECONDS),
            workflows,
            tasks,
            diagnostics: remarks::diagnose(object),
            text: text.to_owned(),
        }),
        _ => Err(DocumentError {
            problems: reader.problems,
        }),
    }
}

/// Whether a text can be the id of a scene or of an agent in it.
fn is_id(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !text.is_empty() && text.len() <= MAX_ID_BYTES && text.chars().all(plain)
}

fn event_bus(
    reader: &mut DocumentReader,
    object: &Map<String, Value>,
) -> (Option<String>, Option<u32>) {
    const KEY: &str = "event_bus_config";
    let Some(Value::Object(config)) = object.get(KEY) else {
        if !matches!(object.get(KEY), None | Some(Value::Null)) {
            reader.problem(
                &format!("/{KEY}"),
                "it is not an object; give settings by name",
            );
        }
        return (None, None);
    };
    let namespace = reader.optional_text(config, &format!("/{KEY}"), "namespace_prefix");
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    if namespace
        .as_ref()
        .is_some_and(|name| !super::event::is_type(name))
    {
        let problem = "give words of letters, digits, `_` and `-` with `.` between";
        reader.problem(&format!("/{KEY}/namespace_prefix"), problem);
    }
    let ttl = reader.optional_count(
        config,
        &format!("/{KEY}"),
        "default_event_ttl_seconds",
        MAX_TTL_SECONDS.into(),
    );
    (namespace, ttl.and_then(|ttl| u32::try_from(ttl).ok()))
}

/// Reads the schema of the world and its first state (rules G106 and G303).
fn world(reader: &mut DocumentReader, object: &Map<String, Value>) -> (Option<Value>, Value) {
    const STATE: &str = "/initial_world_state";
    const SCHEMA: &str = "/custom_metadata/tavern/world_schema";
    let empty = Value::Object(Map::new());
    let values = object.get("initial_world_state");
    let values = values.filter(|values| !values.is_null()).unwrap_or(&empty);
    if !values.is_object() {
        reader.problem(STATE, "it is not an object; give values by key");
        return (None, empty);
    }
    let schema = object
        .get("custom_metadata")
        .and_then(|metadata| metadata.get("tavern"))
        .and_then(|section| section.get("world_schema"))
        .filter(|schema| !schema.is_null());
    let compiled = match schema.map(Schema::compile).transpose() {
        Ok(compiled) => compiled,
        Err(error) => {
            reader.problem(SCHEMA, error);
            return (None, empty);
        }
    };
    match state::first(compiled.as_ref(), values, MAX_WORLD_BYTES) {
        Ok(first) => (schema.cloned(), first),
        Err(StateError::BreaksSchema(violations)) => {
            for found in violations {
                reader.problem(&format!("{STATE}{}", found.pointer), found.message);
            }
            (None, empty)
        }
        Err(error) => {
            reader.problem(STATE, error);
            (None, empty)
        }
    }
}

#[cfg(test)]
mod tests;
