//! Workflows of an agent keep within its inventory and its budgets, and pause with it (rules G206,
//! G703 and G811).

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::agent::v1::Budgets;
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::common::v1::{RunEvent, RunOutcome, RunState, StopReason, run_event::Kind};
use contracts::tavern::gateway::v1::{AgentTarget, agent_target::Input};
use contracts::tavern::run::v1::{
    GetRunRequest, PauseRunRequest, ResumeRunRequest, WatchRunRequest,
};
use serde_json::{Value, json};
use testkit::{Stack, collect, invoke, repository, until};

use crate::text::{turn, user_message};

const CLOCK: &str = "system:get_current_time";
const LOOK: &str = "<ACTION><system:get_current_time/></ACTION>";

/// Writes an agent with an inventory whose workflow reads the clock and requests the model, which
/// calls a tool and then answers with text.
fn prepare(deploy: &Path, inventory: &Value, delay: &str) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let workflow = repository().join("deploy/workflows/npc_deliberation.json");
    let mut workflow: Value = serde_json::from_str(&std::fs::read_to_string(workflow)?)?;
    let nodes = workflow["nodes"].as_array_mut().context("it has nodes")?;
    nodes
        .push(json!({"id": "look", "type": "core:ExecuteTool", "inputValues": {"tool_id": CLOCK}}));
    std::fs::write(deploy.join("workflows/think.json"), workflow.to_string())?;
    let profile = json!({
        "id": "guide",
        "name": "guide",
        "core_deliberation_workflow_id": "think",
        "tool_ids_inventory": inventory,
        "custom_metadata": {"tavern": {"stop_at_unknown_tool": false}},
    });
    std::fs::write(deploy.join("agents/guide.json"), profile.to_string())?;
    let script = json!({"turns": [
        {"answer": {"text": LOOK, "input_tokens": 100, "output_tokens": 20, "delay": delay}},
        {"answer": {"text": "It is late.", "input_tokens": 100, "output_tokens": 10}},
    ]});
    std::fs::write(deploy.join("models/house.json"), script.to_string())?;
    let models = "[models.house]\nprovider = \"scripted\"\nscript = \"house.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

async fn outcome(stack: &Stack, budgets: Budgets) -> anyhow::Result<RunOutcome> {
    let request = turn(AgentTarget {
        profile_id: "guide".to_owned(),
        input: Some(Input::UserMessage("How late is it?".to_owned())),
        budgets: Some(budgets),
        ..AgentTarget::default()
    });
    let ended = invoke(&stack.gateway(), request).await?;
    ended.run.outcome.context("the turn has ended")
}

#[tokio::test(flavor = "multi_thread")]
async fn g206_calls_of_a_deliberation_workflow_need_the_inventory_and_count() -> anyhow::Result<()>
{
    for (inventory, expected, calls) in [
        (json!([CLOCK]), RunState::Succeeded, 3),
        (json!(["system:read_file"]), RunState::Failed, 1),
    ] {
        let deploy = tempfile::tempdir()?;
        prepare(deploy.path(), &inventory, "0ms")?;
        let stack = Stack::builder().deploy(deploy.path()).start().await?;
        let outcome = outcome(&stack, Budgets::default()).await?;
        ensure!(outcome.state() == expected, "{outcome:?}");
        ensure!(outcome.calls == calls, "{outcome:?}");
        if expected == RunState::Failed {
            let error = outcome.error.context("it failed")?;
            ensure!(
                error.message.contains("is not a tool of the agent"),
                "{}",
                error.message
            );
            continue;
        }
        let used = outcome.model_totals.first().context("a model was asked")?;
        let usage = used.usage.clone().unwrap_or_default();
        ensure!(
            (used.model.as_str(), used.answers, usage.input_tokens) == ("house", 2, 200),
            "{used:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g703_a_deliberation_workflow_keeps_within_the_tokens_and_calls_of_its_turn()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path(), &json!([CLOCK]), "0ms")?;
    let stack = Stack::builder()
        .deploy(deploy.path())
        .separate()
        .start()
        .await?;
    let tokens = Budgets {
        tokens: 300,
        ..Budgets::default()
    };
    // The first round makes two calls, one of its workflow and one of its answer.
    let calls = Budgets {
        calls: 2,
        ..Budgets::default()
    };
    for (budgets, reason) in [(tokens, StopReason::Tokens), (calls, StopReason::Calls)] {
        let outcome = outcome(&stack, budgets).await?;
        ensure!(outcome.stop_reason() == reason, "{outcome:?}");
        let error = outcome.error.context("it failed")?;
        ensure!(error.code == "budget_exhausted", "{error:?}");
    }
    Ok(())
}

/// Follows a run until an event is the wanted one.
async fn event(
    stack: &Stack,
    run_id: &str,
    wanted: impl Fn(&RunEvent) -> bool,
) -> anyhow::Result<RunEvent> {
    let request = WatchRunRequest {
        run_id: run_id.to_owned(),
        after_sequence: 0,
    };
    let mut records = stack.runs().watch_run(request).await?.into_inner();
    while let Some(response) = records.message().await? {
        if let Some(Record::Event(event)) = contracts::watch::decode(response.record)?
            && wanted(&event)
        {
            return Ok(event);
        }
    }
    anyhow::bail!("the run ended before")
}

#[tokio::test(flavor = "multi_thread")]
async fn g811_after_a_pause_nothing_is_dispatched_in_the_turn_or_below_it() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path(), &json!([CLOCK]), "300ms")?;
    let stack = Stack::builder()
        .deploy(deploy.path())
        .separate()
        .start()
        .await?;
    let request = user_message("guide", "How late is it?");
    let asks = |event: &RunEvent| matches!(&event.kind, Some(Kind::NodeStarted(node)) if node.node_id == "ask");
    let (run_id, seen) = until(&stack.gateway(), request, asks).await?;
    let child = seen.last().context("the workflow asks")?.run_id.clone();
    let request = PauseRunRequest {
        run_id: run_id.clone(),
        reason: "wait".to_owned(),
    };
    stack.runs().pause_run(request).await?;
    let state = |run_id: &str| {
        let (mut runs, run_id) = (stack.runs(), run_id.to_owned());
        async move {
            let found = runs.get_run(GetRunRequest { run_id }).await?.into_inner();
            anyhow::Ok(found.run.unwrap_or_default().state())
        }
    };
    ensure!(
        state(&child).await? == RunState::Paused,
        "the workflow follows"
    );
    // The answer in progress ends and is recorded; the run stays paused.
    let answered = |event: &RunEvent| matches!(event.kind, Some(Kind::UsageReported(_)));
    event(&stack, &child, answered).await?;
    ensure!(state(&child).await? == RunState::Paused);
    let request = ResumeRunRequest {
        run_id: run_id.clone(),
    };
    stack.runs().resume_run(request).await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    ensure!(ended.run.state() == RunState::Succeeded, "{:?}", ended.run);
    for id in [&run_id, &child] {
        let own = collect(&stack.runs(), id, 0).await?.events.into_iter();
        let own = own.filter(|event| event.run_id == *id);
        let kinds = own.filter_map(|event| event.kind);
        let paused = kinds.skip_while(|kind| !matches!(kind, Kind::RunPaused(_)));
        let mut paused = paused.take_while(|kind| !matches!(kind, Kind::RunResumed(_)));
        ensure!(paused.next().is_some(), "{id} was paused");
        let is_start = |kind: &Kind| {
            matches!(
                kind,
                Kind::CallDispatched(_) | Kind::ModelRequested(_) | Kind::NodeStarted(_)
            )
        };
        let started: Vec<Kind> = paused.filter(is_start).collect();
        ensure!(started.is_empty(), "{started:?}");
    }
    Ok(())
}
