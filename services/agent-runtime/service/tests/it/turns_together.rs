//! Calls of one answer that are in flight together.

use contracts::tavern::common::v1::{CallStatus, RunState, run_event::Kind};
use doubles::{Behaviour, TestRegistry};
use serde_json::json;

use crate::world::{Running, World, says};

const BLOCK: &str = "<ACTION><First><x>a</x></First><Second><x>b</x></Second></ACTION>";

fn both_hang() -> TestRegistry {
    TestRegistry::default()
        .tool("First", &["x"], Behaviour::Hangs)
        .parallel_safe("First")
        .tool("Second", &["x"], Behaviour::Hangs)
        .parallel_safe("Second")
}

/// Starts the turn and waits until both calls of the block are in flight.
async fn under_way(running: &Running) -> String {
    let run_id = running.begin(says("go")).await;
    running
        .until(
            &run_id,
            |kind| matches!(kind, Kind::OutputChunk(chunk) if chunk.text == "First works"),
        )
        .await;
    running
        .until(
            &run_id,
            |kind| matches!(kind, Kind::OutputChunk(chunk) if chunk.text == "Second works"),
        )
        .await;
    run_id
}

fn turns() -> serde_json::Value {
    let observed = "Observation: Tool First executed successfully. Result: 1\n\
                Observation: Tool Second executed successfully. Result: 2";
    json!([
        {"answer": {"text": BLOCK}},
        {"expect": {"last_is": observed}, "answer": {"text": "Both."}}
    ])
}

#[tokio::test]
async fn calls_whose_tools_allow_it_are_under_way_together_and_reported_in_their_order() {
    let world = World::new(both_hang(), &["First", "Second"], &turns());
    let running = world.build().await;
    let run_id = under_way(&running).await;
    world.registry.release("Second", json!(2));
    running
        .until(&run_id, |kind| matches!(kind, Kind::CallSettled(_)))
        .await;
    world.registry.release("First", json!(1));
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.text(), "Both.", "{}", ended.error_message());
    assert_eq!(world.registry.dispatches().len(), 2);
}

#[tokio::test]
async fn a_cancel_reaches_every_call_under_way() {
    let world = World::new(both_hang(), &["First", "Second"], &turns());
    let running = world.build().await;
    let run_id = under_way(&running).await;
    let cancelled = running.cancel(&run_id).await;
    assert!(
        cancelled.still_running.is_empty(),
        "{:?}",
        cancelled.still_running
    );
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.run.state(), RunState::Cancelled);
    let cancelled = |kind: &Kind| matches!(kind, Kind::CallSettled(settled) if settled.result.as_ref().is_some_and(|result| result.status() == CallStatus::Cancelled));
    assert_eq!(ended.count(cancelled), 2);
}

#[tokio::test]
async fn after_a_crash_every_call_that_was_under_way_is_joined_again() {
    let world = World::new(both_hang(), &["First", "Second"], &turns());
    let running = world.build().await;
    let run_id = under_way(&running).await;
    running.runtime.shutdown().await;
    drop(running);

    world.registry.release("First", json!(1));
    world.registry.release("Second", json!(2));
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.text(), "Both.", "{}", ended.error_message());
    assert_eq!(world.registry.dispatches().len(), 2);
    assert_eq!(
        ended.count(|kind| matches!(kind, Kind::CallDispatched(_))),
        2
    );
}
