//! The tools by which a model uses the handles of its conversation.

use contracts::tavern::{
    common::v1::CallStatus,
    registry::v1::{CallToolRequest, StartCallRequest, WatchCallRequest},
};
use doubles::Mode;
use futures::StreamExt;
use serde_json::{Value, json};

use crate::fixture::{Fixture, code_of, request, script_tool, until, with_effect};

async fn fixture() -> Fixture {
    Fixture::with_scripts(&[script_tool("effect")]).await
}

/// Calls one of the tools in the conversation `c1`.
async fn used(fixture: &Fixture, tool: &str, arguments: Value) -> Value {
    fixture.output("c1", tool, arguments).await
}

/// Begins a call in `c1` that continues until it is let go.
async fn start(fixture: &Fixture, handle: &str) {
    let request = StartCallRequest {
        tool_id: "effect".into(),
        arguments_json: "{}".into(),
        effect_id: handle.into(),
        conversation_id: "c1".into(),
        ..Default::default()
    };
    fixture.calls.clone().start_call(request).await.unwrap();
}

async fn settled(fixture: &Fixture, handle: &str) {
    let request = WatchCallRequest {
        effect_id: handle.into(),
        ..Default::default()
    };
    let watched = fixture.calls.clone().watch_call(request).await.unwrap();
    watched.into_inner().for_each(|_| async {}).await;
}

#[tokio::test]
async fn a_model_reads_a_long_output_to_its_end() {
    let fixture = fixture().await;
    let output = json!("长".repeat(400_000));
    fixture.sandbox.permits.add_permits(1);
    fixture.sandbox.set(Mode::Hold(output.to_string()));
    fixture.finish(with_effect("e1", "effect", json!({}))).await;
    let listed = used(&fixture, "system:list_handles", json!({})).await;
    let expected = output.to_string();
    let total = expected.len();
    assert_eq!(
        listed,
        json!({"handles": [{"handle": "e1", "tool": "effect", "state": "succeeded", "total_bytes": total}]})
    );
    let (mut text, mut offset) = (String::new(), json!(0));
    while offset != json!(total) {
        let arguments = json!({"handle": "e1", "offset": offset, "limit": 24_576});
        let part = used(&fixture, "system:read_stream", arguments).await;
        text.push_str(part["text"].as_str().unwrap());
        offset = part["next_offset"].clone();
    }
    assert!(text == expected);
}

#[tokio::test]
async fn a_call_that_was_started_is_read_when_it_has_ended_and_not_cancelled_then() {
    let fixture = fixture().await;
    fixture.sandbox.set(Mode::Hold("{\"a\": 1}".into()));
    start(&fixture, "e1").await;
    let running = used(&fixture, "system:read_stream", json!({"handle": "e1"})).await;
    assert_eq!(
        running,
        json!({"state": "running", "generation": 0, "text": "", "next_offset": 0})
    );
    fixture.sandbox.permits.add_permits(1);
    settled(&fixture, "e1").await;
    let read = used(&fixture, "system:read_stream", json!({"handle": "e1"})).await;
    assert_eq!(
        read,
        json!({"state": "succeeded", "text": "{\"a\":1}", "next_offset": 7, "total_bytes": 7})
    );
    let cancelled = used(&fixture, "system:cancel", json!({"handle": "e1"})).await;
    assert_eq!(cancelled, json!({"state": "succeeded"}));
}

#[tokio::test]
async fn what_a_running_tool_has_written_is_read_and_the_tool_is_cancelled() {
    let fixture = Fixture::new().await;
    let code = json!({"language": "bash", "code": "echo one; sleep 600"});
    let request = StartCallRequest {
        tool_id: "CodeInterpreter:execute".into(),
        arguments_json: code.to_string(),
        effect_id: "e1".into(),
        conversation_id: "c1".into(),
        ..Default::default()
    };
    fixture.calls.clone().start_call(request).await.unwrap();
    let mut text = String::new();
    while text.is_empty() {
        let read = used(&fixture, "system:read_stream", json!({"handle": "e1"})).await;
        assert_eq!(read["state"], "running");
        read["text"].as_str().unwrap().clone_into(&mut text);
    }
    assert_eq!(text, "{\"stdout\":\"one\\n");
    let listed = used(&fixture, "system:list_handles", json!({})).await;
    let running = json!({"handle": "e1", "tool": "CodeInterpreter:execute", "state": "running"});
    assert_eq!(listed["handles"], json!([running]));
    let arguments = json!({"handle": "e1", "reason": "enough"});
    let cancelled = used(&fixture, "system:cancel", arguments).await;
    assert_eq!(cancelled, json!({"state": "cancelled"}));
    let read = used(&fixture, "system:read_stream", json!({"handle": "e1"})).await;
    assert_eq!(
        (&read["state"], &read["error"]["code"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
}

#[tokio::test]
async fn handles_of_another_conversation_are_not_there() {
    let fixture = fixture().await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    start(&fixture, "e1").await;
    let elsewhere = |tool: &str| CallToolRequest {
        conversation_id: "c2".into(),
        ..request(tool, json!({"handle": "e1"}))
    };
    for tool in ["system:read_stream", "system:cancel"] {
        let (_, result) = fixture.finish(elsewhere(tool)).await;
        assert_eq!(result.status(), CallStatus::Failed);
        assert_eq!(code_of(&result), "handle_not_found", "{tool}");
    }
    let listed = fixture.output("c2", "system:list_handles", json!({})).await;
    assert_eq!(listed, json!({"handles": []}));
    let (_, result) = fixture
        .finish(request("system:list_handles", json!({})))
        .await;
    assert_eq!(code_of(&result), "no_conversation");
    until("the call began", || fixture.sandbox.started() == 1).await;
    assert_eq!(
        fixture
            .sandbox
            .dropped
            .load(std::sync::atomic::Ordering::SeqCst),
        0
    );
}
