//! No effect happens twice behind anybody's back, whatever is killed and when.
//!
//! The effects go to a ledger: a gRPC backend in a process of its own that remembers every call
//! durably before it answers.

use std::time::Duration;

use anyhow::Context;
use contracts::tavern::common::v1::RunState;
use testkit::{Stack, collect, until};

use crate::ledger::{World, append, chain, dispatched};
use crate::text::model_text;

/// How long a run with one call lives.
const LIFE: Duration = Duration::from_millis(14);

#[tokio::test(flavor = "multi_thread")]
async fn an_unsettled_call_of_an_ordinary_tool_ends_its_run_as_unknown() -> anyhow::Result<()> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let request = model_text(&append("ledger.append", "slow", 30_000));
    let (run_id, _) = until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect("slow").await?;
    world.stack.kill()?;
    world.stack.restart().await?;
    let ended = collect(&world.stack.runs(), &run_id, 0).await?;
    assert_eq!(
        ended.run.state(),
        RunState::InDoubt,
        "{:?}",
        ended.run.outcome
    );
    let effects = world.effects("slow")?;
    assert_eq!(effects.len(), 1, "the effect was not repeated");
    let unsettled = ended
        .run
        .outcome
        .context("the run has an outcome")?
        .unsettled_effect_ids;
    assert_eq!(effects[0]["effect_id"], unsettled[0].as_str());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsettled_call_of_an_idempotent_tool_runs_again_with_its_effect_id()
-> anyhow::Result<()> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let request = model_text(&append("ledger.append_idempotent", "again", 3_000));
    let (run_id, _) = until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect("again").await?;
    world.stack.kill()?;
    world.stack.restart().await?;
    let ended = collect(&world.stack.runs(), &run_id, 0).await?;
    assert_eq!(
        ended.run.state(),
        RunState::Succeeded,
        "{:?}",
        ended.run.outcome
    );
    let effects = world.effects("again")?;
    assert_eq!(effects.len(), 2);
    assert_eq!(effects[0]["effect_id"], effects[1]["effect_id"]);
    Ok(())
}

async fn kill_in_the_third_step(last: &str) -> anyhow::Result<(World, RunState)> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    world.put_workflow("chain", &chain(last)).await?;
    let call = "<ACTION><workflow:chain></workflow:chain></ACTION>";
    let (run_id, _) = until(&world.stack.gateway(), model_text(call), dispatched).await?;
    world.await_effect("third").await?;
    world.stack.kill()?;
    world.stack.restart().await?;
    let ended = collect(&world.stack.runs(), &run_id, 0).await?;
    assert_eq!(
        world.effects("first")?.len(),
        1,
        "a committed step is not repeated"
    );
    assert_eq!(
        world.effects("second")?.len(),
        1,
        "a committed step is not repeated"
    );
    let state = ended.run.state();
    Ok((world, state))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_resumes_at_its_last_committed_step() -> anyhow::Result<()> {
    let (world, state) = kill_in_the_third_step("ledger.append_idempotent").await?;
    assert_eq!(state, RunState::Succeeded);
    assert_eq!(world.effects("third")?.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_with_an_unsettled_call_ends_as_unknown() -> anyhow::Result<()> {
    let (world, state) = kill_in_the_third_step("ledger.append").await?;
    assert_eq!(state, RunState::InDoubt);
    assert_eq!(world.effects("third")?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_no_run_and_repeat_no_effect() -> anyhow::Result<()> {
    let rounds = match std::env::var("TAVERN_TEST_KILLS") {
        Ok(number) => number.parse().context("TAVERN_TEST_KILLS is no number")?,
        Err(_) => 8,
    };
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let mut unknown = 0;
    for round in 0_u32..rounds {
        let note = format!("round-{round}");
        let mut request = model_text(&append("ledger.append", &note, 1));
        request.request_id = note.clone();
        let (gateway, repeated) = (world.stack.gateway(), request.clone());
        let flying = tokio::spawn(async move { testkit::invoke(&gateway, repeated).await });
        // Spread the kills over the life of the run; which point is hit does not matter.
        tokio::time::sleep(LIFE * round / rounds).await;
        world.stack.kill()?;
        // The stream breaks wherever it was.
        let _ = flying.await?;
        world.stack.restart().await?;
        let ended = testkit::invoke(&world.stack.gateway(), request).await?;
        let effects = world.effects(&note)?.len();
        match ended.run.state() {
            RunState::Succeeded => assert_eq!(effects, 1, "round {round}"),
            RunState::InDoubt => {
                unknown += 1;
                assert!(effects <= 1, "round {round}");
            }
            state => panic!("round {round} ended as {state:?}: {:?}", ended.run.outcome),
        }
    }
    assert!(unknown < rounds, "some rounds must get through");
    Ok(())
}
