//! StartTurn: what is asked, checked and planned.

use contracts::tavern::agent::v1::{self as proto, StartTurnRequest, start_turn_request};
use core_types::{ConversationId, IdSource, RequestId};
use grpc_kit::Failure;

use crate::domain::{
    plan::{Budgets, Opening, Plan},
    profile::Profile,
};

/// The longest message of a user or text of a model, in bytes.
const MAX_OPENING_BYTES: usize = 512 << 10;
/// The longest form of it that the log can hold, in bytes of JSON.
const MAX_OPENING_JSON_BYTES: usize = 900 << 10;

/// What a request asks for, apart from the profile.
pub(super) struct Asked {
    pub(super) opening: Opening,
    pub(super) input_json: String,
    pub(super) conversation_id: String,
    pub(super) budgets: Budgets,
    pub(super) dialect: Option<call_text::Dialect>,
}

/// Reads a request; every field that is wrong is named.
pub(super) fn read(
    request: &StartTurnRequest,
    defaults: Budgets,
    ids: &dyn IdSource,
) -> Result<Asked, Failure> {
    let mut failure = Failure::invalid_fields();
    if !request.request_id.is_empty()
        && let Err(error) = RequestId::new(request.request_id.as_str())
    {
        failure.add_violation("request_id", error.to_string());
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
    let input_json = serde_json::Value::String(text_of(&opening).to_owned()).to_string();
    if text_of(&opening).len() > MAX_OPENING_BYTES || input_json.len() > MAX_OPENING_JSON_BYTES {
        failure.add_violation(
            "opening",
            format!("is longer than {MAX_OPENING_BYTES} bytes; shorten it"),
        );
    }
    let budgets = budgets(request.budgets.unwrap_or_default(), defaults, &mut failure);
    let dialect = dialect(request.dialect, &mut failure);
    match failure.is_empty() {
        true => Ok(Asked {
            opening,
            input_json,
            conversation_id,
            budgets,
            dialect,
        }),
        false => Err(failure),
    }
}

/// Puts down what the turn needs to be resumed.
pub(super) fn plan(asked: &Asked, profile: &Profile, default_model: &str) -> Plan {
    let go_on = match &asked.opening {
        Opening::UserMessage(_) => true,
        Opening::ModelText { go_on, .. } => *go_on,
    };
    let default_model = (!default_model.is_empty()).then(|| default_model.to_owned());
    Plan {
        budgets: asked.budgets,
        go_on,
        model: profile.tavern.model.clone().or(default_model),
        inventory: profile.inventory(),
        system_prompt: profile.system_prompt(),
        opening_dialect: asked.dialect,
        dialect: profile.tavern.dialect,
        language: profile.tavern.language.unwrap_or_default(),
        temperature: profile.tavern.temperature,
        max_output_tokens: profile.tavern.max_output_tokens,
        stop_at_unknown_tool: profile.tavern.stop_at_unknown_tool.unwrap_or(true),
    }
}

fn opening(request: &StartTurnRequest, failure: &mut Failure) -> Opening {
    let (opening, field) = match &request.opening {
        Some(start_turn_request::Opening::UserMessage(text)) => {
            (Opening::UserMessage(text.clone()), "user_message")
        }
        Some(start_turn_request::Opening::ModelText(text)) => (
            Opening::ModelText {
                text: text.clone(),
                go_on: request.continue_with_model,
            },
            "model_text",
        ),
        None => {
            failure.add_violation("opening", "is missing; give a user_message or a model_text");
            return Opening::UserMessage(String::new());
        }
    };
    if text_of(&opening).trim().is_empty() {
        failure.add_violation(field, "is empty");
    }
    opening
}

fn text_of(opening: &Opening) -> &str {
    match opening {
        Opening::UserMessage(text) | Opening::ModelText { text, .. } => text,
    }
}

fn budgets(asked: proto::Budgets, defaults: Budgets, failure: &mut Failure) -> Budgets {
    let mut checked = |name: &str, asked: u32, default: u32, most: u32| {
        if asked > most {
            failure.add_violation(
                format!("budgets.{name}"),
                format!("is {asked}; {most} is the most"),
            );
        }
        if asked == 0 { default } else { asked }
    };
    let most = Budgets::MOST;
    Budgets {
        iterations: checked(
            "iterations",
            asked.iterations,
            defaults.iterations,
            most.iterations,
        ),
        calls_per_response: checked(
            "calls_per_response",
            asked.calls_per_response,
            defaults.calls_per_response,
            most.calls_per_response,
        ),
        calls: checked("calls", asked.calls, defaults.calls, most.calls),
    }
}

fn dialect(number: i32, failure: &mut Failure) -> Option<call_text::Dialect> {
    match call_wire::dialect_from_proto(number) {
        Ok(Some(call_text::Dialect::Native)) => {
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
