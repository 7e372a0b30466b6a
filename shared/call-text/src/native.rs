//! Structured calls of model APIs: from the provider's shapes to typed calls (L8).

mod given;

use std::sync::Arc;

use call_catalogue::{
    Catalogue, Class, Diagnostic, Dialect, Problem, ProblemCode, Rule, Severity, Span,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dialect::context::Context;
use crate::dialect::json::arguments_of;
use crate::dialect::raw::RawCall;
use crate::{Block, BlockEnd, Call, FinishReason, Parsed, Policy, typing};

pub use given::{Given, read};

/// A structured call as a provider sends it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NativeCall {
    /// The provider's id, to be returned with the result.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments_json: String,
}

/// A structured call that has ended, as a message with its result names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedCall {
    /// The id of the call.
    pub id: String,
    /// Whether it did not succeed.
    pub failed: bool,
}

impl NativeCall {
    /// Writes the call as an item of OpenAI's `tool_calls`.
    pub fn to_json(&self) -> Value {
        json!({"id": self.id, "type": "function",
               "function": {"name": self.name, "arguments": self.arguments_json}})
    }
}

/// Some servers send the arguments as an object instead of as text.
fn json_text(arguments: Option<&Value>) -> String {
    match arguments {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Types structured calls against the visible tools. The first call beyond the limit of calls
/// represents all further calls, with a problem.
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

/// Adds structured calls to the parsed text of the same message (L8): the text comes first, a
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
