//! Zones whose nodes have effects: loops and maps round tools.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{RunOutcome, RunState};
use contracts::tavern::run::v1::CancelRunRequest;
use contracts::tavern::workflow::v1::{PutWorkflowRequest, ValidateWorkflowRequest};
use serde_json::{Value, json};

use crate::support::*;

fn within(zone: &str, mut node: Value) -> Value {
    node["parentNode"] = json!(zone);
    node
}

fn entry(zone: &str) -> Value {
    json!({"id": format!("{zone}_in"), "type": "core:ZoneInput", "parentNode": zone})
}

fn exit(zone: &str) -> Value {
    json!({"id": format!("{zone}_out"), "type": "core:ZoneOutput", "parentNode": zone})
}

/// A loop that runs `count` times and calls a tool with the number of the iteration; it collects
/// the outputs of the tool.
fn looping(tool_id: &str, count: u32, config: Value) -> Value {
    let mut settings = json!({"collect": [{"key": "given"}]});
    settings
        .as_object_mut()
        .unwrap()
        .extend(config.as_object().unwrap().clone());
    json!({
        "nodes": [
            {"id": "loop", "type": "core:LoopZone", "configValues": settings, "inputValues": {"count": count}},
            entry("loop"), within("loop", tool("act", tool_id)), exit("loop"),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("loop_in", "index", "act", "n"),
            edge("act", "result", "loop_out", "given"),
            edge("loop", "given", "out", "given"),
        ],
        "interfaceOutputs": {"given": {"dataFlowType": "ARRAY"}},
    })
}

/// A map over the numbers below `count` that calls a tool with each.
fn mapping(tool_id: &str, count: u32, config: Value) -> Value {
    let items: Vec<u32> = (0..count).collect();
    json!({
        "nodes": [
            {"id": "map", "type": "core:MapList", "configValues": config, "inputValues": {"items": items}},
            entry("map"), within("map", tool("act", tool_id)), exit("map"),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("map_in", "item", "act", "n"),
            edge("act", "result", "map_out", "result"),
            edge("map", "results", "out", "results"),
            edge("map", "errors", "out", "errors"),
        ],
        "interfaceOutputs": {"results": {"dataFlowType": "ARRAY"}, "errors": {"dataFlowType": "ARRAY"}},
    })
}

fn asked(world: &World, run_id: &str) -> Vec<String> {
    let asked = world.registry.asked().into_iter();
    let prefix = format!("{run_id}/");
    asked
        .map(|asked| asked.effect_id.trim_start_matches(&prefix).to_owned())
        .collect()
}

fn places(words: &[String], wanted: &str) -> Vec<usize> {
    let found = words.iter().enumerate();
    found
        .filter(|(_, word)| word.ends_with(wanted))
        .map(|(place, _)| place)
        .collect()
}

#[tokio::test]
async fn w1_the_path_of_a_node_names_its_iteration_in_events_and_effects() {
    let world = World::new().await;
    let run = world.start(&looping("echo", 2, json!({})), json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"given": [{"n": 0}, {"n": 1}]}));
    assert_eq!(asked(&world, &run.run_id), ["loop#0/act/0", "loop#1/act/0"]);
    let events = words(&world.events(&run.run_id).await);
    for word in [
        "loop#0/act started",
        "loop#1/act succeeded",
        "loop succeeded",
    ] {
        assert_eq!(places(&events, word).len(), 1, "{word}: {events:?}");
    }
    assert_eq!(places(&events, "iteration 1 of loop").len(), 1);
}

#[tokio::test]
async fn w15_after_a_crash_a_loop_continues_with_the_iteration_that_had_not_ended() {
    let world = World::new().await;
    let mut definition = looping("wait", 3, json!({}));
    let nodes = definition["nodes"].as_array_mut().unwrap();
    nodes.push(within("loop", python("count", "give(inputs['n'])\n")));
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.push(edge("loop_in", "index", "count", "n"));
    edges.push(edge("count", "result", "act", "counted"));
    let run = world.start(&definition, json!({})).await;
    let second =
        |kind: &Kind| matches!(kind, Kind::CallDispatched(call) if call.node_id == "loop#1/act");
    let first = |kind: &Kind| matches!(kind, Kind::CallDispatched(_));
    world.events_until(&run.run_id, first).await;
    let world = world.restart().await;
    assert_eq!(
        world.sandbox.started(),
        1,
        "the script of iteration 0 had ended"
    );
    world.registry.release_one();
    world.events_until(&run.run_id, second).await;
    let world = world.restart().await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        result(&outcome),
        json!({"given": ["waited", "waited", "waited"]})
    );
    assert_eq!(world.sandbox.started(), 3, "one script for each iteration");
    let events = words(&world.events(&run.run_id).await);
    for iteration in 0..3 {
        let ended = format!("iteration {iteration} of loop");
        assert_eq!(places(&events, &ended).len(), 1, "{events:?}");
    }
}

#[tokio::test]
async fn w17_a_map_has_at_most_its_concurrency_under_way() {
    let world = World::new().await;
    let config = json!({"concurrency": 2});
    let run = world.start(&mapping("wait", 5, config), json!({})).await;
    let second =
        |kind: &Kind| matches!(kind, Kind::CallDispatched(call) if call.node_id == "map#1/act");
    world.events_until(&run.run_id, second).await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome)["results"], json!(vec!["waited"; 5]));
    let events = words(&world.events(&run.run_id).await);
    let (begun, ended) = (places(&events, "dispatched"), places(&events, "of map"));
    for (place, third) in begun.iter().enumerate().skip(2) {
        assert!(ended[place - 2] < *third, "{events:?}");
    }
}

#[tokio::test]
async fn w15_after_a_crash_a_map_does_again_only_what_had_not_ended() {
    let world = World::new().await;
    let mut definition = mapping("echo", 3, json!({"concurrency": 3}));
    let nodes = definition["nodes"].as_array_mut().unwrap();
    nodes.push(
        json!({"id": "first", "type": "core:Condition", "parentNode": "map",
        "configValues": {"condition": "inputs.value == 1"}}),
    );
    nodes.push(within("map", tool("late", "wait")));
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.push(edge("map_in", "item", "first", "value"));
    edges.push(edge("first", "then", "late", "n"));
    let run = world.start(&definition, json!({})).await;
    let happened = std::cell::Cell::new(0);
    let others_ended = |kind: &Kind| {
        let waits = matches!(kind, Kind::CallDispatched(call) if call.node_id == "map#1/late");
        if waits || matches!(kind, Kind::IterationFinished(_)) {
            happened.set(happened.get() + 1);
        }
        happened.get() == 3
    };
    world.events_until(&run.run_id, others_ended).await;
    let before = world.registry.asked().len();
    let world = world.restart().await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        result(&outcome)["results"],
        json!([{"n": 0}, {"n": 1}, {"n": 2}])
    );
    let again: Vec<String> = asked(&world, &run.run_id).split_off(before);
    assert_eq!(again, ["map#1/late/0"]);
}

/// A workflow that calls a tool with its input `item`.
fn acting() -> Value {
    json!({
        "nodes": [{"id": "in", "type": "core:GroupInput"}, tool("act", "echo"), {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("in", "item", "act", "n"), edge("act", "result", "out", "result")],
        "interfaceInputs": {"item": {"dataFlowType": "WILDCARD"}},
        "interfaceOutputs": {"result": {"dataFlowType": "WILDCARD"}},
    })
}

/// A map over two numbers with the workflow `acting`.
fn referring() -> Value {
    json!({
        "nodes": [
            {"id": "map", "type": "core:MapList", "inputValues": {"items": [1, 2]},
                "configValues": {"referencedWorkflowId": "acting"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("map", "results", "out", "results")],
        "interfaceOutputs": {"results": {"dataFlowType": "ARRAY"}},
    })
}

#[tokio::test]
async fn w9_a_zone_repeats_a_stored_workflow() {
    let world = World::new().await;
    let put = PutWorkflowRequest {
        workflow_id: "acting".into(),
        definition_json: acting().to_string(),
        ..PutWorkflowRequest::default()
    };
    world.client.clone().put_workflow(put).await.unwrap();
    let outcome = world.run(&referring(), json!({})).await;
    assert_eq!(result(&outcome), json!({"results": [{"n": 1}, {"n": 2}]}));
    let mut both = referring();
    let nodes = both["nodes"].as_array_mut().unwrap();
    nodes.push(entry("map"));
    let request = ValidateWorkflowRequest {
        definition_json: both.to_string(),
        ..ValidateWorkflowRequest::default()
    };
    let refused = world
        .client
        .clone()
        .validate_workflow(request)
        .await
        .unwrap();
    let violations = refused.into_inner().violations;
    assert!(
        violations[0].message.contains("keep one of both"),
        "{violations:?}"
    );
}

#[tokio::test]
async fn w17_items_that_fail_are_listed_or_end_the_map() {
    let world = World::new().await;
    let config = json!({"onItemError": "continue", "concurrency": 2});
    let listed = world.run(&mapping("fail", 2, config), json!({})).await;
    let listed = result(&listed);
    assert_eq!(listed["results"], json!([null, null]));
    assert_eq!(listed["errors"][1]["code"], "failed_as_asked");
    let config = json!({"concurrency": 1});
    let run = world.start(&mapping("fail", 3, config), json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Failed);
    let error = outcome.error.unwrap();
    assert_eq!(error.code, "failed_as_asked");
    assert!(error.details_json.contains("\"item\":0"), "{error:?}");
    assert_eq!(asked(&world, &run.run_id).last().unwrap(), "map#0/act/0");
}

#[tokio::test]
async fn w20_a_node_in_a_zone_is_tried_again_under_its_effect() {
    let world = World::new().await;
    let mut definition = looping("recovers", 1, json!({}));
    definition["nodes"][2]["configValues"] =
        json!({"execution": {"retry": {"maxAttempts": 3, "initial": "1ms", "on": ["domain"]}}});
    let run = world.start(&definition, json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"given": ["recovered"]}));
    assert_eq!(asked(&world, &run.run_id), vec!["loop#0/act/0"; 3]);
}

#[tokio::test]
async fn w22_a_call_in_doubt_inside_a_zone_leaves_the_run_in_doubt() {
    let world = World::new().await;
    let config = json!({"onItemError": "continue"});
    let run = world.start(&mapping("unknown", 1, config), json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::InDoubt);
    assert_eq!(
        outcome.unsettled_effect_ids,
        [format!("{}/map#0/act/0", run.run_id)]
    );
}

#[tokio::test]
async fn cancelling_a_run_cancels_the_calls_inside_its_zones() {
    let world = World::new().await;
    let run = world.start(&mapping("wait", 2, json!({})), json!({})).await;
    let second =
        |kind: &Kind| matches!(kind, Kind::CallDispatched(call) if call.node_id == "map#1/act");
    world.events_until(&run.run_id, second).await;
    let request = CancelRunRequest {
        run_id: run.run_id.clone(),
        reason: "enough".into(),
    };
    world.runs.clone().cancel_run(request).await.unwrap();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Cancelled);
    let mut cancelled = world.registry.cancelled();
    cancelled.sort();
    let ids = [0, 1].map(|item| format!("{}/map#{item}/act/0", run.run_id));
    assert_eq!(cancelled, ids);
}

#[tokio::test]
async fn w19_a_zone_that_takes_too_long_fails_and_its_calls_are_cancelled() {
    let world = World::new().await;
    let config = json!({"execution": {"timeout": "50ms", "onError": "continue"}});
    let mut definition = looping("wait", 2, config);
    definition["interfaceOutputs"] = json!({"error": {"dataFlowType": "OBJECT"}});
    definition["edges"][2] = edge("loop", "on_error", "out", "error");
    let run = world.start(&definition, json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome)["error"]["code"], "node_timeout");
    assert_eq!(
        world.registry.cancelled(),
        [format!("{}/loop#0/act/0", run.run_id)]
    );
}

#[tokio::test]
async fn w22_a_call_that_does_not_end_with_its_zone_leaves_the_run_in_doubt() {
    let world = World::new().await;
    world.registry.keep_busy(2);
    let config = json!({"execution": {"timeout": "50ms", "onError": "continue"}});
    let run = world.start(&looping("busy", 2, config), json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::InDoubt);
    assert_eq!(outcome.error.unwrap().code, "calls_unended");
    assert_eq!(
        outcome.unsettled_effect_ids,
        [format!("{}/loop#0/act/0", run.run_id)]
    );
}

#[tokio::test]
async fn zones_inside_zones_continue_after_a_crash() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            {"id": "map", "type": "core:MapList", "inputValues": {"items": [1, 2]}},
            entry("map"),
            {"id": "loop", "type": "core:LoopZone", "parentNode": "map",
                "configValues": {"collect": [{"key": "given"}]}, "inputValues": {"count": 2}},
            entry("loop"), within("loop", tool("act", "wait")), exit("loop"),
            exit("map"),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("map_in", "item", "act", "item"),
            edge("loop_in", "index", "act", "round"),
            edge("act", "result", "loop_out", "given"),
            edge("loop", "given", "map_out", "result"),
            edge("map", "results", "out", "results"),
        ],
        "interfaceOutputs": {"results": {"dataFlowType": "ARRAY"}},
    });
    let run = world.start(&definition, json!({})).await;
    let wanted = |kind: &Kind| matches!(kind, Kind::CallDispatched(call) if call.node_id == "map#1/loop#0/act");
    world.events_until(&run.run_id, wanted).await;
    let world = world.restart().await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    let row = json!(["waited", "waited"]);
    assert_eq!(result(&outcome), json!({"results": [row, row]}));
    let mut effects = asked(&world, &run.run_id);
    effects.sort();
    effects.dedup();
    let expected = [(0, 0), (0, 1), (1, 0), (1, 1)];
    assert_eq!(
        effects,
        expected.map(|(item, round)| format!("map#{item}/loop#{round}/act/0"))
    );
}

fn handled(outcome: &RunOutcome) -> Vec<&str> {
    let failures = outcome.handled_failures.iter();
    failures.map(|failure| failure.node_id.as_str()).collect()
}

/// Handles the failure of the tool `act` in each iteration of a loop, then calls `hold`.
fn handling(hold: &str) -> Value {
    let mut failing = within("loop", tool("act", "fail"));
    failing["configValues"] = json!({"execution": {"onError": "continue"}});
    json!({
        "nodes": [
            {"id": "loop", "type": "core:LoopZone", "inputValues": {"count": 2}},
            entry("loop"), failing, within("loop", tool("hold", hold)), exit("loop"),
        ],
        "edges": [edge("act", "on_error", "hold", "why")],
    })
}

#[tokio::test]
async fn w8_handled_failures_inside_zones_are_listed_with_their_iterations() {
    let world = World::new().await;
    let outcome = world.run(&handling("echo"), json!({})).await;
    assert_eq!(handled(&outcome), ["loop#0/act", "loop#1/act"]);
    let why = outcome.handled_failures[1].error.as_ref();
    assert_eq!(why.unwrap().code, "failed_as_asked");
}

#[tokio::test]
async fn w8_handled_failures_are_listed_once_although_a_restart_came_between() {
    let world = World::new().await;
    let run = world.start(&handling("wait"), json!({})).await;
    let held =
        |kind: &Kind| matches!(kind, Kind::CallDispatched(call) if call.node_id == "loop#0/hold");
    world.events_until(&run.run_id, held).await;
    let world = world.killed().await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(handled(&outcome), ["loop#0/act", "loop#1/act"]);
}

#[tokio::test]
async fn w8_handled_failures_inside_zones_without_effects_are_listed_too() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            {"id": "map", "type": "core:MapList", "inputValues": {"items": [4, -1]}},
            entry("map"),
            {"id": "loop", "type": "core:LoopZone", "parentNode": "map", "inputValues": {"count": 2}},
            entry("loop"),
            within("loop", json!({"id": "root", "type": "core:MathOperation",
                "configValues": {"operationMode": "sqrt", "execution": {"onError": "continue"}}})),
            exit("loop"), exit("map"),
            tool("after", "wait"),
        ],
        "edges": [edge("map_in", "item", "root", "value"), edge("map", "failed", "after", "n")],
    });
    let run = world.start(&definition, json!({})).await;
    world
        .events_until(&run.run_id, |kind| matches!(kind, Kind::CallDispatched(_)))
        .await;
    // The zone has ended before, and is not computed again.
    let world = world.killed().await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        handled(&outcome),
        ["map#1/loop#0/root", "map#1/loop#1/root"]
    );
}
