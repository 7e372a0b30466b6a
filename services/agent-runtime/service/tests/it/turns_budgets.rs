//! Budgets beyond rounds and calls: tokens, money, time and bytes.

use contracts::tavern::{
    agent::v1::{Budgets, StartTurnRequest},
    common::v1::{BudgetReached, BudgetUnit, StopReason, run_event::Kind},
};
use doubles::TestRegistry;
use model_client::EndpointSettings;
use serde_json::{Value, json};

use crate::{
    endpoint::{self, Endpoint, end, stream_head, text},
    turns::{call, play},
    turns_usage::{priced, world_with},
    world::{Ended, World, says},
};

fn within(budgets: Budgets) -> StartTurnRequest {
    StartTurnRequest {
        budgets: Some(budgets),
        ..says("look")
    }
}

fn reached(ended: &Ended) -> Vec<BudgetReached> {
    let kinds = ended.events.iter().filter_map(|event| event.kind.clone());
    let reached = kinds.filter_map(|kind| match kind {
        Kind::BudgetReached(reached) => Some(reached),
        _ => None,
    });
    reached.collect()
}

fn looks(times: usize, answer: &Value) -> Vec<Value> {
    let look = |at: usize| {
        let mut answer = answer.clone();
        answer["text"] = call("Look", "at", &format!("shelf {at}")).into();
        json!({"answer": answer})
    };
    (0..times).map(look).collect()
}

fn seen() -> TestRegistry {
    TestRegistry::default().gives("Look", &["at"], json!("seen"))
}

#[tokio::test]
async fn g701_tokens_are_remarked_at_four_fifths_and_a_tenth_is_kept_for_the_last_word() {
    let mut turns = looks(2, &json!({"input_tokens": 40_000, "output_tokens": 1_000}));
    turns[1]["answer"]["output_tokens"] = json!(3_000);
    turns.push(json!({
        "expect": {"last_contains": ["used 84000 of its 100000 tokens"]},
        "answer": {"text": call("Look", "at", "the last"), "input_tokens": 5_000, "output_tokens": 2_000}
    }));
    turns.push(json!({
        "expect": {"last_contains": ["No calls remain", "all of its 100000 tokens"]},
        "answer": {"text": "Enough."}
    }));
    let world = World::new(seen(), &["Look"], &json!(turns));
    let budgets = Budgets {
        tokens: 100_000,
        ..Budgets::default()
    };
    let ended = play(&world, within(budgets)).await;
    assert_eq!(
        (ended.text().as_str(), ended.stop_reason()),
        ("Enough.", StopReason::Tokens),
        "{}",
        ended.error_message()
    );
    let expected = |used, spent| BudgetReached {
        unit: BudgetUnit::Tokens.into(),
        limit: 100_000,
        used,
        spent,
    };
    assert_eq!(
        reached(&ended),
        [expected(84_000, false), expected(91_000, true)]
    );
}

#[tokio::test]
async fn g702_a_budget_that_no_answer_fits_in_ends_the_turn_before_the_model_is_asked() {
    let world = World::new(seen(), &["Look"], &json!([]));
    let budgets = Budgets {
        tokens: 300,
        ..Budgets::default()
    };
    let ended = play(&world, within(budgets)).await;
    assert_eq!(
        (ended.error_code(), ended.stop_reason()),
        ("budget_exhausted", StopReason::Tokens)
    );
    assert_eq!(
        ended.count(|kind| matches!(kind, Kind::ModelRequested(_))),
        0
    );
}

#[tokio::test]
async fn g105_the_profile_bounds_what_a_request_may_ask_for() {
    let profile = json!({
        "id": "ada",
        "custom_metadata": {"tavern": {"model": "play", "budgets": {"iterations": 1}}},
        "tool_ids_inventory": ["Look"],
    });
    let mut turns = looks(1, &json!({}));
    turns.push(json!({"expect": {"last_contains": ["all of its 1 rounds"]}, "answer": {"text": "Enough."}}));
    let script = json!({"turns": turns});
    let world = World::of(seen(), &[("ada.json", &profile)], &script);
    let budgets = Budgets {
        iterations: 9,
        ..Budgets::default()
    };
    let ended = play(&world, within(budgets)).await;
    assert_eq!(
        ended.stop_reason(),
        StopReason::Iterations,
        "{}",
        ended.error_message()
    );
}

#[tokio::test]
async fn bytes_are_counted_after_a_call_and_keep_the_next_one_from_leaving() {
    let registry = TestRegistry::default().gives("Look", &["at"], json!("x".repeat(2_000)));
    let two = "<ACTION><Look><at>1</at></Look><Look><at>2</at></Look></ACTION>";
    let turns = json!([
        {"answer": {"text": two}},
        {"expect": {"last_contains": ["Look was not executed", "all of its 1000 bytes", "No calls remain"]},
         "answer": {"text": "Enough."}}
    ]);
    let world = World::new(registry, &["Look"], &turns);
    let budgets = Budgets {
        bytes: 1_000,
        ..Budgets::default()
    };
    let ended = play(&world, within(budgets)).await;
    assert_eq!(
        (ended.text().as_str(), ended.stop_reason()),
        ("Enough.", StopReason::Bytes),
        "{}",
        ended.error_message()
    );
    assert_eq!(world.registry.dispatches().len(), 1);
}

#[tokio::test]
async fn time_at_work_ends_a_turn() {
    let mut turns = looks(1, &json!({"delay": "1100ms", "chunk": 4_096}));
    turns.push(json!({"expect": {"last_contains": ["all of its 1 seconds"]}, "answer": {"text": "Enough."}}));
    let world = World::new(seen(), &["Look"], &json!(turns));
    let budgets = Budgets {
        wall_seconds: 1,
        ..Budgets::default()
    };
    let ended = play(&world, within(budgets)).await;
    assert_eq!(
        (ended.text().as_str(), ended.stop_reason()),
        ("Enough.", StopReason::Wall),
        "{}",
        ended.error_message()
    );
    assert!(
        world.registry.dispatches().is_empty(),
        "the call is withheld"
    );
}

#[tokio::test]
async fn money_needs_prices_and_lowers_the_longest_answer() {
    let endpoint = Endpoint::start(vec![vec![stream_head(), text("Hello."), end("stop")]]).await;
    let world = |prices| {
        let settings = EndpointSettings {
            price_per_million_micros: prices,
            ..endpoint::settings(&endpoint)
        };
        world_with(&endpoint, settings)
    };
    let request = within(Budgets {
        money_micros: 10_000,
        ..Budgets::default()
    });
    let running = world(None).build().await;
    assert_eq!(
        running.violated(request.clone()).await,
        ["budgets.money_micros"]
    );
    let ended = world(priced()).build().await.play(request).await;
    assert_eq!(ended.text(), "Hello.");
    let body = endpoint.received()[0].body.clone();
    let most = body["max_completion_tokens"]
        .as_u64()
        .or(body["max_tokens"].as_u64());
    assert!(
        most.is_some_and(|most| (500..600).contains(&most)),
        "{body}"
    );
}
