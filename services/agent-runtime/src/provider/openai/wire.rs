//! The chat-completions wire, as pure conversions.
//!
//! [`request_body`] writes a request; an [`Assembly`] takes the data of server-sent events one by
//! one, and [`completion`] takes a whole answer, which endpoints give that cannot stream.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::{
    domain::message::Role,
    provider::{AnswerEnd, MAX_ANSWER_BYTES, ModelError, ModelRequest, Piece},
};

/// The most structured calls that one answer may hold.
const MAX_TOOL_CALLS: usize = 64;
/// How much of a vendor's message is passed on, in characters.
const MAX_VENDOR_MESSAGE: usize = 500;

/// Writes a request for `model`.
///
/// Messages without text are left out: endpoints refuse them, and an answer that held structured
/// calls only may have none.
pub fn request_body(model: &str, request: &ModelRequest) -> Value {
    let messages: Vec<Value> = request
        .messages
        .iter()
        .filter(|message| message.role != Role::Assistant || !message.text.trim().is_empty())
        .map(|message| json!({"role": message.role.as_str(), "content": message.text}))
        .collect();
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("messages".to_owned(), messages.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    if let Some(limit) = request.max_output_tokens {
        body.insert("max_tokens".to_owned(), limit.into());
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature".to_owned(), temperature.into());
    }
    if let Some(top_p) = request.top_p {
        body.insert("top_p".to_owned(), top_p.into());
    }
    if let Some(seed) = request.seed {
        body.insert("seed".to_owned(), seed.into());
    }
    if !request.tools.is_empty() {
        let function = |tool: &Value| json!({"type": "function", "function": tool});
        body.insert(
            "tools".to_owned(),
            request.tools.iter().map(function).collect(),
        );
    }
    Value::Object(body)
}

/// Puts the pieces of a streamed answer together.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    events: usize,
    released: usize,
    finish_reason: Option<String>,
    input_tokens: u32,
    output_tokens: u32,
    tool_calls: Vec<ToolCall>,
    done: bool,
}

#[derive(Clone, Debug, Default)]
struct ToolCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Assembly {
    /// Takes the data of one event and returns the text that it brings.
    ///
    /// # Errors
    /// [`ModelError`] when it is no event of an answer, or one that reports a failed answer.
    pub fn push(&mut self, data: &str) -> Result<Vec<Piece>, ModelError> {
        self.events += 1;
        if data.trim() == "[DONE]" {
            self.done = true;
            return Ok(Vec::new());
        }
        let event: Value = serde_json::from_str(data).map_err(|error| {
            ModelError::Malformed(format!("event {} is not JSON: {error}", self.events))
        })?;
        if !event.is_object() {
            return Err(ModelError::Malformed(format!(
                "event {} is not a JSON object",
                self.events
            )));
        }
        if event.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ModelError::Vendor {
                message: vendor_message(data),
                released: self.released,
            });
        }
        self.take_usage(&event);
        let mut pieces = Vec::new();
        if let Some(choice) = event.pointer("/choices/0") {
            let delta = choice.get("delta").unwrap_or(&Value::Null);
            self.take_choice(choice, delta, &mut pieces)?;
        }
        Ok(pieces)
    }

    /// Returns whether the endpoint has said that nothing follows.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// [`ModelError::Cut`] when the model never said that it had stopped; `detail` says how the
    /// connection ended.
    pub fn finish(self, detail: &str) -> Result<AnswerEnd, ModelError> {
        let finish_reason = match self.finish_reason {
            Some(reason) => reason,
            // Some servers end with the marker alone.
            None if self.done && self.released > 0 => "stop".to_owned(),
            None => {
                return Err(ModelError::Cut {
                    released: self.released,
                    detail: detail.to_owned(),
                });
            }
        };
        let calls: Vec<Value> = self
            .tool_calls
            .into_iter()
            .map(|call| {
                json!({"id": call.id, "type": "function",
                       "function": {"name": call.name, "arguments": call.arguments}})
            })
            .collect();
        Ok(AnswerEnd {
            finish_reason,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            tool_calls: (!calls.is_empty()).then_some(Value::Array(calls)),
        })
    }

    fn take_usage(&mut self, event: &Value) {
        let tokens = |key: &str| {
            let count = event
                .pointer(&format!("/usage/{key}"))
                .and_then(Value::as_u64)?;
            Some(u32::try_from(count).unwrap_or(u32::MAX))
        };
        self.input_tokens = tokens("prompt_tokens").unwrap_or(self.input_tokens);
        self.output_tokens = tokens("completion_tokens").unwrap_or(self.output_tokens);
    }

    fn take_choice(
        &mut self,
        choice: &Value,
        delta: &Value,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), ModelError> {
        let text = |key: &str| {
            delta
                .get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        if let Some(thinking) = text("reasoning_content").or_else(|| text("reasoning")) {
            self.release(thinking.len())?;
            pieces.push(Piece::Thinking(thinking.to_owned()));
        }
        if let Some(content) = text("content") {
            self.release(content.len())?;
            pieces.push(Piece::Text(content.to_owned()));
        }
        for call in delta
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            self.take_call(call)?;
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish_reason = Some(reason.to_owned());
        }
        Ok(())
    }

    /// Adds to the call with the same index; endpoints without indexes send whole calls.
    fn take_call(&mut self, delta: &Value) -> Result<(), ModelError> {
        let index = delta.get("index").and_then(Value::as_u64);
        let text = |pointer: &str| {
            delta
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (id, name, arguments) = (
            text("/id"),
            text("/function/name"),
            text("/function/arguments"),
        );
        self.release(id.len() + name.len() + arguments.len())?;
        let known = self
            .tool_calls
            .iter()
            .position(|call| index.is_some() && call.index == index);
        let position = known.unwrap_or(self.tool_calls.len());
        if position == self.tool_calls.len() {
            if position == MAX_TOOL_CALLS {
                return Err(ModelError::Malformed(format!(
                    "it has more than {MAX_TOOL_CALLS} tool calls"
                )));
            }
            self.tool_calls.push(ToolCall {
                index,
                ..ToolCall::default()
            });
        }
        let call = &mut self.tool_calls[position];
        call.id.push_str(id);
        call.name.push_str(name);
        call.arguments.push_str(arguments);
        Ok(())
    }

    fn release(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.released += bytes;
        match self.released > MAX_ANSWER_BYTES {
            true => Err(ModelError::TooLarge {
                what: "text",
                limit: MAX_ANSWER_BYTES,
            }),
            false => Ok(()),
        }
    }
}

/// Reads a whole answer that was not streamed.
///
/// # Errors
/// [`ModelError`] when it is no answer.
pub fn completion(body: &str) -> Result<(Vec<Piece>, AnswerEnd), ModelError> {
    let value: Value = serde_json::from_str(body)
        .map_err(|error| ModelError::Malformed(format!("the body is not JSON: {error}")))?;
    let Some(choice) = value.pointer("/choices/0") else {
        return Err(ModelError::Malformed(format!(
            "the body has no choices: {}",
            vendor_message(body)
        )));
    };
    let mut assembly = Assembly::default();
    let mut pieces = Vec::new();
    assembly.take_usage(&value);
    assembly.take_choice(
        choice,
        choice.get("message").unwrap_or(&Value::Null),
        &mut pieces,
    )?;
    assembly.done = true;
    Ok((
        pieces,
        assembly.finish("the answer says no reason for its end")?,
    ))
}

/// Returns what a vendor says in the body of an error, cut.
pub fn vendor_message(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let places = ["/error/message", "/error", "/message", "/detail"];
    let said = places
        .iter()
        .find_map(|place| value.pointer(place).and_then(Value::as_str));
    let said = said.unwrap_or(body).trim();
    let said = if said.is_empty() {
        "it gave no reason"
    } else {
        said
    };
    let printable = said.chars().map(|character| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    });
    printable.take(MAX_VENDOR_MESSAGE).collect()
}

/// Reads when to ask again: `retry-after-ms`, or `retry-after` as seconds or as a date.
pub fn retry_after(
    milliseconds: Option<&str>,
    header: Option<&str>,
    now: SystemTime,
) -> Option<Duration> {
    if let Some(milliseconds) = milliseconds.and_then(|text| text.trim().parse::<u64>().ok()) {
        return Some(Duration::from_millis(milliseconds));
    }
    let header = header?.trim();
    if let Ok(seconds) = header.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(header).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests;
