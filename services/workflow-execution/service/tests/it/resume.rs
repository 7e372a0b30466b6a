//! Runs that outlive their process. Their calls go to tool-registry itself.

use std::sync::Arc;

use contracts::tavern::common::v1::RunState;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::workflow::v1::PutWorkflowRequest;
use doubles::{Behaviour, TestRegistry};
use serde_json::{Value, json};

use crate::support::*;

/// A script, then a tool that waits, then a tool; the first counts its executions.
fn chain() -> Value {
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            python("first", "give(inputs['n'] + 1)\n"),
            tool("wait", "wait"),
            tool("last", "echo"),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("in", "n", "first", "n"),
            edge("first", "result", "wait", "n"),
            edge("first", "result", "last", "n"),
            edge("wait", "result", "last", "waited"),
            edge("last", "result", "out", "r"),
        ],
        "interfaceInputs": {"n": {"dataFlowType": "INTEGER", "required": true}},
        "interfaceOutputs": {"r": {"dataFlowType": "OBJECT"}},
    })
}

/// The real registry, with a tool that returns its arguments and a tool that waits.
fn tools() -> TestRegistry {
    let any = json!({"type": "object"});
    let echo = Behaviour::Gives(Arc::new(Value::clone));
    TestRegistry::default()
        .tool_with("echo", &any, echo)
        .tool_with("wait", &any, Behaviour::Hangs)
}

fn dispatched(kind: &Kind) -> bool {
    matches!(kind, Kind::CallDispatched(_))
}

#[tokio::test]
async fn a_run_goes_on_where_it_stopped_and_no_effect_happens_twice() {
    let tools = tools();
    let world = World::with_tools(tools.clone()).await;
    let run = world.start(&chain(), json!({"n": 1})).await;
    world.events_until(&run.run_id, dispatched).await;
    let world = world.restart().await;
    tools.release("wait", json!("waited"));
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"r": {"n": 2, "waited": "waited"}}));
    assert_eq!(
        world.sandbox.started(),
        1,
        "the finished script did not run again"
    );
    let events = words(&world.events(&run.run_id).await);
    for once in [
        "in succeeded",
        "first succeeded",
        "wait started",
        "wait dispatched",
        "wait succeeded",
        "last succeeded",
    ] {
        assert_eq!(
            events.iter().filter(|word| *word == once).count(),
            1,
            "{once}: {events:?}"
        );
    }
    let effects: Vec<String> = tools
        .asked()
        .into_iter()
        .map(|asked| asked.effect_id)
        .collect();
    let wait = format!("{}/wait/0", run.run_id);
    assert_eq!(
        effects.iter().filter(|effect| **effect == wait).count(),
        2,
        "asked for again under the same id"
    );
}

#[tokio::test]
async fn a_call_that_settled_while_the_service_was_away_is_not_dispatched_again() {
    let tools = tools();
    let world = World::with_tools(tools.clone()).await;
    let run = world.start(&chain(), json!({"n": 1})).await;
    world.events_until(&run.run_id, dispatched).await;
    world.service.shutdown().await;
    tools.release("wait", json!("waited"));
    let world = world.restart().await;
    assert_eq!(
        world.outcome(&run.run_id).await.state(),
        RunState::Succeeded
    );
    assert_eq!(tools.dispatches().len(), 2, "each tool once");
}

#[tokio::test]
async fn an_unsettled_script_runs_again() {
    let world = World::new().await;
    let place = world.directory.path().join("go");
    let code = "import pathlib, time\nwhile not pathlib.Path(inputs['place']).exists(): time.sleep(0.005)\ngive('done')\n";
    let definition = json!({
        "nodes": [{"id": "in", "type": "core:GroupInput"}, python("s", code), {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("in", "place", "s", "place"), edge("s", "result", "out", "r")],
        "interfaceInputs": {"place": {"dataFlowType": "STRING"}},
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
    });
    let run = world.start(&definition, json!({"place": place})).await;
    world.sandbox.until_running(1).await;
    let world = world.restart().await;
    std::fs::write(&place, "").unwrap();
    assert_eq!(
        result(&world.outcome(&run.run_id).await),
        json!({"r": "done"})
    );
    assert_eq!(world.sandbox.started(), 2);
    let events = words(&world.events(&run.run_id).await);
    assert_eq!(
        events.iter().filter(|word| *word == "s started").count(),
        1,
        "{events:?}"
    );
}

#[tokio::test]
async fn what_a_script_writes_is_seen_while_it_runs_and_void_when_it_begins_again() {
    let world = World::new().await;
    let place = world.directory.path().join("go");
    let code = "import os, pathlib, time\nos.write(1, b'begun\\n')\nwhile not pathlib.Path(inputs['place']).exists(): time.sleep(0.005)\ngive('done')\n";
    let definition = json!({
        "nodes": [{"id": "in", "type": "core:GroupInput"}, python("s", code)],
        "edges": [edge("in", "place", "s", "place")],
        "interfaceInputs": {"place": {"dataFlowType": "STRING"}},
    });
    let run = world.start(&definition, json!({"place": place})).await;
    let first = world.until_chunk(&run.run_id, 0).await;
    assert_eq!(
        (first.text.as_str(), first.node_id.as_str()),
        ("begun\n", "s")
    );
    let world = world.restart().await;
    let again = world.until_chunk(&run.run_id, 1).await;
    assert_eq!((again.text.as_str(), again.offset), ("begun\n", 0));
    std::fs::write(&place, "").unwrap();
    let events = words(&world.events(&run.run_id).await);
    let of_script: Vec<&String> = events
        .iter()
        .filter(|word| word.starts_with("s ") || word.contains("begun") || *word == "output reset")
        .collect();
    assert_eq!(
        of_script,
        [
            "s started",
            "chunk begun\n",
            "output reset",
            "chunk begun\n",
            "s succeeded"
        ]
    );
}

#[tokio::test]
async fn a_run_keeps_the_definition_that_it_was_started_with() {
    let tools = tools();
    let world = World::with_tools(tools.clone()).await;
    let put = |definition: &Value| PutWorkflowRequest {
        workflow_id: "flow".into(),
        definition_json: definition.to_string(),
        ..PutWorkflowRequest::default()
    };
    world
        .client
        .clone()
        .put_workflow(put(&chain()))
        .await
        .unwrap();
    let run = world.begin(of_workflow("flow", json!({"n": 4}))).await;
    assert_eq!(run.subject, "flow");
    world.events_until(&run.run_id, dispatched).await;
    world
        .client
        .clone()
        .put_workflow(put(&json!({"nodes": []})))
        .await
        .unwrap();
    let world = world.restart().await;
    tools.release("wait", json!("waited"));
    assert_eq!(
        result(&world.outcome(&run.run_id).await),
        json!({"r": {"n": 5, "waited": "waited"}})
    );
}

#[tokio::test]
async fn a_finished_run_and_its_request_id_survive_a_restart() {
    let tools = tools();
    let world = World::with_tools(tools.clone()).await;
    let mut request = of_definition(&json!({"nodes": [tool("t", "echo")]}), json!({}));
    request.request_id = "once".into();
    let run = world.begin(request.clone()).await;
    let before = world.events(&run.run_id).await;
    let world = world.restart().await;
    assert_eq!(world.events(&run.run_id).await, before);
    let again = world
        .client
        .clone()
        .start_run(request)
        .await
        .unwrap()
        .into_inner();
    assert!(again.replayed);
    assert_eq!(again.run.unwrap().run_id, run.run_id);
    assert_eq!(tools.asked().len(), 1);
}
