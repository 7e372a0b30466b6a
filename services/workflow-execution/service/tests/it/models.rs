//! Nodes that call models.

use std::time::Duration;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorCategory, ErrorReason};
use grpc_kit::Failure;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::*;

/// A model node whose text and chat are the outputs; `after` is between the text and the output.
fn chat(parameters: Value) -> Value {
    json!({
        "nodes": [
            {"id": "ask", "type": "core:LlmApiRequest", "inputValues": {
                "model": "small", "messages": [{"role": "user", "content": "Hello?"}], "parameters": parameters}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"source": "ask", "sourceHandle": "text", "target": "out", "targetHandle": "text"},
            {"source": "ask", "sourceHandle": "messages", "target": "out", "targetHandle": "messages"},
            {"source": "ask", "sourceHandle": "response", "target": "out", "targetHandle": "response"},
        ],
        "interfaceOutputs": {
            "text": {"dataFlowType": "STRING"},
            "messages": {"dataFlowType": "ARRAY"},
            "response": {"dataFlowType": "OBJECT"},
        },
    })
}

#[tokio::test]
async fn a_model_answers_a_chat_with_text_native_calls_and_usage() {
    let world = World::new().await;
    world.models.answer(&["Hi."]);
    let calls = json!([{"id": "c", "function": {"name": "rain", "arguments": "{}"}}]);
    world.models.call(&calls);
    let outcome = world
        .run(
            &chat(json!({"temperature": 0.5, "max_tokens": 20})),
            json!({}),
        )
        .await;
    let outputs = result(&outcome);
    assert_eq!(outputs["text"], "Hi.");
    let answer = json!({"role": "assistant", "content": "Hi.", "tool_calls": calls});
    assert_eq!(
        outputs["messages"],
        json!([{"role": "user", "content": "Hello?"}, answer])
    );
    let response = json!({
        "text": "Hi.", "model": "small",
        "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        "tool_calls": calls,
    });
    assert_eq!(outputs["response"], response);
    let asked = &world.models.requests()[0];
    assert_eq!(
        (asked.model.as_str(), asked.max_output_tokens),
        ("small", 20)
    );
    assert_eq!(asked.temperature, Some(0.5));
}

#[tokio::test]
async fn what_a_model_writes_is_seen_while_it_writes_it() {
    let world = World::new().await;
    world.models.answer(&["Rain."]);
    world.models.hold(true);
    let run = world.start(&chat(json!({})), json!({})).await;
    let chunk = world.until_chunk(&run.run_id, 0).await;
    assert_eq!((chunk.node_id.as_str(), chunk.text.as_str()), ("ask", "R"));
    world.models.hold(false);
    assert_eq!(result(&world.outcome(&run.run_id).await)["text"], "Rain.");
    let written: String = world
        .events(&run.run_id)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            Some(Kind::OutputChunk(chunk)) => Some(chunk.text),
            _ => None,
        })
        .collect();
    assert_eq!(written, "Rain.");
}

#[tokio::test]
async fn a_request_that_is_cut_by_a_restart_is_asked_anew() {
    let world = World::new().await;
    world.models.answer(&["Rain."]);
    world.models.hold(true);
    let run = world.start(&chat(json!({})), json!({})).await;
    world.until_chunk(&run.run_id, 0).await;
    let world = world.restart().await;
    let chunk = world.until_chunk(&run.run_id, 1).await;
    assert!(chunk.generation > 0);
    world.models.hold(false);
    assert_eq!(result(&world.outcome(&run.run_id).await)["text"], "Rain.");
    assert_eq!(world.models.requests().len(), 2);
}

#[tokio::test]
async fn w32_a_finished_answer_is_never_asked_for_again() {
    let world = World::new().await;
    world.models.answer(&["A tale."]);
    let place = world.directory.path().join("go");
    let code = "import pathlib, time\nwhile not pathlib.Path(inputs['place']).exists(): time.sleep(0.005)\ngive(inputs['tale'])\n";
    let mut definition = chat(json!({}));
    let nodes = definition["nodes"].as_array_mut().unwrap();
    nodes.push(python("wait", code));
    nodes[2]["inputValues"]["place"] = json!(place);
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.push(edge("ask", "text", "wait", "tale"));
    edges.push(edge("wait", "result", "out", "after"));
    definition["interfaceOutputs"]["after"] = json!({"dataFlowType": "STRING"});
    let run = world.start(&definition, json!({})).await;
    world.sandbox.until_running(1).await;
    let world = world.restart().await;
    std::fs::write(place, "").unwrap();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome)["after"], "A tale.");
    assert_eq!(world.models.requests().len(), 1);
}

#[tokio::test]
async fn a_generic_request_takes_parameters_by_input_before_those_of_its_text() {
    let world = World::new().await;
    world.models.answer(&["Yes."]);
    let definition = json!({
        "nodes": [
            {"id": "say", "type": "core:CreateMessage", "inputValues": {"content": "Well?"}},
            {"id": "ask", "type": "core:GenericLlmRequest", "inputValues": {
                "activated_model_id": "small", "parameters": "{\"top_p\": 0.5, \"seed\": 1}", "seed": 9}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"source": "say", "sourceHandle": "messages", "target": "ask", "targetHandle": "messages"},
            {"source": "ask", "sourceHandle": "responseText", "target": "out", "targetHandle": "text"},
        ],
        "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
    });
    let outcome = world.run(&definition, json!({})).await;
    assert_eq!(result(&outcome), json!({"text": "Yes."}));
    let asked = &world.models.requests()[0];
    assert_eq!((asked.top_p, asked.seed), (Some(0.5), Some(9)));
    assert_eq!(asked.messages[0].text, "Well?");
}

#[tokio::test]
async fn what_a_model_cannot_be_asked_fails_the_node() {
    let world = World::new().await;
    for (changed, code) in [
        (
            json!({"parameters": {"temperature": 3}}),
            "invalid_parameters",
        ),
        (json!({"parameters": {"volume": 3}}), "invalid_parameters"),
        (json!({"messages": []}), "no_messages"),
        (
            json!({"messages": [{"role": "wizard", "content": "x"}]}),
            "unknown_role",
        ),
        (
            json!({"messages": [{"role": "user", "content": 5}]}),
            "unsupported_content",
        ),
    ] {
        let mut definition = chat(json!({}));
        let presets = definition["nodes"][0]["inputValues"]
            .as_object_mut()
            .unwrap();
        presets.extend(changed.as_object().unwrap().clone());
        let outcome = world.run(&definition, json!({})).await;
        assert_eq!(outcome.error.unwrap().code, code);
    }
    assert_eq!(world.models.requests().len(), 0);
}

#[tokio::test]
async fn a_limit_of_the_tenant_fails_the_node_at_once() {
    let world = World::new().await;
    let refusal = Failure::new(
        Code::ResourceExhausted,
        ErrorReason::TenantLimit,
        "no more tokens today",
    );
    let refusal = refusal.retry_after(Duration::from_secs(1));
    world.models.refuse(refusal.into_status());
    let error = world.run(&chat(json!({})), json!({})).await.error.unwrap();
    assert_eq!(error.category(), ErrorCategory::Limit);
    assert_eq!(
        (error.code.as_str(), error.retryable),
        ("tenant_limit", true)
    );
    assert_eq!(world.models.requests().len(), 1);
}
