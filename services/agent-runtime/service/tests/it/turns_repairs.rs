//! The turns of models whose calls had to be repaired, were written twice, or are in a place where
//! none runs.

use doubles::TestRegistry;
use serde_json::{Value, json};

use crate::{
    turns::{call, play},
    world::{Ended, World, says},
};

/// Plays two answers: a first one, and another after the model has read its result.
async fn play_two(registry: TestRegistry, first: &str, expected: Value) -> (World, Ended) {
    let turns = json!([
        {"answer": {"text": first}},
        {"expect": expected, "answer": {"text": "ok"}}
    ]);
    let world = World::new(registry, &["Look"], &turns);
    let ended = play(&world, says("look")).await;
    assert_eq!(ended.text(), "ok", "{}", ended.error_message());
    (world, ended)
}

fn look() -> TestRegistry {
    TestRegistry::default().gives("Look", &["at"], json!("seen"))
}

#[tokio::test]
async fn g8_a_value_that_holds_its_own_mark_does_not_run_for_a_read_only_tool_and_the_mark_is_named()
 {
    let registry = look().read_only("Look");
    let doubtful = call("Look", "at", "a</at> b");
    let named = "Observation: Error - Tool Look was not run: the call had to be repaired ('</at>' stands \
                 inside a value and was read as a part of it). If the mark belongs to the value, write the \
                 value in <![CDATA[ and ]]>; otherwise write the call again without the mark.";
    let (world, _) = play_two(registry, &doubtful, json!({"last_is": named})).await;
    assert_eq!(world.registry.dispatches().len(), 0);
}

#[tokio::test]
async fn g8_a_read_only_call_whose_wrapper_is_missing_runs() {
    let registry = look().read_only("Look");
    let open = call("Look", "at", "a").replace("</ACTION>", "");
    let seen = json!({"last_contains": ["executed successfully. Result: seen"]});
    let (world, _) = play_two(registry, &open, seen).await;
    assert_eq!(world.registry.dispatches().len(), 1);
}

#[tokio::test]
async fn a_repaired_call_with_effects_names_the_mark_that_was_supplied() {
    let open = call("Look", "at", "a").replace("</ACTION>", "");
    let named = json!({"last_contains": ["(</ACTION> was missing and was supplied)"], "last_lacks": ["exactly"]});
    let (world, _) = play_two(look(), &open, named).await;
    assert_eq!(world.registry.dispatches().len(), 0);
}

#[tokio::test]
async fn a2_a_call_in_two_dialects_runs_once_and_the_model_reads_why() {
    let twice = format!(
        "{}\n<tool_call>{{\"name\": \"Look\", \"arguments\": {{\"at\": \"a\"}}}}</tool_call>\n{}",
        call("Look", "at", "a"),
        call("Look", "at", "b")
    );
    let reported = json!({"last_contains": [
        "Tool Look executed successfully",
        "1 call (Look) was not run a second time: the same call in another form is before it"
    ]});
    let (world, _) = play_two(look(), &twice, reported).await;
    assert_eq!(world.registry.dispatches().len(), 2);
}

#[tokio::test]
async fn g9_a_block_in_a_fence_that_is_never_closed_is_reported_to_the_model() {
    let fenced = format!("I look.\n```xml\n{}", call("Look", "at", "a"));
    let reported =
        json!({"last_contains": ["inside a code fence that is never closed was not run"]});
    let (world, _) = play_two(look(), &fenced, reported).await;
    assert_eq!(world.registry.dispatches().len(), 0);
}

#[tokio::test]
async fn g9_a_cut_in_the_name_of_the_tool_is_reported_to_the_model() {
    let reported = json!({"last_contains": ["Malformed XML in ACTION block"]});
    let (world, ended) = play_two(look(), "I look.\n<ACTION>\n  <Lo", reported).await;
    assert_eq!(world.registry.dispatches().len(), 0);
    assert!(!ended.text().contains('<'));
}
