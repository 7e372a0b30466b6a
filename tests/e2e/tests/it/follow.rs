//! A run is one ordered stream that can be resumed anywhere, also after a restart.

use contracts::tavern::common::v1::RunState;
use contracts::tavern::run::v1::ListRunsRequest;
use testkit::{Stack, collect, invoke};

use crate::text::{model_text, user_message, write_file};

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_resumes_after_every_sequence() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let gateway = stack.gateway();
    let whole = invoke(&gateway, model_text(&write_file("a.txt", "one"))).await?;
    for after in 0..=whole.events.len() {
        let rest = collect(&stack.runs(), &whole.run.run_id, after as u64).await?;
        assert_eq!(rest.events, whole.events[after..], "after {after}");
        assert_eq!(
            rest.run, whole.run,
            "the terminal record repeats after {after}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_run_reads_the_same_after_a_kill() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let whole = invoke(&stack.gateway(), model_text(&write_file("a.txt", "one"))).await?;
    stack.kill()?;
    stack.restart().await?;
    let again = collect(&stack.runs(), &whole.run.run_id, 0).await?;
    assert_eq!(again.events, whole.events);
    assert_eq!(again.run, whole.run);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_shows_the_events_of_every_depth_in_order() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let turn = invoke(
        &stack.gateway(),
        user_message(
            "archivist",
            "Please keep this: The bridge was built in 1431.",
        ),
    )
    .await?;
    assert_eq!(
        turn.run.state(),
        RunState::Succeeded,
        "{:?}",
        turn.run.outcome
    );
    let below: Vec<_> = turn
        .events
        .iter()
        .filter(|event| !event.parent_path.is_empty())
        .collect();
    assert!(!below.is_empty(), "the workflow's events are missing");
    for event in below {
        assert_eq!(event.parent_path[0], turn.run.run_id);
        assert_ne!(event.run_id, turn.run.run_id);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_beyond_the_end_is_refused() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let gateway = stack.gateway();
    let run = invoke(&gateway, model_text("Hello.")).await?.run;
    let error = collect(&stack.runs(), &run.run_id, run.last_sequence + 1)
        .await
        .unwrap_err();
    let status = error.downcast::<tonic::Status>()?;
    assert_eq!(status.code(), tonic::Code::OutOfRange);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_lists_the_runs_of_every_service_the_newest_first() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let gateway = stack.gateway();
    let calls = invoke(&gateway, model_text(&write_file("a.txt", "one"))).await?;
    let turn = invoke(
        &gateway,
        user_message(
            "archivist",
            "Please keep this: The bridge was built in 1431.",
        ),
    )
    .await?;
    let mut seen = Vec::new();
    let mut request = ListRunsRequest {
        page_size: 1,
        ..ListRunsRequest::default()
    };
    loop {
        let page = stack.runs().list_runs(request.clone()).await?.into_inner();
        seen.extend(page.runs.into_iter().map(|run| run.run_id));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(seen.last(), Some(&calls.run.run_id), "{seen:?}");
    let at = |wanted: &str| seen.iter().filter(|id| id.starts_with(wanted)).count();
    assert!(seen.contains(&turn.run.run_id), "{seen:?}");
    assert!(at("flow_") >= 1, "the turn runs a workflow: {seen:?}");
    let unique: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "{seen:?}");
    Ok(())
}
