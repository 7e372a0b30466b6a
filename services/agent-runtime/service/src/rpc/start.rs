//! StartTurn: reading and checking the request.

use std::num::NonZeroU32;

use agent_domain::{
    budgets::Limits,
    message::ChatMessage,
    plan::{Opening, Sampling, TurnInput},
};
use contracts::tavern::{
    agent::v1::{self as proto, StartTurnRequest, start_turn_request::Input},
    common::v1 as common,
};
use core_types::{ConversationId, IdSource, RequestId};
use grpc_kit::Failure;
use turn_log::wire;

/// The longest text of one message, in bytes.
const MAX_TEXT_BYTES: usize = 512 << 10;
/// The longest form of the opening that the log can hold, in bytes of JSON.
const MAX_TEXT_JSON_BYTES: usize = 900 << 10;
/// The most messages of a request.
const MAX_MESSAGES: usize = 500;
/// The most text of all of them, in bytes.
const MAX_MESSAGES_BYTES: usize = 1 << 20;

/// The contents of a request, apart from the profile.
pub(super) struct StartOptions {
    pub(super) input: TurnInput,
    pub(super) conversation_id: String,
    pub(super) budgets: Limits,
    pub(super) sampling: Sampling,
    pub(super) dialect: Option<call_catalogue::Dialect>,
}

/// Reads a request; reports every invalid field.
pub(super) fn read(
    request: &StartTurnRequest,
    ids: &dyn IdSource,
) -> Result<StartOptions, Failure> {
    let mut failure = Failure::invalid_fields();
    if !request.request_id.is_empty()
        && let Err(error) = RequestId::new(request.request_id.as_str())
    {
        failure.add_violation("request_id", error.to_string());
    }
    if request.ephemeral && !request.conversation_id.is_empty() {
        let problem = "cannot be combined with conversation_id; leave one of the two out";
        failure.add_violation("ephemeral", problem);
    }
    let conversation_id = match request.conversation_id.as_str() {
        "" => format!("conv_{}", ids.next_uuid().simple()),
        given => match ConversationId::new(given) {
            Ok(id) => id.to_string(),
            Err(error) => {
                failure.add_violation("conversation_id", error.to_string());
                String::new()
            }
        },
    };
    let opening = opening(request, &mut failure);
    let history = messages("history", &request.history, &mut failure);
    let budgets = limits(&request.budgets.unwrap_or_default());
    let sampling = request.sampling.unwrap_or_default();
    let sampling = Sampling {
        max_output_tokens: NonZeroU32::new(sampling.max_output_tokens).map(NonZeroU32::get),
        temperature: sampling.temperature,
    };
    let dialect = dialect(request.dialect, &mut failure);
    match failure.is_empty() {
        true => Ok(StartOptions {
            input: TurnInput { history, opening },
            conversation_id,
            budgets,
            sampling,
            dialect,
        }),
        false => Err(failure),
    }
}

/// Reads the opening of a turn.
fn opening(request: &StartTurnRequest, failure: &mut Failure) -> Opening {
    let (opening, text, field) = match &request.input {
        Some(Input::UserMessage(text)) => {
            (Opening::UserMessage(text.clone()), text, "user_message")
        }
        Some(Input::ModelText(text)) => {
            let opening = Opening::ModelText {
                text: text.clone(),
                go_on: request.continue_with_model,
            };
            (opening, text, "model_text")
        }
        None => {
            failure.add_violation("input", "is missing; give user_message or model_text");
            return Opening::UserMessage(String::new());
        }
    };
    check_text(field, text, failure);
    opening
}

/// Checks a text of a request.
pub(super) fn check_text(field: &str, text: &str, failure: &mut Failure) {
    if text.trim().is_empty() {
        failure.add_violation(field, "is empty");
    }
    // Some characters take six bytes in the log.
    let json = || serde_json::Value::from(text).to_string();
    if text.len() > MAX_TEXT_BYTES || json().len() > MAX_TEXT_JSON_BYTES {
        let problem = format!("exceeds {MAX_TEXT_BYTES} bytes; shorten it");
        failure.add_violation(field, problem);
    }
}

/// Checks the messages of a field of a request.
pub(super) fn messages(
    field: &str,
    given: &[common::ChatMessage],
    failure: &mut Failure,
) -> Vec<ChatMessage> {
    let mut messages = Vec::with_capacity(given.len());
    for (index, message) in given.iter().enumerate() {
        if message.text.len() > MAX_TEXT_BYTES {
            let problem = format!("exceeds {MAX_TEXT_BYTES} bytes; shorten it");
            failure.add_violation(format!("{field}[{index}].text"), problem);
        }
        match wire::message_from_proto(message.clone()) {
            Ok(message) => messages.push(message),
            Err(error) => {
                let place = format!("{field}[{index}].{}", error.field);
                failure.add_violation(place, error.to_string());
            }
        }
    }
    let bytes: usize = messages.iter().map(ChatMessage::bytes).sum();
    if given.len() > MAX_MESSAGES || bytes > MAX_MESSAGES_BYTES {
        let problem = format!(
            "has {} messages with {bytes} bytes, but at most {MAX_MESSAGES} messages with \
             {MAX_MESSAGES_BYTES} bytes are allowed",
            given.len()
        );
        failure.add_violation(field, problem);
    }
    messages
}

/// Reads the budgets of a request; zero leaves a unit to the profile.
pub(super) fn limits(asked: &proto::Budgets) -> Limits {
    fn given<T: Default + PartialEq + Copy>(asked: T) -> Option<T> {
        (asked != T::default()).then_some(asked)
    }
    Limits {
        iterations: given(asked.iterations),
        calls_per_response: given(asked.calls_per_response),
        calls: given(asked.calls),
        bytes: given(asked.bytes),
        depth: given(asked.depth),
        tokens: given(asked.tokens),
        money_micros: given(asked.money_micros),
        wall_seconds: given(asked.wall_seconds),
    }
}

/// Reads the grant of an agent's caller; zero of tokens, money and time is unbounded.
pub(super) fn granted(grant: &common::CallGrant) -> Limits {
    let bounded = |limit: u64| (limit > 0).then_some(limit);
    Limits {
        calls: grant.calls,
        depth: grant.depth,
        tokens: bounded(grant.tokens),
        money_micros: bounded(grant.money_micros),
        wall_seconds: bounded(grant.wall_seconds),
        ..Limits::default()
    }
}

fn dialect(number: i32, failure: &mut Failure) -> Option<call_catalogue::Dialect> {
    match call_wire::dialect_from_proto(number) {
        Ok(Some(call_catalogue::Dialect::Native)) => {
            failure.add_violation(
                "dialect",
                "is native, which no text is written in; leave it out",
            );
            None
        }
        Ok(dialect) => dialect,
        Err(error) => {
            failure.add_violation("dialect", error.to_string());
            None
        }
    }
}
