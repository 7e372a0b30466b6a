//! Timeouts, retries and handled failures of nodes, over the wire.

use contracts::tavern::common::v1::RunState;
use serde_json::{Value, json};

use crate::support::*;

/// A workflow of one node with `execution`, whose outputs `keys` are the outputs of the workflow.
fn of_node(mut node: Value, execution: Value, keys: &[&str]) -> Value {
    let id = node["id"].as_str().unwrap().to_owned();
    node["configValues"]["execution"] = execution;
    let edges: Vec<Value> = keys.iter().map(|key| edge(&id, key, "out", key)).collect();
    let outputs = keys.iter().map(|key| ((*key).to_owned(), json!({})));
    json!({
        "nodes": [node, {"id": "out", "type": "core:GroupOutput"}],
        "edges": edges,
        "interfaceOutputs": outputs.collect::<serde_json::Map<_, _>>(),
    })
}

#[tokio::test]
async fn w21_a_retried_call_keeps_its_effect_id_and_raises_its_attempt() {
    let world = World::new().await;
    let execution =
        json!({"retry": {"maxAttempts": 4, "initial": "1ms", "jitter": 0, "on": ["domain"]}});
    let definition = of_node(tool("t", "recovers"), execution, &["result"]);
    let run = world.start(&definition, json!({})).await;
    let events = world.events(&run.run_id).await;
    let retries = words(&events)
        .into_iter()
        .filter(|word| word.contains("attempt"));
    assert_eq!(
        retries.collect::<Vec<_>>(),
        ["t attempt 1 failed", "t attempt 2 failed"]
    );
    assert_eq!(
        result(&world.outcome(&run.run_id).await),
        json!({"result": "recovered"})
    );
    let asked = world.registry.asked();
    let attempts: Vec<u32> = asked.iter().map(|request| request.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(
        asked
            .iter()
            .all(|request| request.effect_id == asked[0].effect_id)
    );
}

#[tokio::test]
async fn w20_the_last_failure_counts_when_all_attempts_fail() {
    let world = World::new().await;
    let execution = json!({"retry": {"maxAttempts": 2, "initial": "1ms", "on": ["domain"]}});
    let outcome = world
        .run(
            &of_node(tool("t", "fail"), execution, &["result"]),
            json!({}),
        )
        .await;
    assert_eq!(outcome.error.unwrap().code, "failed_as_asked");
    assert_eq!(world.registry.asked().len(), 2);
}

#[tokio::test]
async fn w23_a_handled_failure_becomes_outputs_and_is_listed() {
    let world = World::new().await;
    let execution = json!({"onError": "continue", "outputs": {"result": "none"}});
    let definition = of_node(
        tool("t", "fail"),
        execution,
        &["result", "status", "on_error"],
    );
    let outcome = world.run(&definition, json!({})).await;
    let result = result(&outcome);
    assert_eq!(
        (&result["result"], &result["status"]),
        (&json!("none"), &Value::Null)
    );
    assert_eq!(result["on_error"]["code"], "failed_as_asked");
    assert_eq!(outcome.handled_failures.len(), 1);
    assert_eq!(outcome.handled_failures[0].node_id, "t");
}

#[tokio::test]
async fn w23_with_fallback_one_side_carries_values() {
    let world = World::new().await;
    let definition = |tool_id: &str| {
        let mut lookup = tool("t", tool_id);
        lookup["configValues"] = json!({"execution": {"onError": "fallback"}});
        lookup["inputValues"]["x"] = json!(1);
        json!({
            "nodes": [lookup, {"id": "code", "type": "core:JsonSelector", "inputValues": {"path": "$.code"}},
                {"id": "either", "type": "core:FirstValue"}, {"id": "out", "type": "core:GroupOutput"}],
            "edges": [edge("t", "result", "either", "values__0"), edge("t", "on_error", "code", "json"),
                edge("code", "value", "either", "values__1"), edge("either", "value", "out", "value")],
            "interfaceOutputs": {"value": {}},
        })
    };
    let outcome = world.run(&definition("echo"), json!({})).await;
    assert_eq!(result(&outcome), json!({"value": {"x": 1}}));
    let outcome = world.run(&definition("fail"), json!({})).await;
    assert_eq!(result(&outcome), json!({"value": "failed_as_asked"}));
}

#[tokio::test]
async fn w19_an_attempt_ends_when_its_time_is_over() {
    let world = World::new().await;
    let slow = python("s", "import time\ntime.sleep(600)\n");
    let execution = json!({"timeout": "100ms", "onError": "continue"});
    let outcome = world
        .run(&of_node(slow, execution, &["on_error"]), json!({}))
        .await;
    let error = &result(&outcome)["on_error"];
    assert_eq!(
        (&error["category"], &error["code"]),
        (&json!("timeout"), &json!("node_timeout"))
    );
}

#[tokio::test]
async fn w19_the_timeout_of_a_call_travels_with_it() {
    let world = World::new().await;
    let definition = of_node(
        tool("t", "echo"),
        json!({"timeout": 7, "totalTimeout": "1h"}),
        &["result"],
    );
    world.run(&definition, json!({})).await;
    assert_eq!(world.registry.asked()[0].timeout.unwrap().seconds, 7);
}

#[tokio::test]
async fn w8_a_failed_run_gives_the_outputs_of_the_branches_that_finished() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [tool("good", "echo"), tool("bad", "fail"), {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("good", "status", "out", "kept"), edge("bad", "status", "out", "lost")],
        "interfaceOutputs": {"lost": {}, "kept": {}},
    });
    let outcome = world.run(&definition, json!({})).await;
    assert_eq!(outcome.state(), RunState::Failed);
    assert_eq!(outcome.partial_result_json, r#"{"kept":"succeeded"}"#);
    assert_eq!(outcome.missing_outputs, ["lost"]);
}

#[tokio::test]
async fn w4_a_restart_continues_with_the_attempt_that_was_due() {
    let world = World::new().await;
    let execution = json!({"retry": {"maxAttempts": 4, "initial": "1s", "on": ["domain"]}});
    let definition = of_node(tool("t", "recovers"), execution, &["result"]);
    let run = world.start(&definition, json!({})).await;
    world
        .events_until(&run.run_id, |kind| {
            matches!(
                kind,
                contracts::tavern::common::v1::run_event::Kind::NodeRetrying(_)
            )
        })
        .await;
    let world = world.restart().await;
    let second = |kind: &contracts::tavern::common::v1::run_event::Kind| matches!(kind, contracts::tavern::common::v1::run_event::Kind::NodeRetrying(retrying) if retrying.attempt == 2);
    world.events_until(&run.run_id, second).await;
    let attempts: Vec<u32> = world
        .registry
        .asked()
        .iter()
        .map(|request| request.attempt)
        .collect();
    assert_eq!(attempts, [1, 2]);
}
