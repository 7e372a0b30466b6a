//! Language models behind one interface, one file per model API.
//!
//! `openai` speaks to any OpenAI-compatible endpoint, `scripted` plays a file. The settings name
//! models; [`Models`] is that table.

pub mod openai;
pub mod scripted;

mod error;
mod models;

use std::time::Instant;

use call_text::native::{self, Given};
use futures::stream::BoxStream;

use crate::domain::message::ChatMessage;

pub use error::ModelError;
pub use models::{BuildModelError, Models};

/// The longest answer that is taken, text and thinking together, in bytes.
pub const MAX_ANSWER_BYTES: usize = 512 << 10;

/// What a model is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
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
    /// When the whole answer must be there.
    pub deadline: Instant,
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
    /// Why the model stopped, in the words of its API.
    pub finish_reason: String,
    /// Tokens of the request; zero if unknown.
    pub input_tokens: u32,
    /// Tokens of the answer; zero if unknown.
    pub output_tokens: u32,
    /// The native `tool_calls` in the endpoint's form; none if there are none.
    pub tool_calls: Option<serde_json::Value>,
}

impl AnswerEnd {
    /// Returns the native calls as the parser takes them.
    pub fn native_calls(&self) -> Given {
        self.tool_calls
            .as_ref()
            .map(native::read)
            .unwrap_or_default()
    }
}

/// The pieces of an answer. An error ends it. Dropping it ends the request.
pub type Pieces = BoxStream<'static, Result<Piece, ModelError>>;

/// One model, ready to be asked.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Returns the provider's name in the settings.
    fn kind(&self) -> &'static str;

    /// Returns the endpoint's own name for the model; empty if there is no endpoint.
    fn endpoint_model(&self) -> &str;

    /// Asks the model. Nothing happens before the stream is polled.
    fn generate(&self, request: ModelRequest) -> Pieces;
}
