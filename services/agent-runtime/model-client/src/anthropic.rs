//! The messages wire of Anthropic and of all endpoints that are compatible with it.

mod thinking;

use std::collections::BTreeSet;

use agent_domain::{
    message::{ChatMessage, Role},
    usage::Usage,
};
use call_text::native::NativeCall;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use serde_json::{Map, Value, json};
use settings::Secret;

use super::{
    AnswerEnd, ModelError, ModelRequest, Piece,
    api::{Assembly, CallPart, Draft, ModelApi, tokens},
    refusal::vendor_message,
};

/// The limit of an answer without any other limit: the API requires one.
const DEFAULT_MAX_TOKENS: u32 = 4_096;
/// The version of the API.
const VERSION: &str = "2023-06-01";
/// The text of the user where the model spoke first: the API begins with the user.
const BEGINNING: &str = "(The conversation begins.)";

/// The messages API.
#[derive(Clone, Copy, Debug)]
pub struct Anthropic;

impl ModelApi for Anthropic {
    fn kind(&self) -> &'static str {
        "anthropic"
    }

    fn path(&self) -> &'static str {
        "/messages"
    }

    fn headers(&self, key: Option<&Secret>) -> Result<HeaderMap, InvalidHeaderValue> {
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static("anthropic-version"),
            HeaderValue::from_static(VERSION),
        );
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(key.expose())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-api-key"), value);
        }
        Ok(headers)
    }

    fn request_body(&self, model: &str, request: &ModelRequest) -> Value {
        let leading = request
            .messages
            .iter()
            .take_while(|message| message.role == Role::System)
            .count();
        let (instructions, conversation) = request.messages.split_at(leading);
        let mut body = Map::new();
        body.insert("model".to_owned(), model.into());
        let limit = request.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        body.insert("max_tokens".to_owned(), limit.into());
        let system: Vec<&str> = instructions
            .iter()
            .map(|message| message.text.as_str())
            .filter(|text| !text.trim().is_empty())
            .collect();
        if !system.is_empty() {
            body.insert("system".to_owned(), system.join("\n\n").into());
        }
        body.insert("stream".to_owned(), true.into());
        body.insert("messages".to_owned(), messages(conversation));
        if let Some(temperature) = request.temperature {
            body.insert("temperature".to_owned(), temperature.into());
        }
        if let Some(top_p) = request.top_p {
            body.insert("top_p".to_owned(), top_p.into());
        }
        let called = called(&request.messages);
        let (tools, may_call) = match request.tools.is_empty() {
            // The API refuses calls of a conversation whose tools are not declared.
            true => (&called, false),
            false => (&request.tools, request.may_call),
        };
        if !tools.is_empty() {
            body.insert("tools".to_owned(), tools.iter().map(tool).collect());
            let choice = if may_call { "auto" } else { "none" };
            body.insert("tool_choice".to_owned(), json!({"type": choice}));
        }
        Value::Object(body)
    }

    fn assembly(&self) -> Box<dyn Assembly> {
        Box::new(Events::default())
    }

    fn completion(&self, body: &Value) -> Result<(Vec<Piece>, AnswerEnd), ModelError> {
        let Some(content) = body.get("content").and_then(Value::as_array) else {
            return Err(ModelError::Malformed(format!(
                "the body has no content: {}",
                vendor_message(body)
            )));
        };
        let mut events = Events::default();
        let mut pieces = Vec::new();
        for (index, block) in (0..).zip(content) {
            events.open_block(Some(index), block, &mut pieces)?;
        }
        events.take_usage(body.get("usage"));
        events.take_reason(body);
        let end = Box::new(events).finish("the answer says no reason for its end")?;
        Ok((pieces, end))
    }
}

/// Writes the conversation: neighbours of one role are one message, the first is the user's, empty
/// text and white space after an answer are left out (rule G503).
fn messages(conversation: &[ChatMessage]) -> Value {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in conversation {
        let (role, text) = match message.role {
            Role::Assistant => ("assistant", message.text.trim_end()),
            Role::User | Role::System | Role::Tool => ("user", message.text.as_str()),
        };
        let mut blocks = Vec::new();
        blocks.extend(thinking::of_calls(message));
        if let Some(ended) = &message.result_of {
            blocks.push(
                json!({"type": "tool_result", "tool_use_id": ended.id, "content": text,
                               "is_error": ended.failed}),
            );
        } else if !text.trim().is_empty() {
            blocks.push(json!({"type": "text", "text": text}));
        }
        blocks.extend(message.calls.iter().map(tool_use));
        if blocks.is_empty() {
            continue;
        }
        match turns.last_mut().filter(|(last, _)| *last == role) {
            Some((_, earlier)) => earlier.extend(blocks),
            None => turns.push((role, blocks)),
        }
    }
    if turns.first().is_none_or(|(role, _)| *role != "user") {
        turns.insert(
            0,
            ("user", vec![json!({"type": "text", "text": BEGINNING})]),
        );
    }
    let message = |(role, content)| json!({"role": role, "content": Value::Array(content)});
    turns.into_iter().map(message).collect()
}

/// Returns the tools of the native calls of a conversation, each once.
fn called(conversation: &[ChatMessage]) -> Vec<Value> {
    let calls = conversation.iter().flat_map(|message| &message.calls);
    let names: BTreeSet<&str> = calls.map(|call| call.name.as_str()).collect();
    names.iter().map(|name| json!({"name": name})).collect()
}

/// Writes a native call. Arguments that are no JSON object were never carried out.
fn tool_use(call: &NativeCall) -> Value {
    let input = serde_json::from_str::<Map<String, Value>>(&call.arguments_json);
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input.unwrap_or_default()})
}

/// Writes a tool, which has its schema under another name here.
fn tool(tool: &Value) -> Value {
    let mut written = Map::new();
    for key in ["name", "description"] {
        if let Some(value) = tool.get(key) {
            written.insert(key.to_owned(), value.clone());
        }
    }
    let schema = tool.get("parameters").cloned();
    written.insert(
        "input_schema".to_owned(),
        schema.unwrap_or_else(|| json!({"type": "object"})),
    );
    Value::Object(written)
}

/// Assembles the events of a streamed answer.
#[derive(Debug, Default)]
struct Events {
    draft: Draft,
    /// The blocks in which the model thought.
    thinking: Vec<Map<String, Value>>,
}

impl Assembly for Events {
    fn push(&mut self, event: &Value) -> Result<Vec<Piece>, ModelError> {
        let index = event.get("index").and_then(Value::as_u64);
        let mut pieces = Vec::new();
        match event.get("type").and_then(Value::as_str) {
            Some("message_start") => self.take_usage(event.pointer("/message/usage")),
            Some("content_block_start") => {
                let block = event.get("content_block").unwrap_or(&Value::Null);
                self.open_block(index, block, &mut pieces)?;
            }
            Some("content_block_delta") => {
                let delta = event.get("delta").unwrap_or(&Value::Null);
                self.take_delta(index, delta, &mut pieces)?;
            }
            Some("message_delta") => {
                self.take_usage(event.get("usage"));
                self.take_reason(event.get("delta").unwrap_or(&Value::Null));
            }
            Some("message_stop") => self.draft.done = true,
            // `ping`, `content_block_stop`, and the additions of later versions.
            _ => {}
        }
        Ok(pieces)
    }

    fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    fn finish(mut self: Box<Self>, detail: &str) -> Result<AnswerEnd, ModelError> {
        self.draft.reasoning = thinking::to_json(self.thinking);
        // The event of the end does not replace a reason.
        self.draft.done = false;
        self.draft.end(detail)
    }
}

impl Events {
    fn open_block(
        &mut self,
        index: Option<u64>,
        block: &Value,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), ModelError> {
        if block.get("type").and_then(Value::as_str) != Some("tool_use") {
            self.thinking.extend(thinking::begun(block));
            return self.take_delta(index, block, pieces);
        }
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default();
        self.draft.take_call(&CallPart {
            index,
            id: text("id"),
            name: text("name"),
            // A streamed call opens with an empty object, and its arguments follow as text.
            arguments: block
                .get("input")
                .filter(|input| input.as_object().is_some_and(|input| !input.is_empty())),
        })
    }

    fn take_delta(
        &mut self,
        index: Option<u64>,
        delta: &Value,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), ModelError> {
        let text = |key: &str| {
            let text = delta.get(key).and_then(Value::as_str);
            text.filter(|text| !text.is_empty())
        };
        if let Some(thinking) = self.thinking.last_mut() {
            self.draft.receive(thinking::add(thinking, delta))?;
        }
        if let Some(thinking) = text("thinking") {
            self.draft.receive(thinking.len())?;
            pieces.push(Piece::Thinking(thinking.to_owned()));
        }
        if let Some(content) = text("text") {
            pieces.push(self.draft.take_text(content)?);
        }
        if text("partial_json").is_some() {
            self.draft.take_call(&CallPart {
                index,
                arguments: delta.get("partial_json"),
                ..CallPart::default()
            })?;
        }
        Ok(())
    }

    /// Adds counts; a count in a later event replaces the earlier one.
    fn take_usage(&mut self, usage: Option<&Value>) {
        let Some(counted) = usage else { return };
        let usage = &mut self.draft.usage;
        let cached = usage
            .cache_read_tokens
            .saturating_add(usage.cache_write_tokens);
        let fresh = usage.input_tokens.saturating_sub(cached);
        let fresh = tokens(counted, "/input_tokens").unwrap_or(fresh);
        let cache_read =
            tokens(counted, "/cache_read_input_tokens").unwrap_or(usage.cache_read_tokens);
        let cache_write =
            tokens(counted, "/cache_creation_input_tokens").unwrap_or(usage.cache_write_tokens);
        *usage = Usage {
            input_tokens: fresh.saturating_add(cache_read).saturating_add(cache_write),
            cache_read_tokens: cache_read,
            cache_write_tokens: cache_write,
            output_tokens: tokens(counted, "/output_tokens").unwrap_or(usage.output_tokens),
        };
    }

    fn take_reason(&mut self, said: &Value) {
        let Some(reason) = said.get("stop_reason").and_then(Value::as_str) else {
            return;
        };
        self.draft.finish_reason = Some(reason.to_owned());
    }
}

#[cfg(test)]
mod tests;
