//! The hooks of plugins about turns and requests to models.

use agent_domain::message::{ChatMessage, Role};
use contracts::tavern::{
    common::v1::{ErrorReason, HookApplied, RunOutcome},
    registry::v1::HookDenial,
};
use grpc_kit::{CallContext, Failure};
use plugin_client::{HookClient, Point};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tonic::Code;

/// The longest text of a message that hooks see whole, in bytes.
const MAX_SHOWN_BYTES: usize = 16 << 10;

/// The most messages that hooks see, the newest; earlier ones are counted.
const MAX_SHOWN: usize = 128;

/// The most bytes of all messages that hooks see.
const MAX_SHOWN_TOGETHER: usize = 1 << 20;

/// A turn whose text passed through hooks.
#[derive(Debug, Default)]
pub(crate) struct HookedText {
    /// The text in the place of the user's; none if no hook changed it.
    pub(crate) text: Option<String>,
    /// The applications.
    pub(crate) applied: Vec<HookApplied>,
}

/// Passes the text of a user through the hooks before a turn.
///
/// # Errors
/// HOOK_DENIED, or a registry that does not answer.
pub(crate) async fn before_turn(
    hooks: &HookClient,
    context: &CallContext,
    (profile_id, conversation_id): (&str, &str),
    text: &str,
) -> Result<HookedText, Failure> {
    let act = || {
        json!({"turn": {
            "profile_id": profile_id,
            "conversation_id": conversation_id,
            "user_text": text,
        }})
    };
    let hooked = hooks.pass(context, Point::TurnBefore, act).await?;
    if let Some(denial) = hooked.denial {
        return Err(denied("the turn was not started", &denial));
    }
    let text = hooked
        .act
        .as_ref()
        .and_then(|act| act["turn"]["user_text"].as_str());
    Ok(HookedText {
        text: text.map(str::to_owned),
        applied: hooked.applied,
    })
}

/// Messages that hooks add to a request to a model.
#[derive(Debug, Default)]
pub(crate) struct AddedMessages {
    /// The messages, each with a line that names its plugin.
    pub(crate) messages: Vec<ChatMessage>,
    /// The applications.
    pub(crate) applied: Vec<HookApplied>,
    /// The refusal of the request.
    pub(crate) denial: Option<HookDenial>,
}

/// Passes a request to a model through the hooks before it.
///
/// # Errors
/// The registry does not answer.
pub(crate) async fn before_request(
    hooks: &HookClient,
    context: &CallContext,
    (model, profile_id): (&str, &str),
    messages: &[ChatMessage],
) -> Result<AddedMessages, Failure> {
    let (shown, earlier) = match hooks.may_have(Point::ModelBeforeRequest) {
        true => newest(messages),
        false => return Ok(AddedMessages::default()),
    };
    let act = || {
        json!({"request": {
            "model": model,
            "profile": profile_id,
            "earlier_messages": earlier,
            "messages": shown,
        }})
    };
    let hooked = hooks.pass(context, Point::ModelBeforeRequest, act).await?;
    let act = hooked.act.unwrap_or_default();
    let all = act["request"]["messages"].as_array().into_iter().flatten();
    let added = all.skip(messages.len() - earlier).filter_map(added);
    Ok(AddedMessages {
        messages: added.collect(),
        applied: hooked.applied,
        denial: hooked.denial,
    })
}

/// Shows the end of a turn to the hooks that observe it.
pub(crate) fn after_turn(
    hooks: &HookClient,
    context: &CallContext,
    (profile_id, conversation_id): (&str, &str),
    outcome: &RunOutcome,
) {
    hooks.observe(context, Point::TurnAfter, || {
        let text: Value = serde_json::from_str(&outcome.result_json).unwrap_or_default();
        let totals = outcome.model_totals.iter();
        let tokens = totals.clone().filter_map(|total| total.usage.as_ref());
        let input: u64 = tokens.clone().map(|usage| usage.input_tokens).sum();
        let output: u64 = tokens.map(|usage| usage.output_tokens).sum();
        let stop = outcome.stop_reason().as_str_name();
        let stop = stop.trim_start_matches("STOP_REASON_").to_ascii_lowercase();
        json!({"turn": {
            "profile_id": profile_id,
            "conversation_id": conversation_id,
            "stop_reason": stop,
            "text": text,
            "usage": {"input_tokens": input, "output_tokens": output},
        }})
    });
}

/// Makes the refusal of an act by a hook.
pub(crate) fn denied(refused: &str, denial: &HookDenial) -> Failure {
    let message = format!("{refused}: {}", denial.reason);
    Failure::new(Code::PermissionDenied, ErrorReason::HookDenied, message)
        .metadata("hook", &denial.hook)
        .metadata("code", &denial.code)
}

/// Returns the newest messages as hooks see them, the oldest of them first, and the number of those before.
fn newest(messages: &[ChatMessage]) -> (Vec<Value>, usize) {
    let mut room = MAX_SHOWN_TOGETHER;
    let newest = messages.iter().rev().take(MAX_SHOWN).map(shown);
    let mut newest: Vec<Value> = newest
        .take_while(|message| {
            let bytes = json_schema::text_bytes(message);
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        })
        .collect();
    newest.reverse();
    let earlier = messages.len() - newest.len();
    (newest, earlier)
}

/// Shows a message to hooks; a long text by its digest, and long calls by their number.
fn shown(message: &ChatMessage) -> Value {
    let text = &message.text;
    let mut shown = match message.bytes() - text.len() > MAX_SHOWN_BYTES {
        true => {
            json!({"role": message.role.as_str(), "content": text, "calls": message.calls.len()})
        }
        false => message.to_json(),
    };
    if text.len() > MAX_SHOWN_BYTES {
        shown["content"] = json!({
            "$blob": format!("sha256:{}", hex::encode(Sha256::digest(text))),
            "bytes": text.len(),
            "media_type": "text/plain",
        });
    }
    shown
}

/// Reads a message that a hook added.
fn added(message: &Value) -> Option<ChatMessage> {
    let role = match message["role"].as_str()? {
        "system" => Role::System,
        _ => Role::User,
    };
    let (plugin, text) = (message["plugin"].as_str()?, message["content"].as_str()?);
    let text = format!("(Added by the plugin {plugin}.)\n{text}");
    Some(ChatMessage::new(role, text))
}
