//! The identifier of a run, which also names the owner of the run.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The kind of a run, which determines the service that keeps its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunOwner {
    /// agent-runtime: a turn of a conversation.
    Agent,
    /// agent-runtime: a scene.
    Scene,
    /// workflow-execution: one execution of a workflow.
    Workflow,
    /// tool-registry: one call, or the calls of one text.
    Registry,
}

impl RunOwner {
    const ALL: [RunOwner; 4] = [
        RunOwner::Agent,
        RunOwner::Scene,
        RunOwner::Workflow,
        RunOwner::Registry,
    ];

    /// Returns the word that opens the ids of this owner's runs.
    pub fn prefix(self) -> &'static str {
        match self {
            RunOwner::Agent => "turn",
            RunOwner::Scene => "scene",
            RunOwner::Workflow => "flow",
            RunOwner::Registry => "call",
        }
    }

    /// Returns the owner that stands for the service of these runs: agent-runtime keeps turns and
    /// scenes.
    pub fn service(self) -> Self {
        match self {
            RunOwner::Scene => RunOwner::Agent,
            other => other,
        }
    }
}

/// The id of a run: `turn_`, `scene_`, `flow_` or `call_` and 32 hexadecimal digits.
///
/// The prefix lets the gateway, which stores nothing, find the owner of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId {
    owner: RunOwner,
    uuid: Uuid,
}

/// A text that is not a run id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a run id; one looks like turn_0190f5a2c3d47e8f9a0b1c2d3e4f5a6b")]
pub struct RunIdError {
    /// The text, cut after 80 characters.
    pub text: String,
}

impl RunId {
    /// Makes an id of an owner and a UUID.
    pub fn new(owner: RunOwner, uuid: Uuid) -> Self {
        Self { owner, uuid }
    }

    /// Returns the service that owns the run.
    pub fn owner(&self) -> RunOwner {
        self.owner
    }

    /// Returns the UUID, the key of the log.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}_{}", self.owner.prefix(), self.uuid.simple())
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, RunIdError> {
        let parsed = text.split_once('_').and_then(|(prefix, hex)| {
            let owner = RunOwner::ALL
                .into_iter()
                .find(|owner| owner.prefix() == prefix)?;
            let canonical = hex.len() == 32 && !hex.contains(|c: char| c.is_ascii_uppercase());
            let uuid = canonical.then(|| Uuid::try_parse(hex).ok()).flatten()?;
            Some(Self { owner, uuid })
        });
        parsed.ok_or_else(|| RunIdError {
            text: text.chars().take(80).collect(),
        })
    }
}

impl TryFrom<String> for RunId {
    type Error = RunIdError;
    fn try_from(text: String) -> Result<Self, RunIdError> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_reads_back_as_it_was_written() {
        for owner in RunOwner::ALL {
            let id = RunId::new(owner, Uuid::from_u128(0x1234));
            assert_eq!(id.to_string().parse::<RunId>().unwrap(), id);
        }
    }

    #[test]
    fn only_the_canonical_spelling_is_a_run_id() {
        let hex = "0190f5a2c3d47e8f9a0b1c2d3e4f5a6b";
        for text in [
            "".to_owned(),
            "turn".to_owned(),
            format!("job_{hex}"),
            format!("turn_{}", hex.to_uppercase()),
            format!("turn_{hex}0"),
            "turn_0190f5a2-c3d4-7e8f-9a0b-1c2d3e4f5a6b".to_owned(),
        ] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }
}
