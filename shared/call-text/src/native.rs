//! Structured calls of model APIs: from the provider's shapes to typed calls (L8).

mod given;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dialect::context::Context;
use crate::dialect::json::arguments_of;
use crate::dialect::raw::RawCall;
use crate::{
    Block, BlockEnd, Call, Catalogue, Class, Diagnostic, Dialect, FinishReason, Parsed, Policy,
    Problem, ProblemCode, Rule, Severity, Span, typing,
};

pub use given::{Given, read};

/// A structured call as a provider sends it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NativeCall {
    /// The provider's id, to be given back with the result.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments_json: String,
}

/// Some servers send the arguments as an object instead of as text.
fn json_text(arguments: Option<&Value>) -> String {
    match arguments {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Puts streamed chat-completions deltas together.
#[derive(Debug, Clone, Default)]
pub struct OpenAiDeltas {
    calls: BTreeMap<u64, NativeCall>,
    bytes: usize,
}

/// More streamed arguments than this are not kept.
const MOST_BYTES: usize = 4 << 20;
const MOST_CALLS: usize = 256;

impl OpenAiDeltas {
    /// Takes the `delta` of a choice; gives the names of calls that became known with it.
    pub fn push(&mut self, delta: &Value) -> Vec<String> {
        let mut named = Vec::new();
        for part in delta
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            // Servers that leave the index out send whole calls.
            let next = self.calls.len() as u64;
            let index = part.get("index").and_then(Value::as_u64).unwrap_or(next);
            if self.calls.len() >= MOST_CALLS && !self.calls.contains_key(&index) {
                continue;
            }
            let call = self.calls.entry(index).or_default();
            if let Some(id) = part
                .get("id")
                .and_then(Value::as_str)
                .filter(|id| !id.is_empty())
            {
                call.id = id.to_owned();
            }
            let Some(function) = part.get("function") else {
                continue;
            };
            if let Some(name) = function
                .get("name")
                .and_then(Value::as_str)
                .filter(|name| !name.is_empty())
            {
                // Some servers repeat the name in every delta.
                if call.name != name {
                    call.name.push_str(name);
                    named.push(call.name.clone());
                }
            }
            let more = json_text(function.get("arguments"));
            if self.bytes + more.len() <= MOST_BYTES {
                self.bytes += more.len();
                call.arguments_json.push_str(&more);
            }
        }
        named
    }

    /// The calls in order of their index.
    pub fn finish(self) -> Vec<NativeCall> {
        self.calls
            .into_values()
            .filter(|call| !call.name.is_empty())
            .collect()
    }
}

/// Puts streamed Anthropic events together: `content_block_start` and `content_block_delta`.
#[derive(Debug, Clone, Default)]
pub struct AnthropicEvents {
    calls: BTreeMap<u64, NativeCall>,
    bytes: usize,
}

impl AnthropicEvents {
    /// Takes one event; gives the name of a call that became known with it.
    pub fn push(&mut self, event: &Value) -> Option<String> {
        let index = event.get("index").and_then(Value::as_u64)?;
        if let Some(block) = event.get("content_block") {
            let started = given::read(block).calls.into_iter().next()?;
            if self.calls.len() >= MOST_CALLS {
                return None;
            }
            let name = started.name.clone();
            // The input of a start is an empty object; the text follows in deltas.
            let arguments_json = if started.arguments_json == "{}" {
                String::new()
            } else {
                started.arguments_json
            };
            self.calls.insert(
                index,
                NativeCall {
                    arguments_json,
                    ..started
                },
            );
            return Some(name);
        }
        let more = event.get("delta")?.get("partial_json")?.as_str()?;
        let call = self.calls.get_mut(&index)?;
        if self.bytes + more.len() <= MOST_BYTES {
            self.bytes += more.len();
            call.arguments_json.push_str(more);
        }
        None
    }

    /// The calls in order of their blocks.
    pub fn finish(self) -> Vec<NativeCall> {
        self.calls.into_values().collect()
    }
}

/// Types structured calls against the visible tools. Of those beyond the limit of calls, the first
/// stands for all with a problem.
pub fn typed(calls: &[NativeCall], catalogue: &Catalogue, policy: &Policy) -> Vec<Call> {
    let context = Context {
        catalogue,
        policy,
        finish: FinishReason::ToolCalls,
        quiet: true,
    };
    let most = policy.limits.calls;
    calls
        .iter()
        .take(most.saturating_add(1))
        .enumerate()
        .map(|(at, native)| {
            let mut problems = Vec::new();
            if at == most {
                let message = format!(
                    "the limit of {most} calls in one message was reached; {} were not read",
                    calls.len() - most
                );
                let code = ProblemCode::LimitExceeded;
                problems.push(Problem::new(code, Rule::V13, Span::default(), message));
            }
            let arguments = arguments_of(
                Some(Value::String(native.arguments_json.clone())),
                Span::default(),
                &mut problems,
            );
            let raw = RawCall {
                name: native.name.clone(),
                arguments,
                problems,
                dialect: Some(Dialect::Native),
                provider_id: native.id.clone(),
                ..RawCall::default()
            };
            typing::type_native(raw, &context)
        })
        .collect()
}

/// Adds structured calls to what the text of the same message said (L8): the text comes first, a
/// call that both hold runs once, and where they differ the text wins and the rest is reported.
pub fn supplement(parsed: &mut Parsed, native: Vec<Call>) {
    if native.is_empty() {
        return;
    }
    let from_text: Vec<String> = parsed
        .calls
        .iter()
        .filter(|call| call.runs)
        .map(|call| call.canonical())
        .collect();
    let text_decides = parsed.blocks.iter().any(|block| block.runs);
    let index = parsed.blocks.len();
    let mut kept = Vec::new();
    for mut call in native {
        call.block = index;
        if from_text.contains(&call.canonical()) {
            parsed.diagnostics.push(remark(
                "native_call_repeated",
                &format!("the native call of {} is the one in the text", call.tool_id),
            ));
            continue;
        }
        if text_decides {
            call.runs = false;
            parsed.diagnostics.push(remark(
                "native_call_ignored",
                &format!(
                    "the native call of {} differs from the text and was not run",
                    call.tool_id
                ),
            ));
        }
        kept.push(Arc::new(call));
    }
    if kept.is_empty() {
        return;
    }
    parsed.dialect.get_or_insert(Dialect::Native);
    let end = parsed.segments.last().map_or(0, |segment| segment.span.end);
    parsed.blocks.push(Block {
        dialect: Dialect::Native,
        span: Span::new(end, end),
        end: BlockEnd::Closed,
        runs: !text_decides,
        not_run_because: if text_decides {
            "the text holds calls already".to_owned()
        } else {
            String::new()
        },
        problems: Vec::new(),
        controls: serde_json::Map::new(),
    });
    parsed.calls.extend(kept);
}

fn remark(code: &str, message: &str) -> Diagnostic {
    Diagnostic {
        rule: Rule::L8,
        class: Some(Class::Verbatim),
        severity: Severity::Warning,
        code: code.to_owned(),
        span: Span::default(),
        message: message.to_owned(),
        hint: String::new(),
    }
}

#[cfg(test)]
mod tests;
