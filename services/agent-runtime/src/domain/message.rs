//! One message of a conversation.

use core_types::Timestamp;
use serde::{Deserialize, Serialize};

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The platform.
    System,
    /// The user, or an observation.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Returns the name that chat APIs use.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// A message as a model is given it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub text: String,
}

impl ChatMessage {
    /// Puts a message together.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            text: text.into(),
        }
    }
}

/// A message as a turn made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnMessage {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub text: String,
    /// Whether it is an observation and not the user's own.
    pub observation: bool,
    /// When it was said.
    pub time: Timestamp,
}

impl ChatMessage {
    /// Returns the message as one that was said at a time.
    pub fn at(&self, time: Timestamp) -> TurnMessage {
        TurnMessage {
            role: self.role,
            text: self.text.clone(),
            observation: false,
            time,
        }
    }
}
