//! Decisions of models and the calls that follow them.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::workflow::v1::ValidateWorkflowRequest;
use serde_json::{Value, json};

use crate::support::*;

/// A decision, the calls that it asks for, and what becomes of them.
fn decide_and_act() -> Value {
    let tool = |name: &str, parallel_safe: bool| {
        json!({"name": name, "description": "x", "readOnly": true, "parallelSafe": parallel_safe,
               "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}})
    };
    json!({
        "nodes": [
            {"id": "decide", "type": "core:LLMDecisionWithTools",
             "configValues": {"profileId": "small", "dialect": "action"},
             "inputValues": {"user_query": "Go.", "tools": [tool("echo", true), tool("fail", false), tool("wait", false)]}},
            {"id": "act", "type": "core:ExecuteTool"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("decide", "tool_call_requests", "act", "requests"),
            edge("act", "results", "out", "results"),
            edge("decide", "has_calls", "out", "has_calls"),
        ],
        "interfaceOutputs": {"results": {"dataFlowType": "ARRAY"}, "has_calls": {"dataFlowType": "BOOLEAN"}},
    })
}

fn statuses(outputs: &Value) -> Vec<&Value> {
    let results = outputs["results"].as_array().unwrap();
    results.iter().map(|result| &result["status"]).collect()
}

#[tokio::test]
async fn w34_after_a_failure_the_rest_of_the_calls_is_skipped() {
    let world = World::new().await;
    let calls = ["echo", "echo", "fail", "echo"]
        .map(|tool| format!("<{tool}><n>1</n></{tool}>"))
        .concat();
    world
        .models
        .answer(&[&format!("Now. <ACTION>{calls}</ACTION>")]);
    let run = world.start(&decide_and_act(), json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    let outputs = result(&outcome);
    assert_eq!(
        statuses(&outputs),
        ["succeeded", "succeeded", "failed", "skipped"]
    );
    let places: Vec<u32> = world
        .events(&run.run_id)
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            Some(Kind::CallDispatched(call)) => Some(call.index),
            _ => None,
        })
        .collect();
    assert_eq!(places, [0, 1, 2]);
    let asked = &world.models.requests()[0].messages;
    assert!(
        asked[0].text.starts_with("Go.\n\n可用工具:\n- echo: x"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn an_answer_without_calls_calls_nothing() {
    let world = World::new().await;
    world.models.answer(&["All is well."]);
    let outcome = world.run(&decide_and_act(), json!({})).await;
    assert_eq!(result(&outcome), json!({"results": [], "has_calls": false}));
    assert_eq!(world.registry.asked().len(), 0);
}

#[tokio::test]
async fn after_a_restart_the_calls_continue_where_they_stopped() {
    let world = World::new().await;
    let calls = "<echo><n>1</n></echo><wait/><echo><n>2</n></echo>";
    world.models.answer(&[&format!("<ACTION>{calls}</ACTION>")]);
    let run = world.start(&decide_and_act(), json!({})).await;
    let waits = |kind: &Kind| matches!(kind, Kind::CallDispatched(call) if call.tool_id == "wait");
    world.events_until(&run.run_id, waits).await;
    let world = world.restart().await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(statuses(&result(&outcome)), ["succeeded"; 3]);
    assert_eq!(
        (
            world.registry.most_dispatched(),
            world.models.requests().len()
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn settings_of_a_decision_are_checked_with_their_places() {
    let world = World::new().await;
    let definition = json!({
        "availableTools": {"initial": {}},
        "nodes": [{"id": "d", "type": "core:LLMDecisionWithTools", "configValues": {"dynamicTools": {"toolIds": []}}}],
    });
    let request = ValidateWorkflowRequest {
        definition_json: definition.to_string(),
        ..ValidateWorkflowRequest::default()
    };
    let checked = world.client.clone().validate_workflow(request).await;
    let violations = checked.unwrap().into_inner().violations;
    let found: Vec<(&str, &str)> = violations
        .iter()
        .map(|violation| (violation.pointer.as_str(), violation.code.as_str()))
        .collect();
    let expected = [
        ("/availableTools/initial", "lost_set"),
        ("/nodes/0/configValues/profileId", "missing"),
        (
            "/nodes/0/configValues/dynamicTools/toolIds",
            "type_mismatch",
        ),
    ];
    assert_eq!(found, expected);
}
