//! Carrying calls out and ending them.

use std::time::Duration;

use contracts::tavern::registry::v1::{
    CallToolRequest, CallToolResponse, CancelCallRequest, CancelCallResponse,
    call_tool_response::Record,
};
use core_types::{ConversationId, EffectId};
use futures::{Stream, StreamExt};
use grpc_kit::Failure;
use tonic::Status;

use super::tools::arguments;
use crate::{
    calls::{Below, Call, Calls},
    ledger::MAX_ATTEMPTS,
    workspace,
};

/// The longest time that a caller may ask for.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Begins or joins a call and follows it.
pub(super) fn call(
    calls: &Calls,
    request: CallToolRequest,
) -> Result<impl Stream<Item = Result<CallToolResponse, Status>> + Send + use<>, Status> {
    let joined = calls.join(read_call(request)?)?;
    Ok(calls.follow(joined).map(|below| {
        let record = match below? {
            Below::Event(event) => Record::Event(*event),
            Below::Result(result) => Record::Result(*result),
        };
        Ok(CallToolResponse {
            record: Some(record),
        })
    }))
}

/// Ends a call.
pub(super) async fn cancel(
    calls: &Calls,
    request: CancelCallRequest,
) -> Result<CancelCallResponse, Status> {
    let effect = EffectId::new(request.effect_id).map_err(|error| {
        Failure::invalid_fields()
            .violation("effect_id", error.to_string())
            .into_status()
    })?;
    let still_running = calls.cancel(&effect, &request.reason).await?;
    Ok(CancelCallResponse { still_running })
}

fn read_call(request: CallToolRequest) -> Result<Call, Status> {
    let mut failure = Failure::invalid_fields();
    if request.tool_id.is_empty() {
        failure.add_violation("tool_id", "is empty");
    }
    let arguments = arguments(&request.arguments_json, &mut failure);
    let effect_id = optional(&request.effect_id, "effect_id", EffectId::new, &mut failure);
    let conversation = optional(
        &request.conversation_id,
        "conversation_id",
        ConversationId::new,
        &mut failure,
    );
    if let Some(Err(problem)) = conversation.as_ref().map(workspace::check_conversation) {
        failure.add_violation("conversation_id", problem.message.clone());
    }
    let timeout = match request.timeout.map(Duration::try_from) {
        None | Some(Ok(Duration::ZERO)) => None,
        Some(Ok(timeout)) if timeout <= MAX_TIMEOUT => Some(timeout),
        Some(_) => {
            failure.add_violation("timeout", "is negative or longer than 24 h");
            None
        }
    };
    if request.attempt > MAX_ATTEMPTS {
        failure.add_violation("attempt", format!("is larger than {MAX_ATTEMPTS}"));
    } else if request.attempt > 1 && request.effect_id.is_empty() {
        failure.add_violation(
            "attempt",
            "needs an effect_id; a call without one is never repeated",
        );
    }
    failure.refuse_if_any()?;
    Ok(Call {
        tool: request.tool_id,
        arguments,
        effect_id,
        conversation,
        durability: run_events::durability_from_proto(request.durability),
        timeout,
        index: request.index,
        needs_confirmation: request.needs_confirmation,
        attempt: request.attempt.max(1),
        is_first: false,
    })
}

fn optional<T>(
    text: &str,
    field: &str,
    read: impl FnOnce(String) -> Result<T, core_types::IdError>,
    failure: &mut Failure,
) -> Option<T> {
    if text.is_empty() {
        return None;
    }
    read(text.to_owned())
        .map_err(|error| failure.add_violation(field, error.to_string()))
        .ok()
}
