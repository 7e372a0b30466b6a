//! `ReadWorldStateTool`, `RequestWorldStateUpdateTool` and `PublishEventTool`: the scene of the agent whose
//! turn the call belongs to, which is never an argument (rule G307).

use call_outcome::{CallOutcome, Failure};
use contracts::tavern::{
    agent::v1::{
        GetWorldStateRequest, PublishEventRequest, StateOperation, UpdateWorldStateRequest,
        get_world_state_request, publish_event_request, scene_service_client::SceneServiceClient,
        state_operation::Kind, state_service_client::StateServiceClient,
        update_world_state_request,
    },
    common::v1::{ErrorReason, EventPriority},
};
use grpc_kit::Transport;
use serde_json::{Value, json};
use tonic::Status;

use super::{
    state::{context, conversation, failure_of, made, meant, present, request_id},
    text,
};
use crate::dispatch::ResolvedCall;

/// Reads a value; one that is missing is the default value, if there is one.
pub(super) async fn read(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let (conversation, path) = match addressed(resolved, "path") {
        Ok(addressed) => addressed,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    match get(states, resolved, conversation, path).await {
        Ok((_, value)) => CallOutcome::Succeeded(value),
        Err(status) => {
            let is_missing = grpc_kit::reason(&status) == Some(ErrorReason::StatePathNotFound);
            match resolved.arguments.get("default_value") {
                Some(default) if is_missing => CallOutcome::Succeeded(default.clone()),
                _ => CallOutcome::Failed(failure_of(&status)),
            }
        }
    }
}

/// Changes a value. A repeated call with the same effect id changes nothing and gives the same answer.
pub(super) async fn update(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let (conversation, path) = match addressed(resolved, "path") {
        Ok(addressed) => addressed,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let arguments = &resolved.arguments;
    let value = arguments.get("value");
    let kind = match (arguments["operation"].as_str(), value) {
        (Some("remove"), _) | (Some("set") | None, None) => Kind::Remove,
        (Some("append"), _) => Kind::Append,
        (Some("increment"), _) => Kind::Increment,
        _ => Kind::Set,
    };
    let request = |value: &Value| UpdateWorldStateRequest {
        scene: Some(update_world_state_request::Scene::ConversationId(
            conversation.clone(),
        )),
        request_id: request_id(resolved),
        expected_version: arguments["expected_version"].as_u64().unwrap_or_default(),
        operations: vec![StateOperation {
            kind: kind.into(),
            path: path.to_owned(),
            value_json: match kind {
                Kind::Remove => String::new(),
                _ => value.to_string(),
            },
        }],
    };
    let value = value.unwrap_or(&Value::Null);
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
        && let Ok((version, value)) = get(states, resolved, conversation, path).await
    {
        failure.details = present(version, value);
    }
    CallOutcome::Failed(failure)
}

/// Publishes an event. A repeated call with the same effect id publishes nothing and gives the same answer.
pub(super) async fn publish(
    scenes: &SceneServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let (conversation, event_type) = match addressed(resolved, "event_type") {
        Ok(addressed) => addressed,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let arguments = &resolved.arguments;
    let priority = match arguments["priority"].as_str() {
        Some("low") => EventPriority::Low,
        Some("high") => EventPriority::High,
        _ => EventPriority::Normal,
    };
    let targets = arguments["target_instance_ids"].as_array();
    let targets = targets.into_iter().flatten().filter_map(Value::as_str);
    let seconds = |key: &str| {
        let given = arguments[key].as_f64().unwrap_or_default().ceil();
        // The schema bounds it.
        format!("{given}").parse::<u32>().unwrap_or_default()
    };
    let request = PublishEventRequest {
        scene: Some(publish_event_request::Scene::ConversationId(conversation)),
        request_id: request_id(resolved),
        r#type: event_type.to_owned(),
        payload_json: match &arguments["payload"] {
            Value::Null => String::new(),
            payload => payload.to_string(),
        },
        target_instance_ids: targets.map(str::to_owned).collect(),
        priority: priority.into(),
        ttl_seconds: seconds("ttl_seconds"),
        delay_seconds: seconds("delay_seconds"),
        ..PublishEventRequest::default()
    };
    let mut client = scenes.clone();
    let published = context(resolved).scope(client.publish_event(request));
    match published.await {
        Ok(published) => {
            let published = published.into_inner();
            CallOutcome::Succeeded(json!({
                "event_id": published.event_id, "delivered_to": published.delivered_to,
            }))
        }
        Err(status) => CallOutcome::Failed(failure_of(&status)),
    }
}

/// Returns the conversation of the call and one of its arguments.
fn addressed<'a>(resolved: &'a ResolvedCall, argument: &str) -> Result<(String, &'a str), Failure> {
    let conversation = conversation(resolved)?;
    Ok((conversation, text(&resolved.arguments, argument)?))
}

async fn send(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
    request: UpdateWorldStateRequest,
) -> Result<(u64, String), Status> {
    let mut client = states.clone();
    let updated = client.update_world_state(request);
    let updated = context(resolved).scope(updated).await?.into_inner();
    Ok((updated.version, updated.previous_json))
}

async fn get(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
    conversation_id: String,
    path: &str,
) -> Result<(u64, Value), Status> {
    let request = GetWorldStateRequest {
        scene: Some(get_world_state_request::Scene::ConversationId(
            conversation_id,
        )),
        path: path.to_owned(),
        version: 0,
    };
    let mut client = states.clone();
    let found = context(resolved).scope(client.get_world_state(request));
    let found = found.await?.into_inner();
    let value = serde_json::from_str(&found.value_json).map_err(|error| {
        Status::internal(format!(
            "agent-runtime gave a value that is no JSON: {error}"
        ))
    })?;
    Ok((found.version, value))
}
