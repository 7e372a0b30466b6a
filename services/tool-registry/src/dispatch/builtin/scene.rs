//! `PublishEventTool` and `SleepTool`: the scene of the agent whose turn the call belongs to, which is never
//! an argument (rule G307).

use call_outcome::CallOutcome;
use contracts::tavern::{
    agent::v1::{
        PublishEventRequest, SleepInstanceRequest, publish_event_request,
        scene_service_client::SceneServiceClient,
    },
    common::v1::EventPriority,
};
use grpc_kit::Transport;
use serde_json::{Value, json};

use super::{
    state::{context, conversation, failure_of, request_id},
    time,
};
use crate::dispatch::ResolvedCall;

/// Publishes an event. A repeated call with the same effect id publishes nothing and gives the same answer.
pub(super) async fn publish(
    scenes: &SceneServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation = match conversation(resolved) {
        Ok(conversation) => conversation,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let arguments = &resolved.arguments;
    let event_type = arguments["event_type"].as_str().unwrap_or_default();
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

/// Lets the agent sleep once its turn has ended. A repeated call with the same effect id changes nothing.
pub(super) async fn sleep(
    scenes: &SceneServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation_id = match conversation(resolved) {
        Ok(conversation_id) => conversation_id,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let arguments = &resolved.arguments;
    let seconds = arguments["seconds"].as_u64();
    let wake_on = arguments["wake_on"].as_array().into_iter().flatten();
    let priority = match arguments["wake_priority"].as_str() {
        Some("normal") => EventPriority::Normal,
        Some("critical") => EventPriority::Critical,
        _ => EventPriority::High,
    };
    let request = SleepInstanceRequest {
        conversation_id,
        request_id: request_id(resolved),
        seconds: seconds
            .and_then(|seconds| u32::try_from(seconds).ok())
            .unwrap_or_default(),
        wake_on: wake_on
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        wake_priority: priority.into(),
    };
    let mut client = scenes.clone();
    let slept = context(resolved).scope(client.sleep_instance(request));
    match slept.await {
        Ok(slept) => CallOutcome::Succeeded(match slept.into_inner().wake_time {
            Some(at) => json!({"wakes_at": format!("{}Z", time::civil(at.seconds))}),
            None => json!({}),
        }),
        Err(status) => CallOutcome::Failed(failure_of(&status)),
    }
}
