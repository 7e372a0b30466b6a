//! Clients of language models behind one interface, one file per model API.
//!
//! A [`Provider`] makes one attempt; a [`Model`] retries it and has fallbacks. [`ModelSettings`]
//! configure a model and [`Models`] is the table of all by name. The crate reads no tool call out
//! of a text: it sends a conversation, returns the answer piece by piece, and counts what each tenant uses.
//!
//! Reading order: `model_settings` has the options of an operator, [`api`] the common parts of the
//! wires of model APIs, [`openai`] and [`anthropic`] are these wires, [`http`] speaks them,
//! [`scripted`] plays a file, `gate` lets requests wait, `spending` counts their use by
//! tenants, `model` retries them, and `models` puts the table together.

pub mod anthropic;
pub mod api;
pub mod http;
pub mod openai;
pub mod scripted;

mod error;
mod finish;
mod gate;
#[cfg(test)]
mod golden;
mod model;
mod model_settings;
mod models;
mod native_names;
mod paired;
mod refusal;
mod spending;
mod thought;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agent_domain::{
    message::ChatMessage,
    usage::{Booking, Usage},
};
use call_text::native::{self, Given};
use core_types::Tenant;
use futures::stream::BoxStream;

pub use error::{ModelError, Refusal};
pub use model::Model;
pub use model_settings::{EndpointSettings, GrammarUse, ModelSettings, ScriptedSettings};
pub use models::{BuildModelError, Models};

/// The longest answer that is accepted, text and thinking together, in bytes.
pub const MAX_ANSWER_BYTES: usize = 512 << 10;

/// A request to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The tenant for which it is sent.
    pub tenant: Tenant,
    /// The messages, the oldest first.
    pub messages: Vec<ChatMessage>,
    /// The most tokens to write; the endpoint's own limit if missing.
    pub max_output_tokens: Option<u32>,
    /// The sampling temperature; the endpoint's own if missing.
    pub temperature: Option<f64>,
    /// The share of the most probable tokens to sample from; the endpoint's own if missing.
    pub top_p: Option<f64>,
    /// The seed of the sampling; the endpoint's own if missing.
    pub seed: Option<i64>,
    /// The tools that the model may call natively, each with `name`, `description` and `parameters`.
    pub tools: Vec<serde_json::Value>,
    /// Whether the model may call these tools now, or only read about them.
    pub may_call: bool,
    /// The grammar of the answer, where the model supports grammars; empty for none.
    pub grammar: String,
    /// Whether the text of the answer begins in a thought whose opening mark the template wrote; the settings of
    /// the model decide if missing.
    pub begins_in_thought: Option<bool>,
    /// The deadline of the whole answer.
    pub deadline: Instant,
}

impl ModelRequest {
    /// Makes a request without tools that leaves the sampling to the endpoint.
    pub fn new(tenant: Tenant, messages: Vec<ChatMessage>, deadline: Instant) -> Self {
        Self {
            tenant,
            messages,
            max_output_tokens: None,
            temperature: None,
            top_p: None,
            seed: None,
            tools: Vec::new(),
            may_call: true,
            grammar: String::new(),
            begins_in_thought: None,
            deadline,
        }
    }

    /// Returns the number of bytes of text that the model reads.
    pub fn bytes(&self) -> usize {
        let messages: usize = self.messages.iter().map(ChatMessage::bytes).sum();
        let tools: usize = self.tools.iter().map(json_schema::text_bytes).sum();
        messages + tools
    }
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text for the reader or the parser.
    Text(String),
    /// Text that the model thinks aloud.
    Thinking(String),
    /// The end; nothing follows.
    End(AnswerEnd),
}

/// The end of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerEnd {
    /// The model's reason to stop: `stop`, `length`, `tool_calls` or `refused`; a script, and a reader that stops the
    /// answer early, may have other words.
    pub finish_reason: String,
    /// The count of the endpoint.
    pub usage: Usage,
    /// The booked usage and cost; empty in a single attempt.
    pub booking: Booking,
    /// The native calls in the form of OpenAI's `tool_calls`; none if there are none.
    pub tool_calls: Option<serde_json::Value>,
    /// The model's thought, in the form in which its API accepts it back with the calls; none if
    /// there is none.
    pub reasoning: Option<Box<serde_json::Value>>,
    /// The model that answered, as the settings name it; empty in a single attempt.
    pub model: String,
    /// The attempts before the successful one.
    pub failed_attempts: Vec<FailedAttempt>,
}

/// A request that failed and was followed by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The model of the attempt, as the settings name it.
    pub model: String,
    /// The stable code of the failure.
    pub code: &'static str,
    /// The message of the failure.
    pub message: String,
    /// The wait before the next attempt.
    pub wait: Duration,
}

impl AnswerEnd {
    /// Returns the model's thought as JSON text; empty where it is not sent back, for lack of
    /// native calls.
    pub fn reasoning_json(&self) -> String {
        let reasoning = self
            .reasoning
            .as_ref()
            .filter(|_| self.tool_calls.is_some());
        reasoning.map_or_else(String::new, |reasoning| reasoning.to_string())
    }

    /// Returns the native calls in the parser's form.
    pub fn native_calls(&self) -> Given {
        self.tool_calls
            .as_ref()
            .map(native::read)
            .unwrap_or_default()
    }
}

/// The pieces of an answer. An error ends it. Dropping it ends the request.
pub type Pieces = BoxStream<'static, Result<Piece, ModelError>>;

/// The client of one model.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Returns the provider's name in the settings.
    fn kind(&self) -> &'static str;

    /// Returns the endpoint's own name for the model; empty if there is no endpoint.
    fn endpoint_model(&self) -> &str;

    /// Requests one answer, complete by `deadline`. Nothing happens before the stream is polled.
    fn generate(&self, request: Arc<ModelRequest>, deadline: Instant) -> Pieces;
}
