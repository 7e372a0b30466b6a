//! Decisions of models and the calls that follow them.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{RunEvent, RunState};
use contracts::tavern::workflow::v1::ValidateWorkflowRequest;
use serde_json::{Value, json};

use crate::support::*;

/// A decision, the calls that it requests, and their results.
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

#[tokio::test]
async fn seed_003_a_node_adds_tools_to_those_of_its_workflow() {
    let world = World::new().await;
    world
        .models
        .answer(&["<ACTION><echo><n>1</n></echo></ACTION>", "Done."]);
    let definition = json!({
        "id": "workflow-1",
        "name": "数据分析工作流",
        "availableTools": {"initial": ["echo"]},
        "nodes": [
            {"id": "llm-1", "type": "LLM", "name": "分析数据", "config": {
                "profileId": "small",
                "prompt": "请分析以下数据...",
                "dynamicTools": {
                    "toolIds": ["fail"],
                    "descriptionTemplate": "工具 {toolName}: {toolDescription}",
                },
            }},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("llm-1", "text", "out", "text"), edge("llm-1", "calls", "out", "calls")],
        "interfaceOutputs": {"text": {"dataFlowType": "STRING"}, "calls": {"dataFlowType": "INTEGER"}},
    });
    let outcome = world.run(&definition, json!({})).await;
    assert_eq!(result(&outcome), json!({"text": "Done.", "calls": 1}));
    let requests = world.models.requests();
    let asked = &requests[0].messages.last().unwrap().text;
    assert!(
        asked.starts_with("请分析以下数据...\n\n可用工具:\n- echo: \n工具 fail: \n"),
        "{asked}"
    );
}

/// The tools that were dispatched, in order.
fn dispatched(events: Vec<RunEvent>) -> Vec<String> {
    let kinds = events.into_iter().filter_map(|event| event.kind);
    kinds
        .filter_map(|kind| match kind {
            Kind::CallDispatched(call) => Some(call.tool_id),
            _ => None,
        })
        .collect()
}

/// A node that carries requests out, in a zone of one iteration or in none.
fn carries_out(requests: &Value, zone: Option<&str>) -> Value {
    let act = json!({"id": "act", "type": "core:ExecuteTool", "inputValues": {"requests": requests}, "parentNode": zone});
    let out = json!({"id": "out", "type": "core:GroupOutput"});
    let interface = json!({"results": {"dataFlowType": "ARRAY"}});
    let Some(zone) = zone else {
        return json!({"nodes": [act, out], "edges": [edge("act", "results", "out", "results")],
                      "interfaceOutputs": interface});
    };
    let (settings, inputs, exit) = match zone {
        "core:LoopZone" => (
            json!({"collect": [{"key": "result"}]}),
            json!({"count": 1}),
            "result",
        ),
        _ => (json!({}), json!({"items": [1]}), "results"),
    };
    json!({
        "nodes": [
            {"id": zone, "type": zone, "configValues": settings, "inputValues": inputs},
            {"id": "begin", "type": "core:ZoneInput", "parentNode": zone}, act,
            {"id": "end", "type": "core:ZoneOutput", "parentNode": zone}, out,
        ],
        "edges": [edge("act", "results", "end", "result"), edge(zone, exit, "out", "results")],
        "interfaceOutputs": interface,
    })
}

#[tokio::test]
async fn a2_behind_a_request_that_fails_or_cannot_run_no_effect_happens() {
    let call = |tool: &str| json!({"toolName": tool, "parallelSafe": tool == "echo"});
    let continues = |mut request: Value| {
        request["continueOnError"] = json!(true);
        request
    };
    let (echo, fail, reject) = (call("echo"), call("fail"), call("reject"));
    let bad = json!({"toolName": "echo", "parallelSafe": true, "problems": ["no such parameter"]});
    let broken = json!({"problems": ["the block is not closed"], "observation": "Broken."});
    let unsure = json!({"toolName": "echo", "needsConfirmation": true});
    let mut cases = Vec::new();
    for refused in [
        bad.clone(),
        broken,
        unsure,
        json!(1),
        json!({"arguments": {}}),
        json!({"toolName": "", "arguments": {}}),
        json!({"toolName": "echo", "arguments": []}),
        json!({"toolName": "echo", "problems": "unreadable"}),
    ] {
        cases.extend([
            (json!([refused, echo]), "rejected skipped", ""),
            (
                json!([echo, refused, echo]),
                "succeeded rejected skipped",
                "echo",
            ),
            (
                json!([echo, echo, refused]),
                "succeeded succeeded rejected",
                "echo echo",
            ),
            (json!([refused]), "rejected", ""),
        ]);
    }
    cases.extend([
        (json!([reject, echo]), "rejected skipped", "reject"),
        (
            json!([echo, fail, echo]),
            "succeeded failed skipped",
            "echo fail",
        ),
        (json!([fail, bad, echo]), "failed rejected skipped", "fail"),
        (
            json!([continues(bad.clone()), echo]),
            "rejected succeeded",
            "echo",
        ),
        (
            json!([continues(fail.clone()), continues(reject), echo]),
            "failed rejected succeeded",
            "fail reject echo",
        ),
        (
            json!([continues(fail), bad, echo]),
            "failed rejected skipped",
            "fail",
        ),
    ]);
    let world = World::new().await;
    for zone in [None, Some("core:LoopZone"), Some("core:MapList")] {
        for (requests, ended, called) in &cases {
            let run = world.start(&carries_out(requests, zone), json!({})).await;
            let outcome = world.outcome(&run.run_id).await;
            let mut results = result(&outcome)["results"].clone();
            if zone.is_some() {
                results = results[0].clone();
            }
            let results = results.as_array().unwrap().iter();
            let statuses: Vec<&str> = results
                .map(|result| result["status"].as_str().unwrap())
                .collect();
            assert_eq!(statuses.join(" "), *ended, "{zone:?} {requests}");
            let dispatched = dispatched(world.events(&run.run_id).await);
            assert_eq!(dispatched.join(" "), *called, "{zone:?} {requests}");
        }
    }
}

#[tokio::test]
async fn a2_no_call_that_is_in_doubt_lets_the_next_run() {
    let world = World::new().await;
    let requests = json!([{"toolName": "unknown", "continueOnError": true}, {"toolName": "echo"}]);
    let run = world.start(&carries_out(&requests, None), json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::InDoubt);
    assert_eq!(dispatched(world.events(&run.run_id).await), ["unknown"]);
}

#[tokio::test]
async fn a2_after_a_restart_the_rest_is_still_skipped() {
    let world = World::new().await;
    let requests = json!([
        {"toolName": "wait"},
        {"toolName": "echo", "problems": ["no"]},
        {"toolName": "echo"},
    ]);
    let run = world.start(&carries_out(&requests, None), json!({})).await;
    world.registry.until_asked(1).await;
    let world = world.restart().await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        statuses(&result(&outcome)),
        ["succeeded", "rejected", "skipped"]
    );
    assert_eq!(dispatched(world.events(&run.run_id).await), ["wait"]);
}

#[tokio::test]
async fn g9_a_block_that_cannot_be_read_is_no_call_and_stands_rejected_behind_those_before_it() {
    const GOOD: &str = "<ACTION><echo><n>1</n></echo></ACTION>";
    const BROKEN: &str = "<ACTION><echo><n>1</echo></ACTION>";
    for (answer, has_calls, ended) in [
        (BROKEN.to_owned(), false, vec!["rejected"]),
        (
            format!("{GOOD}\n{BROKEN}"),
            true,
            vec!["succeeded", "rejected"],
        ),
        (format!("{GOOD} And then: {GOOD}"), true, vec!["succeeded"]),
    ] {
        let world = World::new().await;
        world.models.answer(&[&answer]);
        let outcome = world.run(&decide_and_act(), json!({})).await;
        let outputs = result(&outcome);
        assert_eq!(statuses(&outputs), ended, "{answer}");
        assert_eq!(outputs["has_calls"], has_calls, "{answer}");
        let results = outputs["results"].as_array().unwrap();
        assert!(
            results.iter().all(|result| result["toolName"] != ""),
            "{results:?}"
        );
    }
}

#[tokio::test]
async fn g9_a_model_whose_block_cannot_be_read_is_asked_again_and_reads_why() {
    let world = World::new().await;
    world
        .models
        .answer(&["<ACTION><echo><n>1</echo></ACTION>", "Sorry."]);
    let definition = json!({
        "nodes": [
            {"id": "ask", "type": "core:LLM", "configValues": {"profileId": "small", "toolIds": ["echo"]},
             "inputValues": {"prompt": "Go."}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("ask", "text", "out", "text"), edge("ask", "calls", "out", "calls")],
        "interfaceOutputs": {"text": {"dataFlowType": "STRING"}, "calls": {"dataFlowType": "INTEGER"}},
    });
    let outcome = world.run(&definition, json!({})).await;
    assert_eq!(result(&outcome), json!({"text": "Sorry.", "calls": 0}));
    let requests = world.models.requests();
    let last = requests[1].messages.last().unwrap();
    assert!(
        last.text
            .contains("Observation: Error - Malformed XML in ACTION block"),
        "{last:?}"
    );
}
