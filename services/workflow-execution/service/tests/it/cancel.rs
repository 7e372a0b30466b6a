//! Cancelling runs, and their deadlines.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{RunOptions, RunState, StopReason};
use contracts::tavern::run::v1::CancelRunRequest;
use serde_json::json;

use crate::support::*;

fn dispatched(kind: &Kind) -> bool {
    matches!(kind, Kind::CallDispatched(_))
}

#[tokio::test]
async fn a_cancel_reaches_the_tool_and_nothing_starts_after_it() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [tool("t", "wait"), tool("next", "echo")],
        "edges": [edge("t", "result", "next", "x")],
    });
    let run = world.start(&definition, json!({})).await;
    world.events_until(&run.run_id, dispatched).await;
    let request = CancelRunRequest {
        run_id: run.run_id.clone(),
        reason: "enough".into(),
    };
    let cancelled = world
        .runs
        .clone()
        .cancel_run(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(cancelled.run.unwrap().state(), RunState::Cancelled);
    assert!(
        cancelled.still_running.is_empty(),
        "{:?}",
        cancelled.still_running
    );
    assert_eq!(world.registry.cancelled(), [format!("{}/t/0", run.run_id)]);
    let words = words(&world.events(&run.run_id).await);
    let after = words
        .iter()
        .position(|word| word == "cancel requested")
        .unwrap();
    assert!(
        !words[after..].iter().any(|word| word.ends_with(" started")),
        "{words:?}"
    );
    // A repetition changes nothing.
    let again = world
        .runs
        .clone()
        .cancel_run(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(again.run.unwrap().state(), RunState::Cancelled);
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        (outcome.stop_reason(), outcome.unsettled_effect_ids.len()),
        (StopReason::Cancelled, 0)
    );
}

#[tokio::test]
async fn a_cancel_ends_every_script() {
    let world = World::new().await;
    let endless = "import time\nwhile True: time.sleep(0.05)\n";
    let definition = json!({"nodes": [python("a", endless), python("b", endless)]});
    let run = world.start(&definition, json!({})).await;
    world.sandbox.until_running(2).await;
    let request = CancelRunRequest {
        run_id: run.run_id.clone(),
        reason: String::new(),
    };
    let cancelled = world
        .runs
        .clone()
        .cancel_run(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(cancelled.run.unwrap().state(), RunState::Cancelled);
    world.sandbox.until_running(0).await;
}

async fn cancel(world: &World, run_id: &str) {
    let request = CancelRunRequest {
        run_id: run_id.to_owned(),
        reason: "enough".into(),
    };
    world.runs.clone().cancel_run(request).await.unwrap();
}

#[tokio::test]
async fn a_cancel_of_a_paused_run_reaches_what_left_before_a_restart() {
    let inside = |mut node: serde_json::Value| {
        node["parentNode"] = json!("loop");
        node
    };
    let zone = [
        json!({"id": "loop", "type": "core:LoopZone", "inputValues": {"count": 1}}),
        inside(json!({"id": "begin", "type": "core:ZoneInput"})),
        inside(tool("t", "wait")),
        inside(json!({"id": "end", "type": "core:ZoneOutput"})),
    ];
    let cases = [
        (json!({"nodes": [tool("t", "wait")]}), "t"),
        (json!({"nodes": zone}), "loop#0/t"),
    ];
    for (definition, node) in cases {
        let world = World::new().await;
        let run = world.start(&definition, json!({})).await;
        world.events_until(&run.run_id, dispatched).await;
        world.pause(&run.run_id).await.unwrap();
        let world = world.restart().await;
        cancel(&world, &run.run_id).await;
        let outcome = world.outcome(&run.run_id).await;
        assert_eq!(outcome.state(), RunState::Cancelled);
        assert_eq!(outcome.unsettled_effect_ids, Vec::<String>::new());
        let effect_id = format!("{}/{node}/0", run.run_id);
        assert_eq!(world.registry.cancelled(), [effect_id]);
    }
}

#[tokio::test]
async fn a_call_that_the_registry_takes_after_the_cancel_is_cancelled_too() {
    let world = World::new().await;
    let definition = json!({"nodes": [tool("t", "late")]});
    let run = world.start(&definition, json!({})).await;
    world.registry.until_asked(1).await;
    cancel(&world, &run.run_id).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Cancelled);
    assert_eq!(outcome.unsettled_effect_ids, Vec::<String>::new());
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_not_asked_again_after_a_cancel() {
    let world = World::new().await;
    let definition = json!({"nodes": [tool("t", "absent")]});
    let run = world.start(&definition, json!({})).await;
    world.registry.until_asked(1).await;
    cancel(&world, &run.run_id).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Cancelled);
    // One request may have been in flight.
    assert!(world.registry.asked_after_cancel() <= 1);
}

#[tokio::test]
async fn a_deadline_ends_the_run_as_failed() {
    let world = World::new().await;
    let mut request = of_definition(&json!({"nodes": [tool("t", "wait")]}), json!({}));
    let timeout = prost_types::Duration {
        // Enough for the call to leave on a busy machine.
        seconds: 3,
        nanos: 0,
    };
    request.options = Some(RunOptions {
        durability: 0,
        timeout: Some(timeout),
    });
    let run = world.begin(request).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Failed);
    assert_eq!(outcome.error.unwrap().code, "deadline_exceeded");
    assert_eq!(world.registry.cancelled().len(), 1);
}

#[tokio::test]
async fn a_cancel_that_was_acknowledged_holds_over_a_restart() {
    let world = World::new().await;
    let run = world
        .start(&json!({"nodes": [tool("t", "wait")]}), json!({}))
        .await;
    world.events_until(&run.run_id, dispatched).await;
    // The process ends between the request and the end of the run.
    let cancel = {
        let (mut runs, run_id) = (world.runs.clone(), run.run_id.clone());
        tokio::spawn(async move {
            runs.cancel_run(CancelRunRequest {
                run_id,
                reason: "enough".into(),
            })
            .await
        })
    };
    world
        .events_until(&run.run_id, |kind| matches!(kind, Kind::CancelRequested(_)))
        .await;
    let world = world.restart().await;
    drop(cancel.await);
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Cancelled);
}

#[tokio::test]
async fn a_cancel_ends_a_loop_between_two_iterations() {
    let world = World::new().await;
    // A million times a million iterations would not end.
    let zone = |id: &str, around: Option<&str>| {
        json!({"id": id, "type": "core:LoopZone", "parentNode": around, "inputValues": {"count": 1_000_000},
               "configValues": {"maxIterations": 1_000_000}})
    };
    let inside = |zone: &str, id: &str, full_type: &str| json!({"id": id, "type": full_type, "parentNode": zone});
    let definition = json!({
        "nodes": [
            zone("outer", None), inside("outer", "a", "core:ZoneInput"), inside("outer", "b", "core:ZoneOutput"),
            zone("inner", Some("outer")), inside("inner", "c", "core:ZoneInput"), inside("inner", "d", "core:ZoneOutput"),
        ],
        "edges": [],
    });
    let run = world.start(&definition, json!({})).await;
    let begun =
        |kind: &Kind| matches!(kind, Kind::NodeStarted(started) if started.node_id == "outer");
    world.events_until(&run.run_id, begun).await;
    let request = CancelRunRequest {
        run_id: run.run_id,
        reason: "enough".into(),
    };
    let cancelled = world.runs.clone().cancel_run(request).await;
    let cancelled = cancelled.unwrap().into_inner();
    assert_eq!(cancelled.run.unwrap().state(), RunState::Cancelled);
}
