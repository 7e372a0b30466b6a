//! Retention in every service: runs that ended long ago are deleted, and runs still needed stay.

mod growth;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::tavern::agent::v1::{
    ListConversationsRequest, conversation_service_client::ConversationServiceClient,
};
use contracts::tavern::common::v1::RunState;
use contracts::tavern::registry::v1::{
    ApprovalVerdict, Call, CallDecision, CallState, ListApprovalsRequest, ListCallsRequest,
    StartCallRequest, approval_service_client::ApprovalServiceClient,
};
use contracts::tavern::run::v1::{CancelRunRequest, ListRunsRequest, SignalRunRequest};
use serde_json::json;
use testkit::{Stack, collect, eventually, invoke};

use crate::doubt::{agent, await_doubt, decide, start_workflow};
use crate::forks::fork;
use crate::ledger::{World, append};
use crate::text::{model_text, user_message};
use crate::workflows::edge;

/// The lists of all services.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kept {
    runs: BTreeSet<String>,
    calls: BTreeSet<String>,
    approvals: BTreeSet<String>,
    conversations: BTreeSet<String>,
}

impl Kept {
    async fn of(stack: &Stack) -> anyhow::Result<Self> {
        let transport = grpc_kit::remote(&grpc_kit::ClientSettings::to(stack.address()))?;
        let mut conversations = ConversationServiceClient::new(transport.outermost());
        let conversations = conversations
            .list_conversations(ListConversationsRequest::default())
            .await?
            .into_inner();
        let runs = stack.runs().list_runs(ListRunsRequest::default()).await?;
        let calls = stack
            .calls()
            .list_calls(ListCallsRequest::default())
            .await?;
        let mut approvals = approvals(stack)?;
        let approvals = approvals
            .list_approvals(ListApprovalsRequest::default())
            .await?;
        let runs = runs.into_inner().runs.into_iter();
        let calls = calls.into_inner().calls.into_iter();
        let approvals = approvals.into_inner().approvals.into_iter();
        let conversations = conversations.conversations.into_iter();
        Ok(Self {
            runs: runs.map(|run| run.run_id).collect(),
            calls: calls.map(|call| call.effect_id).collect(),
            approvals: approvals.map(|approval| approval.approval_id).collect(),
            conversations: conversations
                .map(|conversation| conversation.conversation_id)
                .collect(),
        })
    }
}

fn approvals(stack: &Stack) -> anyhow::Result<ApprovalServiceClient<grpc_kit::Outbound>> {
    let settings = grpc_kit::ClientSettings::to(stack.address());
    Ok(ApprovalServiceClient::new(
        grpc_kit::remote(&settings)?.outermost(),
    ))
}

/// Sets the time for which everything is kept from the next start on.
fn keep_for(stack: &mut Stack, kept: Duration) {
    let kept = format!("{}ms", kept.as_millis());
    for service in ["REGISTRY", "WORKFLOW", "AGENT"] {
        for state in ["SUCCEEDED", "FAILED"] {
            stack.set_env(format!("TAVERN_{service}__RETENTION__{state}"), &kept);
        }
    }
    stack.set_env("TAVERN_AGENT__CONVERSATION_RETENTION", &kept);
}

fn prepare(deploy: &Path) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let ink = append("ledger.append", "ink", 0);
    let models = agent(deploy, "scribe", "ledger.append", &ink)?;
    std::fs::write(deploy.join("agent-runtime.toml"), models)?;
    let profile = deploy.join("agents/scribe.json");
    let text = std::fs::read_to_string(&profile)?;
    let text = text.replace(
        "\"ledger.append\"",
        "\"ledger.append\",\"ledger.append_in_haste\"",
    );
    std::fs::write(profile, text)?;
    let rules = json!({"rules": [{"id": "asked", "tools": ["ledger.append_idempotent"],
                                  "action": "ask", "approvers": {"role": "storykeeper"}}]});
    Ok(std::fs::write(
        deploy.join("approvals.json"),
        rules.to_string(),
    )?)
}

/// A workflow that runs another and then waits for a signal.
async fn put_workflows(world: &World) -> anyhow::Result<()> {
    let below = json!({
        "name": "below",
        "nodes": [
            {"id": "append", "type": "core:ExecuteTool", "inputValues": {
                "tool_id": "ledger.append", "arguments": {"key": "k", "note": "below"}}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("append", "status", "out", "status")],
        "interfaceInputs": {},
        "interfaceOutputs": {"status": {"dataFlowType": "STRING"}},
    });
    let above = json!({
        "name": "above",
        "nodes": [
            {"id": "run", "type": "core:RunWorkflow", "configValues": {"workflowId": "below"}},
            {"id": "go", "type": "core:WaitSignal", "configValues": {"name": "go"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("run", "status", "go", "value"), edge("go", "value", "out", "status")],
        "interfaceInputs": {},
        "interfaceOutputs": {"status": {"dataFlowType": "STRING"}},
    });
    world.put_workflow("below", &below).await?;
    world.put_workflow("above", &above).await
}

/// Returns the runs of a subject, each with its state.
async fn runs_of(stack: &Stack, subject: &str) -> anyhow::Result<Vec<(String, RunState)>> {
    let request = ListRunsRequest {
        subject: subject.to_owned(),
        ..ListRunsRequest::default()
    };
    let runs = stack.runs().list_runs(request).await?.into_inner().runs;
    let states = runs
        .into_iter()
        .map(|run| (run.run_id.clone(), run.state()));
    Ok(states.collect())
}

async fn cancel(stack: &Stack, run_id: &str) -> anyhow::Result<()> {
    let request = CancelRunRequest {
        run_id: run_id.to_owned(),
        ..CancelRunRequest::default()
    };
    stack.runs().cancel_run(request).await?;
    collect(&stack.runs(), run_id, 0).await?;
    Ok(())
}

/// Plays a turn, the calls of a text and a workflow to their ends, each with an effect. Returns the run of the
/// workflow.
async fn play_what_ends(stack: &Stack) -> anyhow::Result<String> {
    let over = invoke(&stack.gateway(), user_message("scribe", "Write.")).await?;
    ensure!(over.run.state() == RunState::Succeeded, "{:?}", over.run);
    let text = model_text(&append("ledger.append", "milk", 0));
    ensure!(invoke(&stack.gateway(), text).await?.run.state() == RunState::Succeeded);
    let below = start_workflow(stack, "below").await?;
    collect(&stack.runs(), &below, 0).await?;
    Ok(below)
}

/// Cancels the run of a text while its call is in doubt. Returns the run and the call.
async fn lose_call(stack: &Stack) -> anyhow::Result<(String, Call)> {
    let text = model_text(&append("ledger.append_in_haste", "lost", 3_000));
    let lost = testkit::until(&stack.gateway(), text, crate::ledger::dispatched)
        .await?
        .0;
    let lost_doubt = eventually("the call of the text to be in doubt", || async {
        let request = ListCallsRequest {
            state: CallState::InDoubt.into(),
            run_id: lost.clone(),
            ..ListCallsRequest::default()
        };
        let page = stack.calls().list_calls(request).await.ok()?;
        page.into_inner().calls.pop()
    })
    .await?;
    cancel(stack, &lost).await?;
    Ok((lost, lost_doubt))
}

/// Starts a call that waits for people. Returns its approval.
async fn ask_people(stack: &Stack) -> anyhow::Result<String> {
    let call = StartCallRequest {
        tool_id: "ledger.append_idempotent".to_owned(),
        arguments_json: json!({"key": "k", "note": "asked"}).to_string(),
        ..StartCallRequest::default()
    };
    stack.calls().start_call(call).await?;
    eventually("an approval to wait", || async {
        let mut kept = Kept::of(stack).await.ok()?;
        kept.approvals.pop_first()
    })
    .await
}

async fn all_that_is_needed_stays_until_it_is_not(separate: bool) -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path());
    let stack = match separate {
        true => stack.separate(),
        false => stack,
    };
    let mut world = World::new(stack.start().await?).await?;
    put_workflows(&world).await?;
    let stack = &world.stack;

    let below = play_what_ends(stack).await?;

    // A turn with a fork, which waits as its call is in doubt.
    let source = invoke(&stack.gateway(), user_message("scribe", "Write.")).await?;
    let hasty = deploy.path().join("hasty.txt");
    std::fs::write(&hasty, append("ledger.append_in_haste", "doubtful", 3_000))?;
    let path = hasty.to_str().context("a path is text")?;
    let forked = fork(stack, &source, &["--answer", path])?;
    let open_doubt = await_doubt(stack).await?;
    ensure!(open_doubt.run_id == forked, "{open_doubt:?}");
    let source_effects = effects_of(stack, &source.run.run_id).await?;
    let fork_conversation = conversation_of(stack, &forked).await?;

    // A workflow that waits, above a workflow that has ended.
    let above = start_workflow(stack, "above").await?;
    let child = eventually("the workflow below to end", || async {
        let runs = runs_of(stack, "below").await.ok()?;
        let mut others = runs.into_iter().filter(|(run, _)| *run != below);
        let (run, state) = others.next()?;
        (state == RunState::Succeeded).then_some(run)
    })
    .await?;
    let mut flow_effects = effects_of(stack, &child).await?;
    flow_effects.extend(effects_of(stack, &above).await?);

    let (lost, lost_doubt) = lose_call(stack).await?;
    let waiting = ask_people(stack).await?;

    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut stays = Kept {
        runs: set(&[&source.run.run_id, &forked, &above, &child, &lost]),
        calls: set(&[&open_doubt.effect_id, &lost_doubt.effect_id]),
        approvals: set(&[&waiting]),
        conversations: set(&[&source.run.conversation_id, &fork_conversation]),
    };
    stays.calls.extend(source_effects);
    stays.calls.extend(flow_effects);

    // A kill at any point of a pass loses no data.
    keep_for(&mut world.stack, Duration::from_secs(1));
    world.stack.restart().await?;
    let stack = &world.stack;
    eventually("the first run to go", || async {
        let kept = Kept::of(stack).await.ok()?;
        (kept.runs.len() < stays.runs.len() + 3).then_some(())
    })
    .await?;
    world.stack.restart().await?;
    let stack = &world.stack;
    await_left(stack, &stays)
        .await
        .context("what is over goes")?;

    // Once it is decided, answered or cancelled, it goes as well.
    decide(stack, &lost_doubt.effect_id, CallDecision::DidNot).await?;
    decide(stack, &open_doubt.effect_id, CallDecision::TookEffect).await?;
    let signal = SignalRunRequest {
        run_id: above,
        name: "go".to_owned(),
        ..SignalRunRequest::default()
    };
    stack.runs().signal_run(signal).await?;
    crate::approvals::decide(stack, waiting, ApprovalVerdict::Reject, false).await?;
    let nothing = Kept::default();
    await_left(stack, &nothing).await.context("the rest goes")
}

/// Waits until the services list exactly the expected runs.
async fn await_left(stack: &Stack, expected: &Kept) -> anyhow::Result<()> {
    let settled = eventually("the rest to be as expected", || async {
        (Kept::of(stack).await.ok()? == *expected).then_some(())
    })
    .await;
    let left = Kept::of(stack).await?;
    settled.with_context(|| format!("{left:#?} is left, not {expected:#?}"))
}

/// Returns the effects of the calls that a run made.
async fn effects_of(stack: &Stack, run_id: &str) -> anyhow::Result<Vec<String>> {
    let request = ListCallsRequest {
        run_id: run_id.to_owned(),
        ..ListCallsRequest::default()
    };
    let calls = stack.calls().list_calls(request).await?.into_inner().calls;
    ensure!(!calls.is_empty(), "{run_id} made no call");
    Ok(calls.into_iter().map(|call| call.effect_id).collect())
}

/// Returns the conversation of a run.
async fn conversation_of(stack: &Stack, run_id: &str) -> anyhow::Result<String> {
    let request = contracts::tavern::run::v1::GetRunRequest {
        run_id: run_id.to_owned(),
    };
    let run = stack.runs().get_run(request).await?.into_inner().run;
    Ok(run.context("there is no run")?.conversation_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_goes_and_what_is_needed_stays_in_one_process() -> anyhow::Result<()> {
    all_that_is_needed_stays_until_it_is_not(false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_goes_and_what_is_needed_stays_in_five_processes() -> anyhow::Result<()> {
    all_that_is_needed_stays_until_it_is_not(true).await
}
