//! `PublishEventTool`: the scene of the agent whose turn the call belongs to, which is never an argument
//! (rule G307).

use call_outcome::CallOutcome;
use contracts::tavern::{
    agent::v1::{
        PublishEventRequest, publish_event_request, scene_service_client::SceneServiceClient,
    },
    common::v1::EventPriority,
};
use grpc_kit::Transport;
use serde_json::{Value, json};

use super::state::{context, conversation, failure_of, request_id};
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
