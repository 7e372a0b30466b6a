//! The tools of states: the private state of the agent whose turn the call belongs to, and the world state of
//! its scene. Neither is ever an argument (rule G307).

use call_outcome::{CallOutcome, Category, Failure};
use contracts::tavern::agent::v1::{
    GetPrivateStateRequest, GetWorldStateRequest, StateOperation, UpdatePrivateStateRequest,
    UpdateWorldStateRequest, get_world_state_request, state_operation::Kind,
    state_service_client::StateServiceClient, update_world_state_request,
};
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{CallContext, FailureClass, Transport};
use json_schema::parse_json_strict;
use serde_json::{Map, Value, json};
use tonic::Status;

use crate::dispatch::ResolvedCall;

/// Which state a tool works on.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// The agent's own.
    Private,
    /// The scene's.
    World,
}

impl State {
    /// Returns the argument that is the path.
    fn path_of(self, arguments: &Value) -> &str {
        let name = match self {
            Self::Private => "key",
            Self::World => "path",
        };
        arguments[name].as_str().unwrap_or_default()
    }
}

/// Reads a value; one that is missing is the default value, if there is one.
pub(super) async fn read(
    states: &StateServiceClient<Transport>,
    state: State,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation_id = match conversation(resolved) {
        Ok(conversation_id) => conversation_id,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    match get(states, state, resolved, conversation_id).await {
        Ok((_, value)) => CallOutcome::Succeeded(value),
        Err(status) => match resolved.arguments.get("default_value") {
            Some(default) if is_missing(&status) => CallOutcome::Succeeded(default.clone()),
            _ => CallOutcome::Failed(failure_of(&status)),
        },
    }
}

/// Changes a value. A repeated call with the same effect id changes nothing and gives the same answer.
pub(super) async fn update(
    states: &StateServiceClient<Transport>,
    state: State,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation_id = match conversation(resolved) {
        Ok(conversation_id) => conversation_id,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let written = resolved.arguments.get("value");
    let value = written.unwrap_or(&Value::Null);
    let kind = match (resolved.arguments["operation"].as_str(), written) {
        (Some("remove"), _) | (Some("set") | None, None) => Kind::Remove,
        (Some("append"), _) => Kind::Append,
        (Some("increment"), _) => Kind::Increment,
        _ => Kind::Set,
    };
    let operation = |value: &Value| StateOperation {
        kind: kind.into(),
        path: state.path_of(&resolved.arguments).to_owned(),
        value_json: match kind {
            Kind::Remove => String::new(),
            _ => value.to_string(),
        },
    };
    let first = send(states, state, resolved, &conversation_id, operation(value)).await;
    let updated = match first {
        Err(refused) => match meant(value, &refused) {
            Some(meant) => {
                let again = operation(&meant);
                let again = send(states, state, resolved, &conversation_id, again).await;
                again.map_err(|_| refused)
            }
            None => Err(refused),
        },
        updated => updated,
    };
    let status = match updated {
        Ok((version, previous_json)) => {
            return CallOutcome::Succeeded(made(version, &previous_json));
        }
        Err(status) => status,
    };
    let mut failure = failure_of(&status);
    if grpc_kit::reason(&status) == Some(ErrorReason::StateVersionMismatch)
        && let Ok((version, value)) = get(states, state, resolved, conversation_id).await
    {
        failure.details = present(version, value);
    }
    CallOutcome::Failed(failure)
}

/// Returns the value that a refused text means as JSON: in text protocols a model cannot write a number or
/// `true` in any other way.
fn meant(value: &Value, refused: &Status) -> Option<Value> {
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

fn present(version: u64, value: Value) -> Map<String, Value> {
    let mut details = Map::new();
    details.insert("version".to_owned(), json!(version));
    details.insert("value".to_owned(), value);
    details
}

/// Sends a change. Returns the version that it made, and what was there before as JSON.
async fn send(
    states: &StateServiceClient<Transport>,
    state: State,
    resolved: &ResolvedCall,
    conversation_id: &str,
    operation: StateOperation,
) -> Result<(u64, String), Status> {
    let (mut client, context) = (states.clone(), context(resolved));
    let expected = &resolved.arguments["expected_version"];
    let expected_version = expected.as_u64().unwrap_or_default();
    let (request_id, conversation_id) = (request_id(resolved), conversation_id.to_owned());
    let operations = vec![operation];
    Ok(match state {
        State::Private => {
            let request = UpdatePrivateStateRequest {
                conversation_id,
                request_id,
                expected_version,
                operations,
                ..UpdatePrivateStateRequest::default()
            };
            let updated = context.scope(client.update_private_state(request)).await?;
            let updated = updated.into_inner();
            (updated.version, updated.previous_json)
        }
        State::World => {
            let scene = update_world_state_request::Scene::ConversationId(conversation_id);
            let request = UpdateWorldStateRequest {
                scene: Some(scene),
                request_id,
                expected_version,
                operations,
            };
            let updated = context.scope(client.update_world_state(request)).await?;
            let updated = updated.into_inner();
            (updated.version, updated.previous_json)
        }
    })
}

/// Returns the version of a state, and what is at the path of a call.
async fn get(
    states: &StateServiceClient<Transport>,
    state: State,
    resolved: &ResolvedCall,
    conversation_id: String,
) -> Result<(u64, Value), Status> {
    let (mut client, context) = (states.clone(), context(resolved));
    let path = state.path_of(&resolved.arguments).to_owned();
    let (version, value_json) = match state {
        State::Private => {
            let request = GetPrivateStateRequest {
                conversation_id,
                path,
                ..GetPrivateStateRequest::default()
            };
            let found = context.scope(client.get_private_state(request)).await?;
            let found = found.into_inner();
            (found.version, found.value_json)
        }
        State::World => {
            let scene = get_world_state_request::Scene::ConversationId(conversation_id);
            let request = GetWorldStateRequest {
                scene: Some(scene),
                path,
                ..GetWorldStateRequest::default()
            };
            let found = context.scope(client.get_world_state(request)).await?;
            let found = found.into_inner();
            (found.version, found.value_json)
        }
    };
    let value = serde_json::from_str(&value_json).map_err(|error| {
        Status::internal(format!(
            "agent-runtime gave a value that is no JSON: {error}"
        ))
    })?;
    Ok((version, value))
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
        Some(ErrorReason::KnowledgeBaseNotFound) => (Category::Domain, "kb_missing"),
        Some(ErrorReason::KnowledgeDenied) => (Category::Domain, "kb_denied"),
        Some(ErrorReason::LimitExceeded) => (Category::Limit, "limit_exceeded"),
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
