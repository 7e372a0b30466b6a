//! No effect happens twice without a decision, with any process killed at any time.
//!
//! The effects go to a ledger: a gRPC backend in a process of its own that remembers every call
//! durably before it answers.

use std::time::Duration;

use contracts::tavern::common::v1::RunState;
use contracts::tavern::registry::v1::CallDecision;
use testkit::{Stack, collect, size, until};

use crate::doubt::{Decider, at_random, await_doubt, decide};
use crate::ledger::{World, append, chain, dispatched};
use crate::text::model_text;

/// The usual length of a run with one call.
const LIFE: Duration = Duration::from_millis(14);

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_for_the_decision_about_an_unsettled_call_of_an_ordinary_tool()
-> anyhow::Result<()> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let request = model_text(&append("ledger.append", "slow", 30_000));
    let (run_id, _) = until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect("slow").await?;
    world.stack.kill()?;
    world.stack.restart().await?;
    let call = await_doubt(&world.stack).await?;
    let effects = world.effects("slow")?;
    assert_eq!(effects.len(), 1, "the effect was not repeated");
    assert_eq!(effects[0]["effect_id"], call.effect_id.as_str());
    decide(&world.stack, &call.effect_id, CallDecision::TookEffect).await?;
    let ended = collect(&world.stack.runs(), &run_id, 0).await?;
    assert_eq!(
        ended.run.state(),
        RunState::Succeeded,
        "{:?}",
        ended.run.outcome
    );
    assert_eq!(world.effects("slow")?.len(), 1);
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

async fn kill_in_the_third_step(
    last: &str,
    decision: Option<CallDecision>,
) -> anyhow::Result<(World, RunState)> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    world.put_workflow("chain", &chain(last)).await?;
    let call = "<ACTION><workflow:chain></workflow:chain></ACTION>";
    let (run_id, _) = until(&world.stack.gateway(), model_text(call), dispatched).await?;
    world.await_effect("third").await?;
    world.stack.kill()?;
    world.stack.restart().await?;
    if let Some(decision) = decision {
        let call = await_doubt(&world.stack).await?;
        decide(&world.stack, &call.effect_id, decision).await?;
    }
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
    let (world, state) = kill_in_the_third_step("ledger.append_idempotent", None).await?;
    assert_eq!(state, RunState::Succeeded);
    assert_eq!(world.effects("third")?.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_with_an_unsettled_call_continues_with_the_decision() -> anyhow::Result<()> {
    for (decision, state, effects) in [
        (CallDecision::TookEffect, RunState::Succeeded, 1),
        (CallDecision::DidNot, RunState::Failed, 1),
        (CallDecision::Repeat, RunState::Succeeded, 2),
    ] {
        let (world, ended) = kill_in_the_third_step("ledger.append", Some(decision)).await?;
        assert_eq!(ended, state, "{decision:?}");
        assert_eq!(world.effects("third")?.len(), effects, "{decision:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_no_run_and_repeat_no_effect() -> anyhow::Result<()> {
    let rounds = size("TAVERN_TEST_KILLS", 8)?;
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let decider = Decider::start(&world.stack, at_random(fastrand::u64(..)));
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
        let effect_id = format!("{}/invocation/0", ended.run.run_id);
        let effects = world.effects(&note)?;
        assert!(
            effects.len() <= decider.allowed(&effect_id),
            "round {round}"
        );
        assert!(
            effects
                .iter()
                .all(|effect| effect["effect_id"] == effect_id.as_str())
        );
        match ended.run.state() {
            RunState::Succeeded if decider.decided(&effect_id) => {}
            RunState::Succeeded => assert_eq!(effects.len(), 1, "round {round}"),
            RunState::Failed if decider.decided(&effect_id) => {}
            state => panic!("round {round} ended as {state:?}: {:?}", ended.run.outcome),
        }
    }
    Ok(())
}
