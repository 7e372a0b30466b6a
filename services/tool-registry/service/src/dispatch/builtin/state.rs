//! The tools of states: the private state of the agent whose turn the call belongs to, and the world state of
//! its scene.

use call_outcome::Failure;
use contracts::tavern::agent::v1::{
    GetPrivateStateRequest, GetWorldStateRequest, StateOperation, UpdatePrivateStateRequest,
    UpdateWorldStateRequest, get_world_state_request, state_operation::Kind,
    state_service_client::StateServiceClient, update_world_state_request,
};
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::Outbound;
use json_schema::parse_json_strict;
use serde_json::{Map, Value, json};
use tonic::Status;

use super::peer::{PeerCall, failure_of};

/// Which state a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    states: &StateServiceClient<Outbound>,
    state: State,
    call: &PeerCall<'_>,
) -> Result<Value, Failure> {
    match get(states, state, call).await {
        Ok((_, value)) => Ok(value),
        Err(status) => match call.arguments.get("default_value") {
            Some(default) if is_missing(&status) => Ok(default.clone()),
            _ => Err(failure_of(&status)),
        },
    }
}

/// Changes a value. A repeated call with the same effect id changes nothing and gives the same answer.
pub(super) async fn update(
    states: &StateServiceClient<Outbound>,
    state: State,
    call: &PeerCall<'_>,
) -> Result<Value, Failure> {
    let written = call.arguments.get("value");
    let value = written.unwrap_or(&Value::Null);
    let kind = match (call.arguments["operation"].as_str(), written) {
        (Some("remove"), _) | (Some("set") | None, None) => Kind::Remove,
        (Some("append"), _) => Kind::Append,
        (Some("increment"), _) => Kind::Increment,
        _ => Kind::Set,
    };
    let operation = |value: &Value| StateOperation {
        kind: kind.into(),
        path: state.path_of(call.arguments).to_owned(),
        value_json: match kind {
            Kind::Remove => String::new(),
            _ => value.to_string(),
        },
    };
    let updated = match send(states, state, call, operation(value)).await {
        Err(refused) => match meant(value, &refused) {
            Some(meant) => {
                let again = send(states, state, call, operation(&meant)).await;
                again.map_err(|_| refused)
            }
            None => Err(refused),
        },
        updated => updated,
    };
    let status = match updated {
        Ok((version, previous_json)) => return Ok(made(version, &previous_json)),
        Err(status) => status,
    };
    let mut failure = failure_of(&status);
    if grpc_kit::reason(&status) == Some(ErrorReason::StateVersionMismatch)
        && let Ok((version, value)) = get(states, state, call).await
    {
        failure.details = present(version, value);
    }
    Err(failure)
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

/// Returns the output of an update: the new version and the previous value.
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

/// Sends a change. Returns the new version, and the previous value as JSON.
async fn send(
    states: &StateServiceClient<Outbound>,
    state: State,
    call: &PeerCall<'_>,
    operation: StateOperation,
) -> Result<(u64, String), Status> {
    let mut client = states.clone();
    let expected_version = call.arguments["expected_version"].as_u64();
    let expected_version = expected_version.unwrap_or_default();
    let (request_id, conversation_id) = (call.request_id(), call.conversation_id());
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
            let updated = client.update_private_state(request).await?.into_inner();
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
            let updated = client.update_world_state(request).await?.into_inner();
            (updated.version, updated.previous_json)
        }
    })
}

/// Returns the version of a state, and the value at the path of a call.
async fn get(
    states: &StateServiceClient<Outbound>,
    state: State,
    call: &PeerCall<'_>,
) -> Result<(u64, Value), Status> {
    let mut client = states.clone();
    let conversation_id = call.conversation_id();
    let path = state.path_of(call.arguments).to_owned();
    let (version, value_json) = match state {
        State::Private => {
            let request = GetPrivateStateRequest {
                conversation_id,
                path,
                ..GetPrivateStateRequest::default()
            };
            let found = client.get_private_state(request).await?.into_inner();
            (found.version, found.value_json)
        }
        State::World => {
            let scene = get_world_state_request::Scene::ConversationId(conversation_id);
            let request = GetWorldStateRequest {
                scene: Some(scene),
                path,
                ..GetWorldStateRequest::default()
            };
            let found = client.get_world_state(request).await?.into_inner();
            (found.version, found.value_json)
        }
    };
    let value = serde_json::from_str(&value_json).map_err(|error| {
        Status::internal(format!(
            "agent-runtime returned a value that is not JSON: {error}"
        ))
    })?;
    Ok((version, value))
}

fn is_missing(status: &Status) -> bool {
    matches!(
        grpc_kit::reason(status),
        Some(ErrorReason::StatePathNotFound | ErrorReason::ConversationNotFound)
    )
}
