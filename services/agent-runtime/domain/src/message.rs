//! One message of a conversation.

use std::borrow::Cow;

use call_text::native::{EndedCall, NativeCall};
use core_types::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The platform.
    System,
    /// The user, or an observation.
    User,
    /// The model.
    Assistant,
    /// A tool: the result of a native call.
    Tool,
}

impl Role {
    /// Returns the name that chat APIs use.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A message to or from a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// The author.
    pub role: Role,
    /// The text.
    pub text: String,
    /// The native calls of an answer, by the ids of the tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<NativeCall>,
    /// The call whose result a tool's message holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_of: Option<EndedCall>,
    /// The model's thought before its answer, in the form in which its API takes it back with the calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Value>,
}

impl ChatMessage {
    /// Makes a message without calls.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            text: text.into(),
            calls: Vec::new(),
            result_of: None,
            reasoning: None,
        }
    }

    /// Returns the number of bytes that a model reads of it.
    pub fn bytes(&self) -> usize {
        let calls = self.calls.iter();
        let calls = calls.map(|call| call.name.len() + call.arguments_json.len());
        let reasoning = self.reasoning_of_calls();
        let reasoning = reasoning.map_or(0, json_schema::text_bytes);
        self.text.len() + calls.sum::<usize>() + reasoning
    }

    /// Returns the reasoning that is sent back with the native calls; none if there are no calls.
    pub fn reasoning_of_calls(&self) -> Option<&Value> {
        self.reasoning.as_ref().filter(|_| !self.calls.is_empty())
    }

    /// Adds native calls to the text, for a model or a reader without structured ones.
    pub fn write_out<'a>(&mut self, calls: impl IntoIterator<Item = &'a NativeCall>) {
        for call in calls {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            let name = Value::String(call.name.clone());
            let arguments = &call.arguments_json;
            let written =
                format!("<tool_call>{{\"name\":{name},\"arguments\":{arguments}}}</tool_call>");
            self.text.push_str(&written);
        }
    }

    /// Returns the text with the native calls behind it.
    pub fn in_words(&self) -> Cow<'_, str> {
        if self.calls.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        let mut written = Self::new(self.role, self.text.as_str());
        written.write_out(&self.calls);
        Cow::Owned(written.text)
    }

    /// Writes the message in the form of chat completions.
    pub fn to_json(&self) -> Value {
        let mut written = json!({"role": self.role.as_str(), "content": self.text});
        if !self.calls.is_empty() {
            written["tool_calls"] = self.calls.iter().map(NativeCall::to_json).collect();
        }
        if let Some(ended) = &self.result_of {
            written["tool_call_id"] = ended.id.as_str().into();
        }
        written
    }
}

/// A message as a turn made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnMessage {
    /// The message.
    pub message: ChatMessage,
    /// Whether it is an observation and not the user's own.
    pub observation: bool,
    /// The time of the message.
    pub time: Timestamp,
}

impl ChatMessage {
    /// Returns the message with a time.
    pub fn at(self, time: Timestamp) -> TurnMessage {
        TurnMessage {
            message: self,
            observation: false,
            time,
        }
    }
}
