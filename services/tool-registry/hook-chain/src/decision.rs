//! The answer of a handler.

use json_patch::Patch;
use serde_json::{Map, Value};
use tool_domain::hook_point::HookPoint;

use crate::HookFailure;

/// The most operations of a patch.
const MAX_OPERATIONS: usize = 256;

/// The longest reason that is kept, in characters.
const MAX_REASON: usize = 2_000;

/// The decision of a hook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing changes.
    Continue,
    /// The payload changes.
    Replace {
        /// The change (RFC 6902).
        patch: Patch,
        /// The reason; may be empty.
        reason: String,
    },
    /// The act is refused.
    Deny {
        /// A code of the plugin.
        code: String,
        /// The reason; empty if the hook states none.
        reason: String,
    },
    /// The act is not carried out, and this is its output.
    Answer {
        /// The output.
        output: Value,
        /// The reason; may be empty.
        reason: String,
    },
}

impl Decision {
    /// Reads the answer of a handler at a point.
    ///
    /// # Errors
    /// It is not a decision that hooks of this point may take.
    pub(crate) fn read(point: HookPoint, answer: Value) -> Result<Self, HookFailure> {
        let wrong = |message: String| Err(HookFailure::wrong(message));
        let Value::Object(mut members) = answer else {
            return wrong(
                r#"must answer with an object such as {"action": "continue"}"#.to_owned(),
            );
        };
        let action = match members.remove("action") {
            Some(Value::String(action)) => action,
            _ => return wrong("must answer with an 'action' that is a text".to_owned()),
        };
        let actions = point.actions();
        if !actions.contains(&&*action) {
            let allowed = actions.join(", ");
            return wrong(format!(
                "answered '{action}', and at {point} it may answer {allowed}"
            ));
        }
        let reason = text(&mut members, "reason")?;
        let decision = match &*action {
            "replace" => Self::Replace {
                patch: patch(members.remove("patch"))?,
                reason,
            },
            "deny" => Self::Deny {
                code: code(&mut members)?,
                reason,
            },
            "answer" => match members.remove("output") {
                Some(output) => Self::Answer { output, reason },
                None => return wrong("must answer with the 'output'".to_owned()),
            },
            _ => Self::Continue,
        };
        match members.keys().next() {
            Some(key) => wrong(format!(
                "answered with '{key}', which '{action}' does not have"
            )),
            None => Ok(decision),
        }
    }
}

fn text(members: &mut Map<String, Value>, key: &str) -> Result<String, HookFailure> {
    match members.remove(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.chars().take(MAX_REASON).collect()),
        Some(_) => Err(HookFailure::wrong(format!(
            "answered with a '{key}' that is no text"
        ))),
    }
}

/// Reads the code of a refusal, which is a word such as `quiet_hours`.
fn code(members: &mut Map<String, Value>) -> Result<String, HookFailure> {
    let code = text(members, "code")?;
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match code.as_str() {
        "" => Ok("denied_by_hook".to_owned()),
        code if code.len() <= 64 && code.chars().all(is_word) => Ok(code.to_owned()),
        _ => Err(HookFailure::wrong(
            "answered with a 'code' that is no word of a-z, 0-9 and '_', at most 64",
        )),
    }
}

fn patch(patch: Option<Value>) -> Result<Patch, HookFailure> {
    let wrong = |message: String| Err(HookFailure::wrong(message));
    let Some(Value::Array(operations)) = patch else {
        return wrong("must answer with a 'patch' that is a list".to_owned());
    };
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        return wrong(format!(
            "answered with a patch of {count} operations; at most {MAX_OPERATIONS}"
        ));
    }
    serde_json::from_value(Value::Array(operations)).or_else(|error| {
        wrong(format!(
            "answered with a patch that is no JSON Patch: {error}"
        ))
    })
}
