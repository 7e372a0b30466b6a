//! `PublishEventTool` and `SleepTool`: the scene of the agent whose turn the call belongs to.

use call_outcome::Failure;
use contracts::tavern::{
    agent::v1::{
        PublishEventRequest, SleepInstanceRequest, publish_event_request,
        scene_service_client::SceneServiceClient,
    },
    common::v1::EventPriority,
};
use grpc_kit::Outbound;
use serde_json::{Value, json};

use super::{peer::PeerCall, time};

/// Publishes an event. A repeated call with the same effect id publishes nothing and gives the same answer.
pub(super) async fn publish(
    scenes: &SceneServiceClient<Outbound>,
    call: &PeerCall<'_>,
) -> Result<Value, Failure> {
    let arguments = call.arguments;
    let priority = match arguments["priority"].as_str() {
        Some("low") => EventPriority::Low,
        Some("high") => EventPriority::High,
        _ => EventPriority::Normal,
    };
    let seconds = |key: &str| {
        let given = arguments[key].as_f64().unwrap_or_default().ceil();
        // The schema bounds it.
        format!("{given}").parse::<u32>().unwrap_or_default()
    };
    let scene = publish_event_request::Scene::ConversationId(call.conversation_id());
    let request = PublishEventRequest {
        scene: Some(scene),
        request_id: call.request_id(),
        r#type: call.text("event_type"),
        payload_json: match &arguments["payload"] {
            Value::Null => String::new(),
            payload => payload.to_string(),
        },
        target_instance_ids: call.texts("target_instance_ids"),
        priority: priority.into(),
        ttl_seconds: seconds("ttl_seconds"),
        delay_seconds: seconds("delay_seconds"),
        ..PublishEventRequest::default()
    };
    let published = call.ask(scenes.clone().publish_event(request)).await?;
    Ok(json!({"event_id": published.event_id, "delivered_to": published.delivered_to}))
}

/// Lets the agent sleep once its turn has ended. A repeated call with the same effect id changes nothing.
pub(super) async fn sleep(
    scenes: &SceneServiceClient<Outbound>,
    call: &PeerCall<'_>,
) -> Result<Value, Failure> {
    let priority = match call.arguments["wake_priority"].as_str() {
        Some("normal") => EventPriority::Normal,
        Some("critical") => EventPriority::Critical,
        _ => EventPriority::High,
    };
    let request = SleepInstanceRequest {
        conversation_id: call.conversation_id(),
        request_id: call.request_id(),
        seconds: call.number("seconds"),
        wake_on: call.texts("wake_on"),
        wake_priority: priority.into(),
    };
    let slept = call.ask(scenes.clone().sleep_instance(request)).await?;
    Ok(match slept.wake_time {
        Some(at) => json!({"wakes_at": format!("{}Z", time::civil(at.seconds))}),
        None => json!({}),
    })
}
