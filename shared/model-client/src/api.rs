//! What every model API has in common: a request that is written, and an answer that is put
//! together from the data of server-sent events. Pure conversions; one file per API implements it.

use agent_domain::usage::Usage;
use call_text::native::NativeCall;
use reqwest::header::{HeaderMap, InvalidHeaderValue};
use serde_json::Value;
use settings::Secret;

use super::{AnswerEnd, MAX_ANSWER_BYTES, ModelError, ModelRequest, Piece};

/// The most structured calls that one answer may hold.
pub const MAX_TOOL_CALLS: usize = 64;

/// The wire of one model API.
pub trait ModelApi: Send + Sync + std::fmt::Debug {
    /// Returns the name of the API in the settings.
    fn kind(&self) -> &'static str;

    /// Returns the path below the base address.
    fn path(&self) -> &'static str;

    /// Returns the headers that every request carries.
    ///
    /// # Errors
    /// [`InvalidHeaderValue`] when the key has characters that no header can carry.
    fn headers(&self, key: Option<&Secret>) -> Result<HeaderMap, InvalidHeaderValue>;

    /// Writes a request for `model`.
    fn request_body(&self, model: &str, request: &ModelRequest) -> Value;

    /// Begins to put a streamed answer together.
    fn assembly(&self) -> Box<dyn Assembly>;

    /// Reads a whole answer, which endpoints give that cannot stream.
    ///
    /// # Errors
    /// [`ModelError`] when it is not an answer.
    fn completion(&self, body: &Value) -> Result<(Vec<Piece>, AnswerEnd), ModelError>;
}

/// Takes the data of one event. Every API may end its answer with `[DONE]`.
///
/// # Errors
/// [`ModelError`] when it is not an event of an answer, or one that reports a failed answer.
pub fn push(assembly: &mut dyn Assembly, data: &str) -> Result<Vec<Piece>, ModelError> {
    if data.trim() == "[DONE]" {
        assembly.draft().done = true;
        return Ok(Vec::new());
    }
    let event: Value = serde_json::from_str(data)
        .map_err(|error| ModelError::Malformed(format!("an event is not JSON: {error}")))?;
    match event.is_object() {
        true => assembly.push(&event),
        false => Err(ModelError::Malformed(
            "an event is not a JSON object".to_owned(),
        )),
    }
}

/// A streamed answer on its way.
pub trait Assembly: Send {
    /// Takes one event, a JSON object, and returns the text that it brings.
    ///
    /// # Errors
    /// [`ModelError`] when it is too much, or reports a failed answer.
    fn push(&mut self, event: &Value) -> Result<Vec<Piece>, ModelError>;

    /// Returns what has arrived so far.
    fn draft(&mut self) -> &mut Draft;

    /// Ends the answer.
    ///
    /// # Errors
    /// [`ModelError::Cut`] when the model never said that it had stopped; `detail` says how the
    /// connection ended.
    fn finish(self: Box<Self>, detail: &str) -> Result<AnswerEnd, ModelError>;
}

/// An answer as far as it has arrived.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Bytes of text, thinking and calls.
    pub received: usize,
    /// Why the model stopped; missing while it has not.
    pub finish_reason: Option<String>,
    /// What the endpoint counted.
    pub usage: Usage,
    /// Whether the endpoint has said that nothing follows.
    pub done: bool,
    /// The structured calls.
    pub calls: Vec<DraftCall>,
}

/// A structured call as far as it has arrived.
#[derive(Clone, Debug, Default)]
pub struct DraftCall {
    index: Option<u64>,
    /// The endpoint's id.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

impl Draft {
    /// Counts what arrived.
    ///
    /// # Errors
    /// [`ModelError::TooLarge`] when it is more than any answer may have.
    pub fn receive(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.received += bytes;
        match self.received > MAX_ANSWER_BYTES {
            true => Err(ModelError::TooLarge {
                what: "text",
                limit: MAX_ANSWER_BYTES,
            }),
            false => Ok(()),
        }
    }

    /// Returns the call with this index, a new one if there is none or no index.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when there are more calls than an answer may hold.
    pub fn call(&mut self, index: Option<u64>) -> Result<&mut DraftCall, ModelError> {
        let known = self
            .calls
            .iter()
            .position(|call| index.is_some() && call.index == index);
        let position = known.unwrap_or(self.calls.len());
        if position == self.calls.len() {
            if position == MAX_TOOL_CALLS {
                return Err(ModelError::Malformed(format!(
                    "it has more than {MAX_TOOL_CALLS} tool calls"
                )));
            }
            self.calls.push(DraftCall {
                index,
                ..DraftCall::default()
            });
        }
        Ok(&mut self.calls[position])
    }

    /// Returns the error of an answer that ended before the model had stopped.
    pub fn cut(&self, detail: &str) -> ModelError {
        ModelError::Cut {
            released: self.received,
            detail: detail.to_owned(),
        }
    }

    /// Ends the answer.
    pub fn end(self, finish_reason: String) -> AnswerEnd {
        let calls: Vec<Value> = self
            .calls
            .into_iter()
            .map(|call| {
                let (id, name) = (call.id, call.name);
                let arguments_json = call.arguments;
                NativeCall {
                    id,
                    name,
                    arguments_json,
                }
                .to_json()
            })
            .collect();
        AnswerEnd {
            finish_reason,
            usage: self.usage,
            tool_calls: (!calls.is_empty()).then_some(Value::Array(calls)),
            ..AnswerEnd::default()
        }
    }
}

/// Returns a count of tokens at `pointer`.
pub fn tokens(value: &Value, pointer: &str) -> Option<u32> {
    let count = value.pointer(pointer)?.as_u64()?;
    Some(u32::try_from(count).unwrap_or(u32::MAX))
}
