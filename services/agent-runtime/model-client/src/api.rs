//! The common parts of all model APIs: a request that is written, and an answer that is put
//! together from the data of server-sent events. Pure conversions; one file per API implements it.

use agent_domain::usage::Usage;
use call_text::native::NativeCall;
use reqwest::header::{HeaderMap, InvalidHeaderValue};
use serde_json::Value;
use settings::Secret;

use super::{
    AnswerEnd, MAX_ANSWER_BYTES, ModelError, ModelRequest, Piece, finish,
    refusal::{in_answer, is_error},
};

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
    /// [`InvalidHeaderValue`] if the key has characters that no header can carry.
    fn headers(&self, key: Option<&Secret>) -> Result<HeaderMap, InvalidHeaderValue>;

    /// Writes a request for `model`.
    fn request_body(&self, model: &str, request: &ModelRequest) -> Value;

    /// Begins to put a streamed answer together.
    fn assembly(&self) -> Box<dyn Assembly>;

    /// Reads a whole answer, as endpoints that cannot stream return it.
    ///
    /// # Errors
    /// [`ModelError`] if it is not an answer.
    fn completion(&self, body: &Value) -> Result<(Vec<Piece>, AnswerEnd), ModelError>;
}

/// Reads the data of one event. Every API may end its answer with `[DONE]`.
///
/// # Errors
/// [`ModelError`] if it is not an event of an answer, or reports a failed answer.
pub fn push(assembly: &mut dyn Assembly, data: &str) -> Result<Vec<Piece>, ModelError> {
    match data.trim() {
        "" => return Ok(Vec::new()),
        "[DONE]" => {
            assembly.draft().done = true;
            return Ok(Vec::new());
        }
        _ => {}
    }
    let event: Value = serde_json::from_str(data)
        .map_err(|error| ModelError::Malformed(format!("an event is not JSON: {error}")))?;
    match event.is_object() {
        true if is_error(&event) => Err(in_answer(&event, assembly.draft().received)),
        true => assembly.push(&event),
        false => Err(ModelError::Malformed(
            "an event is not a JSON object".to_owned(),
        )),
    }
}

/// A streamed answer that is arriving.
pub trait Assembly: Send {
    /// Reads one event, a JSON object that is no error, and returns its text.
    ///
    /// # Errors
    /// [`ModelError`] if the answer is too large, or the event reports a failed answer.
    fn push(&mut self, event: &Value) -> Result<Vec<Piece>, ModelError>;

    /// Returns the answer so far.
    fn draft(&mut self) -> &mut Draft;

    /// Ends the answer; `detail` describes the end of the connection.
    ///
    /// # Errors
    /// As [`Draft::end`].
    fn finish(self: Box<Self>, detail: &str) -> Result<AnswerEnd, ModelError>;
}

/// An answer as far as it has arrived.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Bytes of text, thinking and calls.
    pub received: usize,
    /// The model's reason to stop, in the words of its API; missing before the model stops.
    pub finish_reason: Option<String>,
    /// The count of the endpoint.
    pub usage: Usage,
    /// Whether the endpoint has announced the end.
    pub done: bool,
    /// Whether there is a text that is more than white space.
    pub has_text: bool,
    /// The structured calls.
    pub calls: Vec<DraftCall>,
    /// The thought that is sent back with the calls; none if the model did not think.
    pub reasoning: Option<Value>,
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
    /// Whether the arguments came as a whole value, which pieces of text replace.
    is_whole: bool,
}

/// A part of a structured call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallPart<'a> {
    /// The index that the endpoint assigns to the call.
    pub index: Option<u64>,
    /// The id; empty where the part repeats none.
    pub id: &'a str,
    /// The name, or a part of it; empty where the part repeats none.
    pub name: &'a str,
    /// A piece of the arguments as text, or the whole arguments as another value.
    pub arguments: Option<&'a Value>,
}

impl DraftCall {
    /// Whether a part adds to this call. Some endpoints assign every call the same index, some
    /// repeat id and name in each part, and some send neither index nor id, so that arguments
    /// behind whole ones begin another call.
    fn takes(&self, part: &CallPart<'_>) -> bool {
        if !part.id.is_empty() && !self.id.is_empty() && part.id != self.id {
            return false;
        }
        if part.index.is_some() {
            return part.index == self.index;
        }
        if part.name.is_empty() {
            return true;
        }
        let has_arguments = part.arguments.is_some_and(|arguments| arguments != "");
        let is_complete = || serde_json::from_str::<Value>(&self.arguments).is_ok();
        part.name == self.name && !(has_arguments && is_complete())
    }

    fn add(&mut self, part: &CallPart<'_>) {
        if self.id.is_empty() {
            part.id.clone_into(&mut self.id);
        }
        if part.name != self.name {
            self.name.push_str(part.name);
        }
        match part.arguments {
            None | Some(Value::Null) => {}
            Some(Value::String(piece)) => {
                if std::mem::take(&mut self.is_whole) && !piece.is_empty() {
                    self.arguments.clear();
                }
                self.arguments.push_str(piece);
            }
            Some(whole) => {
                self.arguments = whole.to_string();
                self.is_whole = true;
            }
        }
    }
}

impl Draft {
    /// Counts received bytes.
    ///
    /// # Errors
    /// [`ModelError::TooLarge`] if the answer is longer than any may be.
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

    /// Counts a piece of text.
    ///
    /// # Errors
    /// As [`Draft::receive`].
    pub fn take_text(&mut self, text: &str) -> Result<Piece, ModelError> {
        self.has_text |= !text.trim().is_empty();
        self.receive(text.len())?;
        Ok(Piece::Text(text.to_owned()))
    }

    /// Adds a part to a call that has begun, or begins a new call.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] if there are more calls than an answer may hold, and as
    /// [`Draft::receive`].
    pub fn take_call(&mut self, part: &CallPart<'_>) -> Result<(), ModelError> {
        let arguments = match part.arguments {
            Some(Value::String(text)) => text.len(),
            Some(Value::Null) | None => 0,
            Some(whole) => json_schema::text_bytes(whole),
        };
        self.receive(part.id.len() + part.name.len() + arguments)?;
        let begun = match part.index.is_some() || !part.id.is_empty() {
            true => self.calls.iter_mut().rfind(|call| call.takes(part)),
            false => self.calls.last_mut().filter(|call| call.takes(part)),
        };
        if let Some(call) = begun {
            call.add(part);
            return Ok(());
        }
        if self.calls.len() == MAX_TOOL_CALLS {
            return Err(ModelError::Malformed(format!(
                "it has more than {MAX_TOOL_CALLS} tool calls"
            )));
        }
        let mut call = DraftCall {
            index: part.index,
            ..DraftCall::default()
        };
        call.add(part);
        self.calls.push(call);
        Ok(())
    }

    /// Ends the answer; `detail` describes the end of the connection.
    ///
    /// # Errors
    /// [`ModelError::Cut`] if the model reported no stop, [`ModelError::Unfinished`] if it stopped
    /// for a reason that ends no whole answer, or without the calls or the text that the reason
    /// implies.
    pub fn end(self, detail: &str) -> Result<AnswerEnd, ModelError> {
        let released = self.received;
        let unfinished = |why: String| Err(ModelError::Unfinished { why, released });
        let reason = match self.finish_reason.as_deref() {
            Some(named) => match finish::reason(named) {
                Some(reason) => reason,
                None => return unfinished(format!("its reason is `{}`", cut(named))),
            },
            // Some servers end with the marker alone.
            None if self.done && self.received > 0 => "stop",
            None => {
                return Err(ModelError::Cut {
                    released,
                    detail: detail.to_owned(),
                });
            }
        };
        if reason == "tool_calls" && self.calls.is_empty() {
            return unfinished("it speaks of calls and holds none".to_owned());
        }
        if reason != "refused" && self.calls.is_empty() && !self.has_text {
            return unfinished("it holds neither a text nor a call".to_owned());
        }
        let calls: Vec<Value> = self.calls.into_iter().map(DraftCall::into_json).collect();
        Ok(AnswerEnd {
            finish_reason: reason.to_owned(),
            usage: self.usage,
            tool_calls: (!calls.is_empty()).then_some(Value::Array(calls)),
            reasoning: self.reasoning.map(Box::new),
            ..AnswerEnd::default()
        })
    }
}

impl DraftCall {
    fn into_json(self) -> Value {
        let arguments_json = match self.arguments.trim() {
            "" | "null" => "{}".to_owned(),
            _ => self.arguments,
        };
        let (id, name) = (self.id, self.name);
        NativeCall {
            id,
            name,
            arguments_json,
        }
        .to_json()
    }
}

/// Returns the beginning of a word that an endpoint names.
fn cut(named: &str) -> String {
    named.chars().take(80).collect()
}

/// Returns a count of tokens at `pointer`.
pub fn tokens(value: &Value, pointer: &str) -> Option<u32> {
    let count = value.pointer(pointer)?.as_u64()?;
    Some(u32::try_from(count).unwrap_or(u32::MAX))
}
