//! The chat-completions wire of OpenAI and of all endpoints that are compatible with it.

mod reasoning;

use agent_domain::{message::Role, usage::Usage};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, InvalidHeaderValue};
use serde_json::{Map, Value, json};
use settings::Secret;

use super::{
    AnswerEnd, ModelError, ModelRequest, Piece,
    api::{Assembly, CallPart, Draft, ModelApi, tokens},
    finish::is_failure,
    refusal::{in_answer, is_error, vendor_message},
};
use reasoning::Reasoning;

/// Chat completions.
#[derive(Clone, Copy, Debug)]
pub struct OpenAi;

impl ModelApi for OpenAi {
    fn kind(&self) -> &'static str {
        "openai"
    }

    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn headers(&self, key: Option<&Secret>) -> Result<HeaderMap, InvalidHeaderValue> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// Answers without text and calls are left out: endpoints refuse them.
    fn request_body(&self, model: &str, request: &ModelRequest) -> Value {
        let messages: Vec<Value> = request
            .messages
            .iter()
            .filter(|message| {
                message.role != Role::Assistant
                    || !message.text.trim().is_empty()
                    || !message.calls.is_empty()
            })
            .map(reasoning::with_message)
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
            let choice = if request.may_call { "auto" } else { "none" };
            body.insert("tool_choice".to_owned(), choice.into());
        }
        Value::Object(body)
    }

    fn assembly(&self) -> Box<dyn Assembly> {
        Box::new(Chunks::default())
    }

    fn completion(&self, body: &Value) -> Result<(Vec<Piece>, AnswerEnd), ModelError> {
        let Some(choice) = body.pointer("/choices/0") else {
            return Err(ModelError::Malformed(format!(
                "the body has no choices: {}",
                vendor_message(body)
            )));
        };
        let mut chunks = Chunks::default();
        let mut pieces = Vec::new();
        chunks.take_usage(body);
        chunks.take_choice(
            choice,
            choice.get("message").unwrap_or(&Value::Null),
            &mut pieces,
        )?;
        chunks.draft.done = true;
        let end = Box::new(chunks).finish("the answer says no reason for its end")?;
        Ok((pieces, end))
    }
}

/// Assembles the chunks of a streamed answer.
#[derive(Debug, Default)]
struct Chunks {
    draft: Draft,
    reasoning: Reasoning,
    refused: bool,
}

impl Assembly for Chunks {
    fn push(&mut self, event: &Value) -> Result<Vec<Piece>, ModelError> {
        self.take_usage(event);
        let mut pieces = Vec::new();
        if let Some(choice) = event.pointer("/choices/0") {
            let delta = choice.get("delta").unwrap_or(&Value::Null);
            self.take_choice(choice, delta, &mut pieces)?;
        }
        Ok(pieces)
    }

    fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    fn finish(mut self: Box<Self>, detail: &str) -> Result<AnswerEnd, ModelError> {
        if self.refused && self.draft.finish_reason.is_some() {
            self.draft.finish_reason = Some("content_filter".to_owned());
        }
        self.draft.reasoning = self.reasoning.into_json();
        self.draft.end(detail)
    }
}

impl Chunks {
    fn take_usage(&mut self, event: &Value) {
        let usage = &mut self.draft.usage;
        *usage = Usage {
            input_tokens: tokens(event, "/usage/prompt_tokens").unwrap_or(usage.input_tokens),
            cache_read_tokens: tokens(event, "/usage/prompt_tokens_details/cached_tokens")
                .unwrap_or(usage.cache_read_tokens),
            output_tokens: tokens(event, "/usage/completion_tokens").unwrap_or(usage.output_tokens),
            ..*usage
        };
    }

    fn take_choice(
        &mut self,
        choice: &Value,
        delta: &Value,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), ModelError> {
        if is_error(choice) {
            return Err(in_answer(choice, self.draft.received));
        }
        let text = |key: &str| {
            let text = delta.get(key).and_then(Value::as_str);
            text.filter(|text| !text.is_empty())
        };
        if let Some(thinking) = self.reasoning.take(delta) {
            self.draft.receive(thinking.len())?;
            pieces.push(Piece::Thinking(thinking.to_owned()));
        }
        self.refused |= text("refusal").is_some();
        for content in [text("content"), text("refusal")].into_iter().flatten() {
            pieces.push(self.draft.take_text(content)?);
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            let index = call.get("index").and_then(Value::as_u64);
            let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
            self.take_call(index, id, call.get("function"))?;
        }
        self.take_call(None, "", delta.get("function_call"))?;
        let reason = |key: &str| choice.get(key).and_then(Value::as_str);
        if let Some(reason) = reason("finish_reason").filter(|reason| !reason.is_empty()) {
            self.draft.finish_reason = Some(reason.to_owned());
        }
        if let Some(native) = reason("native_finish_reason").filter(|native| is_failure(native)) {
            self.draft.finish_reason = Some(native.to_owned());
        }
        Ok(())
    }

    fn take_call(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: Option<&Value>,
    ) -> Result<(), ModelError> {
        let Some(function) = function.filter(|function| function.is_object()) else {
            return Ok(());
        };
        let name = function.get("name").and_then(Value::as_str);
        self.draft.take_call(&CallPart {
            index,
            id,
            name: name.unwrap_or_default(),
            arguments: function.get("arguments"),
        })
    }
}

#[cfg(test)]
mod tests;
