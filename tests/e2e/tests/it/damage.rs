//! A run whose log is damaged ends with the reason, at each owner of runs, and keeps no other from coming
//! back.

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{Run, RunEvent, RunState, run_event::Kind};
use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, ToolScope, agent_target::Input,
};
use contracts::tavern::run::v1::{CancelRunRequest, ListRunsRequest};
use contracts::tavern::workflow::v1::{StartRunRequest, start_run_request::Target};
use serde_json::json;
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};
use testkit::{Stack, eventually, until};

use crate::deliberation::put;
use crate::text::{calls, turn, write_file};

/// The first event of a run is no longer its start.
const CHANGE: &str = "UPDATE events SET payload = x'' WHERE sequence = 1 AND run = (SELECT key FROM runs WHERE id = ?)";

async fn waiting(stack: &Stack, request: InvokeTextRequest) -> anyhow::Result<String> {
    let asks = |event: &RunEvent| matches!(event.kind, Some(Kind::ApprovalRequested(_)));
    Ok(until(&stack.gateway(), request, asks).await?.0)
}

async fn turn_of_scribe(stack: &Stack) -> anyhow::Result<String> {
    let target = AgentTarget {
        profile_id: "scribe".to_owned(),
        input: Some(Input::ModelText(write_file("a.txt", "x"))),
        ..AgentTarget::default()
    };
    waiting(stack, turn(target)).await
}

async fn calls_for_scribe(stack: &Stack) -> anyhow::Result<String> {
    let target = CallsTarget {
        text: write_file("a.txt", "x"),
        scope: Some(ToolScope {
            profile_id: "scribe".to_owned(),
            ..ToolScope::default()
        }),
        ..CallsTarget::default()
    };
    waiting(stack, calls(target)).await
}

async fn workflow(stack: &Stack) -> anyhow::Result<String> {
    let request = StartRunRequest {
        target: Some(Target::WorkflowId("human_approval".to_owned())),
        inputs_json: json!({"text": "news"}).to_string(),
        ..StartRunRequest::default()
    };
    let started = stack.workflow().start_run(request).await?.into_inner();
    Ok(started.run.context("the run was started")?.run_id)
}

/// Waits until a run is listed as ended.
async fn ended(stack: &Stack, run_id: &str) -> anyhow::Result<Run> {
    eventually("the run to end", || async {
        let listed = stack.runs().list_runs(ListRunsRequest::default()).await;
        let runs = listed.ok()?.into_inner().runs;
        let run = runs.into_iter().find(|run| run.run_id == run_id);
        run.filter(|run| run.outcome.is_some())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_damaged_run_of_each_owner_keeps_no_other_from_coming_back() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let scribe = json!({
        "id": "scribe",
        "tool_ids_inventory": ["FileOperator.WriteFile"],
        "custom_metadata": {"tavern": {"approvals": [
            {"id": "files", "tools": ["FileOperator.*"], "action": "ask"},
        ]}},
    });
    put(&stack, &scribe).await?;
    let damaged = [
        turn_of_scribe(&stack).await?,
        calls_for_scribe(&stack).await?,
        workflow(&stack).await?,
    ];
    let intact = [
        turn_of_scribe(&stack).await?,
        calls_for_scribe(&stack).await?,
        workflow(&stack).await?,
    ];
    stack.kill()?;
    let owners = ["agent-runtime", "tool-registry", "workflow-execution"];
    for (owner, run_id) in owners.iter().zip(&damaged) {
        let path = stack.directory().join(format!("data/{owner}.runs.db"));
        let mut door = SqliteConnectOptions::new().filename(path).connect().await?;
        let changed = sqlx::query(CHANGE).bind(run_id).execute(&mut door).await?;
        ensure!(changed.rows_affected() == 1, "{owner} has the run {run_id}");
    }
    stack.restart().await?;
    for run_id in &damaged {
        let run = ended(&stack, run_id).await?;
        ensure!(run.state() == RunState::Failed, "{run:?}");
        let error = run.outcome.and_then(|outcome| outcome.error);
        let error = error.context("it says why")?;
        ensure!(error.code == "log_damaged", "{error:?}");
        ensure!(error.message.contains(run_id.as_str()), "{error:?}");
    }
    for run_id in &intact {
        let request = CancelRunRequest {
            run_id: run_id.clone(),
            ..CancelRunRequest::default()
        };
        stack.runs().cancel_run(request).await?;
        let run = ended(&stack, run_id).await?;
        ensure!(run.state() == RunState::Cancelled, "{run:?}");
    }
    Ok(())
}
