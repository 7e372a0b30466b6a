//! The workflows of a scene and the moments at which they run (rule G109).

use call_catalogue::names::squash;
use serde_json::{Map, Value};

use crate::{document::DocumentReader, profile::workflow_stem};

/// The key of a scene.
pub(super) const KEY: &str = "scene_lifecycle_workflows";

/// A moment of a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkflowTrigger {
    /// Before any event.
    Start,
    /// After the last turn.
    End,
    /// At an event whose squashed type is this, with or without a final `event`.
    Event(String),
}

/// A workflow of a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    /// The moment at which it runs.
    pub moment: WorkflowTrigger,
    /// Its key in the document, such as `on_scene_start`.
    pub key: String,
    /// Its id.
    pub workflow_id: String,
}

impl Workflow {
    /// Whether it runs at an event of a type.
    pub fn is_for(&self, event_type: &str) -> bool {
        let squashed = squash(event_type);
        match &self.moment {
            WorkflowTrigger::Event(moment) => {
                *moment == squashed || moment.strip_suffix("event") == Some(&squashed)
            }
            WorkflowTrigger::Start | WorkflowTrigger::End => false,
        }
    }
}

/// Reads the workflows of a scene.
pub(super) fn read(reader: &mut DocumentReader, scene: &Map<String, Value>) -> Vec<Workflow> {
    let entries = match scene.get(KEY) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Object(entries)) => entries,
        Some(_) => {
            let problem = "it is not an object; give workflows by moment, such as on_scene_start";
            reader.problem(&format!("/{KEY}"), problem);
            return Vec::new();
        }
    };
    let mut workflows = Vec::new();
    for key in entries.keys() {
        let Some(written) = reader.optional_text(entries, &format!("/{KEY}"), key) else {
            continue;
        };
        let Some(moment) = moment(key).filter(|_| !written.is_empty()) else {
            continue;
        };
        workflows.push(Workflow {
            moment,
            key: key.clone(),
            workflow_id: workflow_stem(&written).to_owned(),
        });
    }
    workflows
}

/// Returns the moment that a key names; none if nothing runs then.
pub(super) fn moment(key: &str) -> Option<WorkflowTrigger> {
    match key {
        "on_scene_start" => Some(WorkflowTrigger::Start),
        "on_scene_end" => Some(WorkflowTrigger::End),
        "on_scene_pause" | "on_scene_resume" => None,
        _ => key
            .strip_prefix("on_")
            .map(|event| WorkflowTrigger::Event(squash(event))),
    }
}
