//! Requests to language models, and their answers.

use call_outcome::Failure;
use call_text::native::{EndedCall, NativeCall};
use serde_json::{Map, Value};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The platform.
    System,
    /// The user, or a report of calls.
    User,
    /// The model.
    Assistant,
    /// A tool: the result of a native call.
    Tool,
}

impl Role {
    /// Returns the name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A message to or from a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMessage {
    /// The author.
    pub role: Role,
    /// The text.
    pub text: String,
    /// The native calls of an answer.
    pub calls: Vec<NativeCall>,
    /// The native call that a tool's message is the result of.
    pub result_of: Option<EndedCall>,
    /// The model's thought before the calls, as a JSON object that goes back with them.
    pub reasoning: Option<Value>,
}

impl ModelMessage {
    /// Makes a message of text only.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            text: text.into(),
            calls: Vec::new(),
            result_of: None,
            reasoning: None,
        }
    }

    /// Whether it has no text, no call and no result.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.calls.is_empty() && self.result_of.is_none()
    }

    /// Returns the approximate number of bytes that a model reads of it.
    fn weight(&self) -> usize {
        let calls = self.calls.iter();
        let calls = calls.map(|call| call.name.len() + call.arguments_json.len());
        let reasoning = self.reasoning.as_ref().map_or(0, super::size::weight);
        self.text.len() + calls.sum::<usize>() + reasoning
    }
}

/// A request to a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRequest {
    /// The name of the model.
    pub model: String,
    /// The messages, the oldest first.
    pub messages: Vec<ModelMessage>,
    /// The tools that the model may call natively.
    pub tools: Vec<Value>,
    /// The parameters of the answer.
    pub parameters: ModelParameters,
}

/// The parameters of an answer; a missing one is left to the endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelParameters {
    /// The most tokens to write.
    pub max_tokens: Option<u32>,
    /// The sampling temperature, 0 to 2.
    pub temperature: Option<f64>,
    /// The share of the most probable tokens to sample from, 0 to 1.
    pub top_p: Option<f64>,
    /// The seed of the sampling.
    pub seed: Option<i64>,
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelAnswer {
    /// The text.
    pub text: String,
    /// The reason to stop, in the words of its API.
    pub finish_reason: String,
    /// Tokens of the request; zero if unknown.
    pub input_tokens: u32,
    /// Tokens of the answer; zero if unknown.
    pub output_tokens: u32,
    /// The native calls in the endpoint's form; empty if there are none.
    pub tool_calls: Vec<Value>,
    /// The model's thought before the calls, as a JSON object that goes back with them.
    pub reasoning: Option<Value>,
}

impl ModelParameters {
    /// Reads parameters by name. `stream` is accepted and ignored: every answer is streamed.
    ///
    /// # Errors
    /// All problems, in one failure.
    pub fn read(parameters: &Map<String, Value>) -> Result<Self, Failure> {
        let mut read = Self::default();
        let mut wrong = Vec::new();
        for (key, value) in parameters.iter().filter(|(_, value)| !value.is_null()) {
            let within = |least: f64, most: f64| {
                value
                    .as_f64()
                    .filter(|number| (least..=most).contains(number))
            };
            let accepted = match key.as_str() {
                "max_tokens" => {
                    let tokens = value.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
                    read.max_tokens = tokens.filter(|tokens| *tokens > 0);
                    read.max_tokens.is_some()
                }
                "temperature" => {
                    read.temperature = within(0.0, 2.0);
                    read.temperature.is_some()
                }
                "top_p" => {
                    read.top_p = within(0.0, 1.0);
                    read.top_p.is_some()
                }
                "seed" => {
                    read.seed = value.as_i64();
                    read.seed.is_some()
                }
                "stream" => value.is_boolean(),
                _ => false,
            };
            if !accepted {
                wrong.push(format!("`{key}`"));
            }
        }
        if wrong.is_empty() {
            return Ok(read);
        }
        let message = format!(
            "the parameters {} are unknown or out of range; known are max_tokens (from 1), \
             temperature (0 to 2), top_p (0 to 1), seed and stream",
            wrong.join(", ")
        );
        Err(Failure::invalid("invalid_parameters", message))
    }
}

impl ModelRequest {
    /// Returns the approximate number of bytes of the request.
    pub fn weight(&self) -> usize {
        let messages = self.messages.iter().map(ModelMessage::weight);
        let tools = self.tools.iter().map(super::size::weight);
        self.model.len() + messages.chain(tools).sum::<usize>()
    }
}
