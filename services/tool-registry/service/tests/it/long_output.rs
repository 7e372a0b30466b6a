//! Outputs that are too long for a result: kept whole, and read by their handle.

use contracts::tavern::{
    common::v1::{CallResult, CallStatus, LongOutput},
    registry::v1::{GetCallRequest, ListCallsRequest, ReadOutputRequest},
};
use doubles::Mode;
use serde_json::{Value, json};

use crate::{
    backend::{register, serve, tool},
    fixture::{Fixture, code_of, request, script_tool, with_effect},
};

const MIB: usize = 1 << 20;

/// Reads an output to its end in parts of `limit` bytes.
async fn read(fixture: &Fixture, handle: &str, limit: u32) -> String {
    let mut text = String::new();
    loop {
        let request = ReadOutputRequest {
            effect_id: handle.into(),
            offset: text.len() as u64,
            limit,
        };
        let part = fixture.calls.clone().read_output(request).await.unwrap();
        let part = part.into_inner();
        text.push_str(&part.text);
        assert_eq!(part.next_offset, text.len() as u64);
        if part.next_offset == part.total_bytes {
            return text;
        }
        assert!(!part.text.is_empty(), "a read gets ahead");
    }
}

fn long_output(result: &CallResult) -> &LongOutput {
    assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
    assert_eq!(result.output_json, "");
    result.long_output.as_ref().unwrap()
}

async fn with_long_script(output: &Value) -> Fixture {
    let fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.permits.add_permits(8);
    fixture.sandbox.set(Mode::Hold(output.to_string()));
    fixture
}

#[tokio::test]
async fn a_long_output_is_kept_whole_and_its_result_holds_the_beginning() {
    // Characters of three bytes lie across the borders of chunks and of parts.
    let output = json!("长".repeat(MIB));
    let text = output.to_string();
    let mut fixture = with_long_script(&output).await;
    let (_, first) = fixture.finish(with_effect("e1", "effect", json!({}))).await;
    let long = long_output(&first);
    assert_eq!(long.total_bytes, text.len() as u64);
    assert!(text.starts_with(&long.head) && long.head.len() > 16_000);
    assert!(read(&fixture, "e1", 200_001).await == text);
    fixture.crash_and_restart().await;
    assert!(read(&fixture, "e1", 0).await == text);
    let (_, again) = fixture.finish(with_effect("e1", "effect", json!({}))).await;
    assert!(again.replayed);
    assert_eq!(again.long_output, first.long_output);
    let inside = ReadOutputRequest {
        effect_id: "e1".into(),
        offset: 2,
        limit: 0,
    };
    let refused = fixture.calls.clone().read_output(inside).await;
    assert_eq!(
        grpc_kit::violations(&refused.unwrap_err())[0].0,
        "offset",
        "the second byte is inside a character"
    );
}

#[tokio::test]
async fn a_long_output_is_left_out_of_lists() {
    let output = json!("x".repeat(MIB));
    let fixture = with_long_script(&output).await;
    fixture.finish(with_effect("e1", "effect", json!({}))).await;
    let mut calls = fixture.calls.clone();
    let listed = calls.list_calls(ListCallsRequest::default()).await;
    let listed = listed.unwrap().into_inner().calls.remove(0);
    let request = GetCallRequest {
        effect_id: "e1".into(),
    };
    let call = calls.get_call(request).await.unwrap().into_inner();
    let call = call.call.unwrap();
    for (call, head) in [(listed, 0), (call, 16 << 10)] {
        assert_eq!(call.output_bytes, MIB as u64 + 2);
        let result = call.result.unwrap();
        assert_eq!(long_output(&result).head.len(), head);
    }
}

#[tokio::test]
async fn a_long_output_without_a_handle_is_a_failure() {
    let fixture = with_long_script(&json!("x".repeat(MIB))).await;
    let (_, result) = fixture.finish(request("effect", json!({}))).await;
    assert_eq!(result.status(), CallStatus::Failed);
    assert_eq!(code_of(&result), "output_too_large");
}

/// Calls a method that answers with many long messages.
async fn watch_long_run(messages: usize, durability: i32) -> (Fixture, CallResult) {
    let (fixture, backend) = (Fixture::new().await, serve().await);
    register(&fixture, &backend).await;
    let mut watch = tool("watch", "");
    watch["implementation"]["method"] = json!("tavern.run.v1.RunService/WatchRun");
    fixture.put_tool(watch).await;
    fixture.put_tool(tool("start", "StartRun")).await;
    *backend.workflows.writes.lock().unwrap() = vec!["x".repeat(256 << 10); messages];
    let start = json!({"workflowId": "w1", "inputsJson": "{}"});
    let started = fixture.output("c", "start", start).await;
    let mut request = with_effect("e1", "watch", json!({"runId": started["run"]["runId"]}));
    request.durability = durability;
    let (_, result) = fixture.finish(request).await;
    (fixture, result)
}

#[tokio::test]
async fn a_stream_that_is_too_long_for_a_result_is_kept_as_it_comes() {
    let (fixture, result) = watch_long_run(24, 0).await;
    let text = read(&fixture, "e1", 0).await;
    assert_eq!(long_output(&result).total_bytes, text.len() as u64);
    let messages: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(messages.len(), 2 + 24 + 1);
    assert!(messages[26]["record"]["terminal"].is_object());
}

#[tokio::test]
async fn an_output_beyond_the_bound_is_a_failure_that_names_it() {
    let memory = contracts::tavern::common::v1::Durability::Memory;
    let (_, result) = watch_long_run(33, memory.into()).await;
    assert_eq!(result.status(), CallStatus::Failed);
    assert_eq!(code_of(&result), "output_too_large");
    let message = result.error.unwrap().message;
    assert!(message.contains("8388608"), "{message}");
}
