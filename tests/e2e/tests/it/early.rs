//! A call without effects starts while its model is still writing.

use contracts::tavern::common::v1::{RunEvent, RunState, run_event::Kind};
use testkit::{Stack, collect, invoke, until};

use crate::text::{failing_agents, user_message};

async fn stack() -> anyhow::Result<Stack> {
    Stack::builder().deploy(failing_agents()).start().await
}

fn settled(event: &RunEvent) -> bool {
    matches!(event.kind, Some(Kind::CallSettled(_)))
}

fn answered(event: &RunEvent) -> bool {
    matches!(event.kind, Some(Kind::ModelAnswered(_)))
}

fn effects(events: &[RunEvent]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::CallDispatched(call)) => Some(call.effect_id.as_str()),
            _ => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_call_ends_before_its_model_has_finished() -> anyhow::Result<()> {
    let stack = stack().await?;
    let turn = invoke(&stack.gateway(), user_message("early_bird", "How late?")).await?;
    assert_eq!(
        turn.run.state(),
        RunState::Succeeded,
        "{:?}",
        turn.run.outcome
    );
    let place = |wanted: fn(&RunEvent) -> bool| turn.events.iter().position(wanted);
    assert!(place(settled) < place(answered));
    assert_eq!(effects(&turn.events), [format!("{}/1/0", turn.run.run_id)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_the_model_writes_loses_its_answer_and_what_its_calls_gave()
-> anyhow::Result<()> {
    let mut stack = stack().await?;
    let request = user_message("early_bird", "How late?");
    let (run_id, before) = until(&stack.gateway(), request, settled).await?;
    assert!(!before.iter().any(answered), "the model is still writing");
    stack.kill()?;
    stack.restart().await?;
    let turn = collect(&stack.runs(), &run_id, 0).await?;
    assert_eq!(
        turn.run.state(),
        RunState::Succeeded,
        "{:?}",
        turn.run.outcome
    );
    let expected = [format!("{run_id}/1/0"), format!("{run_id}/1.1/0")];
    assert_eq!(effects(&turn.events), expected);
    let observed = turn
        .events
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::Observation(_))));
    assert_eq!(
        observed.count(),
        1,
        "the model reads about the second call only"
    );
    Ok(())
}
