//! Identifiers that arrive as text from outside, each a kind of its own.
//!
//! All of them are opaque: they are compared byte by byte and never taken apart, except
//! [`ToolId::workflow`] and [`ToolId::node`], the two namespaces of the platform itself. None may
//! be empty, contain control characters or be longer than [`MAX_ID_BYTES`].

use serde::{Deserialize, Serialize};

use crate::run_id::RunId;

/// The longest identifier that is accepted, in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// The reason for which a text is no identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("{kind} is empty; give at least one character")]
    Empty {
        /// The kind of identifier, such as "tool id".
        kind: &'static str,
    },
    /// The text is too long.
    #[error("{kind} has {bytes} bytes; at most {MAX_ID_BYTES} are accepted")]
    TooLong {
        /// The kind of identifier.
        kind: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// The text has a character that identifiers may not have.
    #[error("{kind} contains the character {character:?} at byte {at}; remove it")]
    BadCharacter {
        /// The kind of identifier.
        kind: &'static str,
        /// The character.
        character: char,
        /// Its byte offset.
        at: usize,
    },
}

fn check(kind: &'static str, text: &str, allowed: fn(char) -> bool) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { kind });
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong {
            kind,
            bytes: text.len(),
        });
    }
    match text
        .char_indices()
        .find(|(_, character)| !allowed(*character))
    {
        Some((at, character)) => Err(IdError::BadCharacter {
            kind,
            character,
            at,
        }),
        None => Ok(()),
    }
}

/// Characters of ids that models write and people name: anything visible, spaces included.
fn visible(character: char) -> bool {
    !character.is_control()
}

/// Characters of ids that also become file names: no separators of any system.
fn portable(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | ':')
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $allowed:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Makes an identifier of `text` after checking it.
            ///
            /// # Errors
            /// [`IdError`] names the fault of the text.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check($kind, &text, $allowed)?;
                Ok(Self(text))
            }

            /// Returns the identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(
    /// The stable id of a tool, such as `FileOperator.WriteFile` or `workflow:summarize_text`.
    ToolId, "tool id", visible
);
text_id!(
    /// The id of a workflow: the stem of its file name.
    WorkflowId, "workflow id", portable
);
text_id!(
    /// The id of a schedule.
    ScheduleId, "schedule id", portable
);
text_id!(
    /// The id of a node within its workflow.
    NodeId, "node id", visible
);
text_id!(
    /// The name of a plugin.
    PluginId, "plugin name", portable
);
text_id!(
    /// The id of an agent profile.
    ProfileId, "profile id", portable
);
text_id!(
    /// The id of a conversation; it names a workspace directory too.
    ConversationId, "conversation id", portable
);
text_id!(
    /// The caller's own id for a request, by which a repeat is recognised.
    RequestId, "request id", visible
);
text_id!(
    /// The id of one effect: it stays the same over retries, replans and crashes.
    EffectId, "effect id", visible
);

impl ToolId {
    /// Returns the workflow id if this is a workflow tool (`workflow:<id>`).
    pub fn workflow(&self) -> Option<&str> {
        self.0.strip_prefix("workflow:")
    }

    /// Returns the full node type if this is a single-node tool (`node:<namespace>:<type>`).
    pub fn node(&self) -> Option<&str> {
        self.0.strip_prefix("node:")
    }
}

/// The beginning of the id of the conversation that the calls of a text get where none is named.
pub const CONVERSATION_OF_TEXT: &str = "invocation-";

/// The beginning of the id of the conversation that a run of a workflow gets where none is named.
pub const CONVERSATION_OF_WORKFLOW: &str = "flow-";

impl ConversationId {
    /// Whether a run got the id because none was named. It is drawn at random, so that only its caller knows it.
    pub fn is_of_run(&self) -> bool {
        let beginnings = [CONVERSATION_OF_TEXT, CONVERSATION_OF_WORKFLOW];
        beginnings
            .iter()
            .any(|beginning| self.0.starts_with(beginning))
    }

    /// Returns the id as the name of a directory: no id can name the directory of another or leave
    /// the parent.
    ///
    /// `.` and `:` have meanings in paths, so both are written with a percent sign.
    pub fn directory_name(&self) -> String {
        self.0.replace('.', "%2E").replace(':', "%3A")
    }
}

impl EffectId {
    /// Derives the id of the call at `call_index` of `step` in `run`.
    pub fn derive(run: &RunId, step: &str, call_index: usize) -> Self {
        let mut text = format!("{run}/{step}/{call_index}");
        if text.len() > MAX_ID_BYTES || !text.chars().all(visible) {
            // A step name from outside may be long or odd; its digest identifies it as well.
            let digest = uuid::Uuid::new_v5(&run.uuid(), step.as_bytes()).simple();
            text = format!("{run}/{digest}/{call_index}");
        }
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_id::RunOwner;

    #[test]
    fn every_tool_id_spelling_seen_in_the_wild_is_accepted() {
        for id in [
            "ReadPrivateStateTool",
            "core:ReadPrivateState",
            "FileOperator.WriteFile",
            "image.generate_portrait",
            "workflow:x",
            "CodeInterpreter:execute",
            "workflows/skills/x.json",
            "工具",
        ] {
            assert_eq!(ToolId::new(id).unwrap().as_str(), id);
        }
    }

    #[test]
    fn an_id_that_cannot_be_says_what_is_wrong_and_where() {
        assert_eq!(
            ToolId::new("").unwrap_err().to_string(),
            "tool id is empty; give at least one character"
        );
        assert!(
            ToolId::new("x".repeat(257))
                .unwrap_err()
                .to_string()
                .contains("257 bytes")
        );
        let error = ConversationId::new("a/../b").unwrap_err();
        assert_eq!(
            error,
            IdError::BadCharacter {
                kind: "conversation id",
                character: '/',
                at: 1
            }
        );
    }

    #[test]
    fn no_conversation_names_a_directory_outside_its_parent() {
        for id in ["..", ".", "a.b", "a:b"] {
            let name = ConversationId::new(id).unwrap().directory_name();
            assert!(!name.contains(['.', '/', ':']), "{name}");
        }
    }

    #[test]
    fn an_effect_id_is_the_same_each_time_and_differs_per_call() {
        let run = RunId::new(RunOwner::Agent, uuid::Uuid::from_u128(7));
        assert_eq!(
            EffectId::derive(&run, "2", 0),
            EffectId::derive(&run, "2", 0)
        );
        assert_ne!(
            EffectId::derive(&run, "2", 0),
            EffectId::derive(&run, "2", 1)
        );
        assert!(EffectId::derive(&run, &"x".repeat(999), 0).as_str().len() <= MAX_ID_BYTES);
    }
}
