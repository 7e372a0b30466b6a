//! `ReadPrivateStateTool` and `UpdatePrivateStateTool`: the private state of the agent whose turn the call
//! belongs to, which is never an argument (rule G307).

use call_outcome::{CallOutcome, Category, Failure};
use contracts::tavern::agent::v1::{
    GetPrivateStateRequest, StateOperation, UpdatePrivateStateRequest, state_operation::Kind,
    state_service_client::StateServiceClient,
};
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{CallContext, FailureClass, Transport};
use json_schema::parse_json_strict;
use serde_json::{Map, Value, json};
use tonic::Status;

use super::text;
use crate::dispatch::ResolvedCall;

/// Reads a value; one that is missing is the default value, if there is one.
pub(super) async fn read(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation_id = match conversation(resolved) {
        Ok(conversation_id) => conversation_id,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let key = resolved.arguments.get("key").and_then(Value::as_str);
    let key = key.unwrap_or_default();
    match get(states, resolved, conversation_id, key).await {
        Ok((_, value)) => CallOutcome::Succeeded(value),
        Err(status) => match resolved.arguments.get("default_value") {
            Some(default) if is_missing(&status) => CallOutcome::Succeeded(default.clone()),
            _ => CallOutcome::Failed(failure_of(&status)),
        },
    }
}

/// Sets a value. A repeated call with the same effect id changes nothing and gives the same answer.
pub(super) async fn update(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation_id = match conversation(resolved) {
        Ok(conversation_id) => conversation_id,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let key = match text(&resolved.arguments, "key") {
        Ok(key) => key,
        Err(failure) => return CallOutcome::Failed(failure),
    };
    let value = resolved.arguments.get("value").unwrap_or(&Value::Null);
    let expected = resolved.arguments.get("expected_version");
    let request = |value: &Value| UpdatePrivateStateRequest {
        conversation_id: conversation_id.clone(),
        request_id: request_id(resolved),
        expected_version: expected.and_then(Value::as_u64).unwrap_or_default(),
        operations: vec![StateOperation {
            kind: Kind::Set.into(),
            path: key.to_owned(),
            value_json: value.to_string(),
        }],
        ..UpdatePrivateStateRequest::default()
    };
    let mut updated = send(states, resolved, request(value)).await;
    if let Err(refused) = &updated
        && let Some(meant) = meant(value, refused)
        && let Ok(better) = send(states, resolved, request(&meant)).await
    {
        updated = Ok(better);
    }
    let status = match updated {
        Ok((version, previous_json)) => {
            return CallOutcome::Succeeded(made(version, &previous_json));
        }
        Err(status) => status,
    };
    let mut failure = failure_of(&status);
    if grpc_kit::reason(&status) == Some(ErrorReason::StateVersionMismatch)
        && let Ok((version, value)) = get(states, resolved, conversation_id, key).await
    {
        failure.details = present(version, value);
    }
    CallOutcome::Failed(failure)
}

/// Returns the value that a refused text means as JSON: in text protocols a model cannot write a number or
/// `true` in any other way.
pub(super) fn meant(value: &Value, refused: &Status) -> Option<Value> {
    let text = value.as_str().filter(|_| is_wrong_kind(refused))?;
    parse_json_strict(text).ok()
}

fn is_wrong_kind(status: &Status) -> bool {
    matches!(
        grpc_kit::reason(status),
        Some(ErrorReason::StateInvalid | ErrorReason::InvalidFields)
    )
}

/// Returns what an update gives: the version, and what was there before.
pub(super) fn made(version: u64, previous_json: &str) -> Value {
    let mut output = Map::new();
    output.insert("version".to_owned(), json!(version));
    if let Ok(previous) = serde_json::from_str(previous_json) {
        output.insert("previous".to_owned(), previous);
    }
    Value::Object(output)
}

pub(super) fn present(version: u64, value: Value) -> Map<String, Value> {
    let mut details = Map::new();
    details.insert("version".to_owned(), json!(version));
    details.insert("value".to_owned(), value);
    details
}

async fn send(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
    request: UpdatePrivateStateRequest,
) -> Result<(u64, String), Status> {
    let mut client = states.clone();
    let updated = client.update_private_state(request);
    let updated = context(resolved).scope(updated).await?.into_inner();
    Ok((updated.version, updated.previous_json))
}

async fn get(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
    conversation_id: String,
    path: &str,
) -> Result<(u64, Value), Status> {
    let request = GetPrivateStateRequest {
        conversation_id,
        path: path.to_owned(),
        ..GetPrivateStateRequest::default()
    };
    let mut client = states.clone();
    let found = context(resolved)
        .scope(client.get_private_state(request))
        .await?
        .into_inner();
    let value = serde_json::from_str(&found.value_json).map_err(|error| {
        Status::internal(format!(
            "agent-runtime gave a value that is no JSON: {error}"
        ))
    })?;
    Ok((found.version, value))
}

/// Returns the name under which a repeated call gets the first answer.
pub(super) fn request_id(resolved: &ResolvedCall) -> String {
    let effect = resolved.effect_id.as_ref();
    effect.map(ToString::to_string).unwrap_or_default()
}

pub(super) fn context(resolved: &ResolvedCall) -> CallContext {
    CallContext::new(resolved.in_flight.path().clone()).with_timeout(resolved.remaining())
}

pub(super) fn conversation(resolved: &ResolvedCall) -> Result<String, Failure> {
    let conversation = resolved.conversation.as_ref().map(ToString::to_string);
    conversation.ok_or_else(|| {
        let message = "the tool works in a conversation of an agent, and the call names none";
        Failure::new(Category::Validation, "conversation_required", message)
    })
}

fn is_missing(status: &Status) -> bool {
    matches!(
        grpc_kit::reason(status),
        Some(ErrorReason::StatePathNotFound | ErrorReason::ConversationNotFound)
    )
}

pub(super) fn failure_of(status: &Status) -> Failure {
    let (category, code) = match grpc_kit::reason(status) {
        Some(ErrorReason::StatePathNotFound) => (Category::Domain, "path_not_found"),
        Some(ErrorReason::ConversationNotFound) => (Category::Domain, "no_private_state"),
        Some(ErrorReason::StateVersionMismatch) => (Category::Domain, "version_conflict"),
        Some(ErrorReason::SceneNotRunning) => (Category::Domain, "no_scene"),
        Some(ErrorReason::WorldWriteDenied) => (Category::Domain, "world_write_denied"),
        Some(ErrorReason::EventsThrottled) => (Category::Dependency, "throttled"),
        Some(ErrorReason::StateInvalid) => (Category::Validation, "state_invalid"),
        Some(ErrorReason::InvalidFields) => (Category::Validation, "invalid_path"),
        _ => (Category::Dependency, "agent_runtime_failed"),
    };
    let message = match grpc_kit::violations(status).as_slice() {
        [] => status.message().to_owned(),
        violations => {
            let words = violations
                .iter()
                .map(|(path, problem)| format!("{path}: {problem}"));
            words.collect::<Vec<_>>().join("; ")
        }
    };
    let is_passing =
        code == "version_conflict" || FailureClass::of(status) == FailureClass::Transient;
    let mut failure = Failure::new(category, code, message);
    failure.retryable = is_passing;
    failure
}
