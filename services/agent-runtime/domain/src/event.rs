//! Events of scenes (rule G401).

use core_types::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The largest payload, in bytes of JSON (rule G401).
pub const MAX_PAYLOAD_BYTES: usize = 64 << 10;
/// The most steps in the chain of an event (rule G405).
pub(crate) const MAX_HOPS: usize = 16;
/// The most times that one type reaches one instance in a chain (rule G405).
pub(crate) const MAX_SAME_HOPS: usize = 3;
/// The longest time that an event may wait, in seconds (rule G406).
pub(crate) const MAX_TTL_SECONDS: u32 = 604_800;
/// The longest payload that a model is shown of one event, in bytes.
const MAX_SHOWN_BYTES: usize = 4 << 10;

/// The urgency of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// After all others.
    Low,
    /// As most.
    #[default]
    Normal,
    /// Before others.
    High,
    /// Before all others, and never dropped from a full queue.
    Critical,
}

impl Priority {
    /// Returns the word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// The kinds of publishers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// An agent of the scene.
    Instance,
    /// A caller of PublishEvent.
    Caller,
    /// A scheduled task.
    Task,
    /// A workflow of the scene.
    Workflow,
    /// The scene itself.
    Scene,
}

impl SourceKind {
    /// Returns the word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Caller => "caller",
            Self::Task => "task",
            Self::Workflow => "workflow",
            Self::Scene => "scene",
        }
    }
}

/// The publisher of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The kind.
    pub kind: SourceKind,
    /// The id of the instance, task, workflow or scene, or the name that the caller states.
    pub id: String,
    /// The run that published it; may be empty.
    pub run_id: String,
}

impl Source {
    /// Makes the source of the scene's own events.
    pub fn scene(scene_id: &str) -> Self {
        Self {
            kind: SourceKind::Scene,
            id: scene_id.to_owned(),
            run_id: String::new(),
        }
    }

    /// Whether this is an agent of the scene.
    pub(crate) fn is_instance(&self, instance_id: &str) -> bool {
        self.kind == SourceKind::Instance && self.id == instance_id
    }
}

/// One step in the chain of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The instance that took an event.
    pub instance_id: String,
    /// The type of that event.
    pub event_type: String,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The id.
    pub id: String,
    /// The type.
    pub event_type: String,
    /// The type with the scene's namespace in front.
    pub qualified_type: String,
    /// The data: an object.
    pub payload: Value,
    /// The publisher.
    pub source: Source,
    /// The instances that receive it; empty for all subscribers.
    pub targets: Vec<String>,
    /// The urgency.
    pub priority: Priority,
    /// The time of publication.
    pub published: Timestamp,
    /// The earliest time at which it is taken.
    pub ready: Timestamp,
    /// The time at which it is dropped from the queues where it still waits.
    pub expires: Timestamp,
    /// The steps that led to it since the last caller or task.
    pub chain: Vec<Hop>,
    /// The caller's id for events that belong together; may be empty.
    pub correlation_id: String,
}

impl Event {
    /// Returns the event as models, workflows and conditions see it.
    pub fn to_json(&self) -> Value {
        let chain: Vec<&str> = self
            .chain
            .iter()
            .map(|hop| hop.instance_id.as_str())
            .collect();
        json!({
            "event_id": self.id,
            "type": self.event_type,
            "qualified_type": self.qualified_type,
            "payload": self.payload,
            "source": self.source_json(),
            "target_instance_ids": self.targets,
            "priority": self.priority.as_str(),
            "time": schedules::utc(self.published),
            "expire_time": schedules::utc(self.expires),
            "chain": chain,
            "correlation_id": self.correlation_id,
        })
    }

    /// Returns the source as conditions see it.
    pub(crate) fn source_json(&self) -> Value {
        json!({
            "kind": self.source.kind.as_str(), "id": self.source.id, "run_id": self.source.run_id,
        })
    }

    /// Returns the digest of a publisher's request, which detects a repeat with another event.
    pub fn digest(&self) -> [u8; 32] {
        let asked = json!([
            self.event_type,
            self.payload,
            self.targets,
            self.priority.as_str(),
            self.correlation_id
        ]);
        Sha256::digest(asked.to_string()).into()
    }
}

/// Whether a text is the type of an event: words of letters, digits, `_` and `-` with `.` or `:` between.
pub fn is_type(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    text.len() <= 128
        && text
            .split(['.', ':'])
            .all(|word| !word.is_empty() && word.chars().all(plain))
}

/// Words events, in the form of [`Event::to_json`], as the opening of a turn.
pub fn opening(events: &[Value]) -> String {
    let line = |event: &Value| {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let source = &event["source"];
        let payload = event["payload"].to_string();
        let end = payload.floor_char_boundary(MAX_SHOWN_BYTES);
        let cut = match end < payload.len() {
            true => format!(" … ({} more bytes)", payload.len() - end),
            false => String::new(),
        };
        format!(
            "Event {} from {} {}: {}{cut}",
            text(&event["type"]),
            text(&source["kind"]),
            text(&source["id"]),
            call_prompt::observation::neutralise(&payload[..end])
        )
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_an_event_has_plain_words() {
        for good in ["npc.elara.address", "tick", "trade:offer", "a-b.c_d"] {
            assert!(is_type(good), "{good}");
        }
        for bad in ["", ".", "a..b", "a.*", "a b", "ä", &"a".repeat(129)] {
            assert!(!is_type(bad), "{bad}");
        }
    }

    #[test]
    fn a_model_reads_one_line_for_each_event_and_a_long_payload_is_cut() {
        let event = |payload: Value| json!({"type": "trade.offer", "source": {"kind": "instance", "id": "gm"}, "payload": payload});
        assert_eq!(
            opening(&[event(json!({"to": "elara"})), event(json!({}))]),
            "Event trade.offer from instance gm: {\"to\":\"elara\"}\n\
             Event trade.offer from instance gm: {}"
        );
        let long = opening(&[event(json!({"text": "ä".repeat(5_000)}))]);
        assert!(
            long.len() < 4_300 && long.ends_with("more bytes)"),
            "{}",
            long.len()
        );
    }
}
