//! The guarantees across processes when one of them ends: every service is killed in the middle of
//! its work and started again, or ended under load.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use contracts::tavern::common::v1::{
    CallError, CallResult, CallStatus, ErrorReason, RunEvent, RunState, run_event::Kind,
};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::registry::v1::CallDecision;
use contracts::tavern::run::v1::{CancelRunRequest, GetRunRequest};
use grpc_kit::Outbound;
use serde_json::json;
use testkit::{Followed, Stack, collect, eventually, invoke, until};
use tonic::{Code, Status};

use crate::cancel::processes_with;
use crate::doubt::{await_doubt, decide};
use crate::ledger::{World, append, chain, dispatched};
use crate::text::{failing_agents, model_text, user_message, write_file};

async fn separate() -> anyhow::Result<Stack> {
    Stack::builder()
        .separate()
        .deploy(failing_agents())
        .start()
        .await
}

/// Follows a run to its end as a client does whose server ended: it retries while the server is
/// missing.
async fn collect_again(stack: &Stack, run_id: &str, after: u64) -> anyhow::Result<Followed> {
    eventually("the run to end", || async {
        match collect(&stack.runs(), run_id, after).await {
            Err(error) if comes_back(&error) => None,
            followed => Some(followed),
        }
    })
    .await?
}

/// Whether a client should retry: the service is away, or has too many requests that wait for a service that is.
pub(crate) fn comes_back(error: &anyhow::Error) -> bool {
    let is_away = error.downcast_ref::<Status>().is_some_and(|status| {
        let is_busy = grpc_kit::reason(status) == Some(ErrorReason::Overloaded);
        status.code() == Code::Unavailable || is_busy
    });
    is_away || error.to_string() == "the server drains"
}

/// Starts a turn, kills a service once the ledger has `note`, starts the service again, and follows
/// the turn to its end.
async fn kill_in_a_turn(
    world: &mut World,
    agent: &str,
    note: &str,
    victim: &str,
) -> anyhow::Result<Followed> {
    let run_id = killed_in_a_turn(world, agent, note, victim).await?;
    let ended = collect_again(&world.stack, &run_id, 0).await?;
    assert_nothing_is_reported_twice(&ended);
    Ok(ended)
}

/// Starts a turn, kills a service once the ledger has `note`, and starts the service again.
async fn killed_in_a_turn(
    world: &mut World,
    agent: &str,
    note: &str,
    victim: &str,
) -> anyhow::Result<String> {
    let request = user_message(agent, "Please note it.");
    let (run_id, _) = until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect(note).await?;
    world.stack.kill_service(victim)?;
    world.stack.restart_service(victim).await?;
    Ok(run_id)
}

/// Checks that the log of a run, which has no gaps, has no event twice.
fn assert_nothing_is_reported_twice(run: &Followed) {
    let mut seen = HashSet::new();
    for event in &run.events {
        let what = match event.kind.as_ref().expect("an event has a kind") {
            Kind::RunStarted(_) => "run started".to_owned(),
            Kind::RunFinished(_) => "run finished".to_owned(),
            Kind::NodeStarted(node) => format!("node started {}", node.node_id),
            Kind::NodeFinished(node) => format!("node finished {}", node.node_id),
            Kind::CallDispatched(call) => format!("dispatched {}", call.effect_id),
            Kind::CallSettled(call) => {
                let result = call.result.clone().unwrap_or_default();
                format!("settled {}", result.effect_id)
            }
            _ => continue,
        };
        let key = format!("{}: {what}", event.run_id);
        assert!(seen.insert(key.clone()), "twice in the log: {key}");
    }
}

/// Checks that a parent's records of a child equal the child's own log.
async fn assert_children_are_complete(stack: &Stack, run: &Followed) -> anyhow::Result<()> {
    let below = |event: &&RunEvent| event.parent_path == [run.run.run_id.clone()];
    let children: HashSet<_> = run.events.iter().filter(below).map(|e| &e.run_id).collect();
    assert!(!children.is_empty(), "the turn has a workflow below it");
    for child in children {
        let recorded = run
            .events
            .iter()
            .filter(|event| event.run_id == *child || event.parent_path.contains(child));
        let recorded: Vec<_> = recorded
            .map(|event| (event.origin_sequence, &event.kind))
            .collect();
        let own = collect_again(stack, child, 0).await?;
        let own: Vec<_> = own.events.iter().map(|e| (e.sequence, &e.kind)).collect();
        assert_eq!(recorded, own, "of {child}");
    }
    Ok(())
}

fn outcome_of(run: &Followed) -> String {
    format!("{:?}", run.run.outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_survives_its_runtime_and_joins_the_call_it_had_begun() -> anyhow::Result<()> {
    let mut world = World::new(separate().await?).await?;
    let ended = kill_in_a_turn(&mut world, "scribe", "turn", "agent-runtime").await?;
    assert_eq!(
        ended.run.state(),
        RunState::Succeeded,
        "{}",
        outcome_of(&ended)
    );
    assert_eq!(
        world.effects("turn")?.len(),
        1,
        "the registry went on with the call"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_call_is_repeated_by_the_next_registry_with_its_effect_id()
-> anyhow::Result<()> {
    let mut world = World::new(separate().await?).await?;
    let ended = kill_in_a_turn(&mut world, "steady_scribe", "turn", "tool-registry").await?;
    assert_eq!(
        ended.run.state(),
        RunState::Succeeded,
        "{}",
        outcome_of(&ended)
    );
    let effects = world.effects("turn")?;
    assert_eq!(effects.len(), 2);
    assert_eq!(effects[0]["effect_id"], effects[1]["effect_id"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_waits_for_the_decision_about_an_ordinary_call_that_a_registry_lost()
-> anyhow::Result<()> {
    let mut world = World::new(separate().await?).await?;
    let run_id = killed_in_a_turn(&mut world, "scribe", "turn", "tool-registry").await?;
    let call = await_doubt(&world.stack).await?;
    decide(&world.stack, &call.effect_id, CallDecision::TookEffect).await?;
    let ended = collect_again(&world.stack, &run_id, 0).await?;
    assert_nothing_is_reported_twice(&ended);
    assert_eq!(
        ended.run.state(),
        RunState::Succeeded,
        "{}",
        outcome_of(&ended)
    );
    let effects = world.effects("turn")?;
    assert_eq!(effects.len(), 1, "nothing runs twice");
    assert_eq!(effects[0]["effect_id"], call.effect_id.as_str());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_asked_to_end_and_replaced_leaves_no_call_in_doubt() -> anyhow::Result<()>
{
    for victim in ["gateway", "agent-runtime", "tool-registry"] {
        let mut world = World::new(separate().await?).await?;
        let request = user_message("scribe", "Please note it.");
        let (run_id, _) = until(&world.stack.gateway(), request, dispatched).await?;
        world.await_effect("turn").await?;
        let status = tokio::task::block_in_place(|| world.stack.terminate_service(victim))?;
        assert!(status.success(), "{victim}: {status}");
        world.stack.restart_service(victim).await?;
        let ended = collect_again(&world.stack, &run_id, 0).await?;
        assert_nothing_is_reported_twice(&ended);
        let state = ended.run.state();
        assert_eq!(
            state,
            RunState::Succeeded,
            "{victim}: {}",
            outcome_of(&ended)
        );
        assert_eq!(world.effects("turn")?.len(), 1, "{victim}");
    }
    Ok(())
}

/// A turn whose workflow is in its third step when `victim` is killed.
async fn kill_in_a_workflow(victim: &str, third_effects: usize) -> anyhow::Result<()> {
    let mut world = World::new(separate().await?).await?;
    let definition = chain("ledger.append_idempotent");
    world.put_workflow("chain", &definition).await?;
    let ended = kill_in_a_turn(&mut world, "delegate", "third", victim).await?;
    assert_eq!(
        ended.run.state(),
        RunState::Succeeded,
        "{}",
        outcome_of(&ended)
    );
    for (note, times) in [("first", 1), ("second", 1), ("third", third_effects)] {
        assert_eq!(world.effects(note)?.len(), times, "{note}");
    }
    assert_children_are_complete(&world.stack, &ended).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_below_a_turn_survives_its_own_service() -> anyhow::Result<()> {
    kill_in_a_workflow("workflow-execution", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_below_a_turn_survives_the_registry() -> anyhow::Result<()> {
    kill_in_a_workflow("tool-registry", 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_below_a_turn_survives_the_turn_s_runtime() -> anyhow::Result<()> {
    kill_in_a_workflow("agent-runtime", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_workflow_is_recorded_though_the_turn_s_runtime_was_away() -> anyhow::Result<()>
{
    let mut world = World::new(separate().await?).await?;
    let definition = chain("ledger.append_idempotent");
    world.put_workflow("chain", &definition).await?;
    let request = user_message("delegate", "Please note it.");
    let (run_id, _) = until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect("third").await?;
    world.stack.kill_service("agent-runtime")?;
    let effects = world.effects("third")?;
    let effect = effects[0]["effect_id"].as_str().unwrap_or_default();
    let child = effect.split('/').next().unwrap_or_default();
    collect_again(&world.stack, child, 0).await?;
    world.stack.restart_service("agent-runtime").await?;
    let ended = collect_again(&world.stack, &run_id, 0).await?;
    assert_nothing_is_reported_twice(&ended);
    assert_children_are_complete(&world.stack, &ended).await
}

/// A number of seconds that no other test sleeps.
fn own_seconds() -> u32 {
    100_000 + std::process::id() % 800_000
}

/// A block that runs code of a shell.
pub(crate) fn interpreter(code: &str) -> String {
    format!(
        "<ACTION><CodeInterpreter:execute><language>bash</language><code>{code}</code>\
         </CodeInterpreter:execute></ACTION>"
    )
}

/// Starts the calls of a text, kills the sandbox while a script of theirs sleeps, and makes sure that
/// no process of the script is left. Returns the id of the run.
async fn kill_the_sandbox(stack: &mut Stack, text: &str, mark: &str) -> anyhow::Result<String> {
    let (run_id, _) = until(&stack.gateway(), model_text(text), dispatched).await?;
    eventually("the script to start", || async {
        (processes_with(mark) >= 1).then_some(())
    })
    .await?;
    stack.kill_service("script-sandbox")?;
    eventually("the script's processes to be gone", || async {
        (processes_with(mark) == 0).then_some(())
    })
    .await?;
    Ok(run_id)
}

fn first_result(run: &Followed) -> CallResult {
    let settled = run.events.iter().find_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.clone(),
        _ => None,
    });
    settled.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_may_be_repeated_fails_for_now_with_its_sandbox() -> anyhow::Result<()> {
    let mut stack = separate().await?;
    let mark = format!("sleep {}", own_seconds());
    let run_id =
        kill_the_sandbox(&mut stack, &interpreter(&format!("{mark}; true")), &mark).await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    let result = first_result(&ended);
    assert_eq!(result.status(), CallStatus::Failed);
    let CallError {
        code, retryable, ..
    } = result.error.unwrap_or_default();
    assert_eq!((code.as_str(), retryable), ("sandbox_unavailable", true));
    stack.restart_service("script-sandbox").await?;
    let again = invoke(&stack.gateway(), model_text(&interpreter("echo back"))).await?;
    assert_eq!(
        again.run.state(),
        RunState::Succeeded,
        "{}",
        outcome_of(&again)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_may_not_be_repeated_is_unknown_without_its_sandbox() -> anyhow::Result<()> {
    let mut stack = separate().await?;
    let seconds = own_seconds();
    let mark = format!("sleep {seconds}");
    let text = format!("<ACTION><Nap><seconds>{seconds}</seconds></Nap></ACTION>");
    let run_id = kill_the_sandbox(&mut stack, &text, &mark).await?;
    stack.restart_service("script-sandbox").await?;
    let call = await_doubt(&stack).await?;
    assert_eq!(call.run_id, run_id);
    assert_eq!(processes_with(&mark), 0, "nothing runs twice");
    let quick = "<ACTION><Nap><seconds>0</seconds></Nap></ACTION>";
    let again = invoke(&stack.gateway(), model_text(quick)).await?;
    assert_eq!(
        again.run.state(),
        RunState::Succeeded,
        "{}",
        outcome_of(&again)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_resumes_through_the_next_gateway() -> anyhow::Result<()> {
    let mut world = World::new(separate().await?).await?;
    let request = model_text(&append("ledger.append", "slow", 3_000));
    let (run_id, before) = until(&world.stack.gateway(), request, dispatched).await?;
    world.stack.kill_service("gateway")?;
    world.stack.restart_service("gateway").await?;
    let last = before.last().map_or(0, |event| event.sequence);
    let rest = collect(&world.stack.runs(), &run_id, last).await?;
    assert_eq!(rest.run.state(), RunState::Succeeded);
    let whole = collect(&world.stack.runs(), &run_id, 0).await?;
    assert_eq!(whole.events, [before, rest.events].concat());
    assert_eq!(world.effects("slow")?.len(), 1);
    Ok(())
}

/// Invokes a text until its run is over, as a client does whose server ends. Returns the number of
/// interruptions.
async fn persistent_client(
    gateway: GatewayServiceClient<Outbound>,
    client: u32,
) -> anyhow::Result<(u32, u32, Followed)> {
    let note = format!("client-{client}");
    let text = match client % 4 {
        0 => write_file("a.txt", &note),
        _ => append("ledger.append", &note, 200 + 150 * client),
    };
    let mut request = model_text(&text);
    request.request_id = note;
    let interruptions = AtomicU32::new(0);
    let ended = eventually("a client to finish", || async {
        match invoke(&gateway, request.clone()).await {
            Err(error) if comes_back(&error) => {
                interruptions.fetch_add(1, Ordering::Relaxed);
                None
            }
            ended => Some(ended),
        }
    });
    let ended = ended.await?;
    Ok((client, interruptions.into_inner(), ended?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_asked_to_end_under_load_loses_nothing() -> anyhow::Result<()> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..20_u32 {
        clients.spawn(persistent_client(world.stack.gateway(), client));
    }
    world.await_effect("client-1").await?;
    let ended = tokio::task::block_in_place(|| world.stack.terminate())?;
    assert!(
        ended.iter().all(std::process::ExitStatus::success),
        "{ended:?}"
    );
    world.stack.restart().await?;
    let mut interruptions = 0;
    while let Some(client) = clients.join_next().await {
        let (client, interrupted, run) = client??;
        assert_eq!(
            run.run.state(),
            RunState::Succeeded,
            "{client}: {}",
            outcome_of(&run)
        );
        interruptions += interrupted;
        if client % 4 != 0 {
            assert_eq!(world.effects(&format!("client-{client}"))?.len(), 1);
        }
    }
    assert!(interruptions > 0, "the load was over before the end came");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_turn_ends_the_workflow_and_the_script_below_it() -> anyhow::Result<()> {
    let stack = separate().await?;
    let world = World::new(stack).await?;
    let mark = format!("sleep {}", own_seconds());
    let code = format!("{mark}; true");
    let values = json!({
        "tool_id": "CodeInterpreter:execute",
        "arguments": { "language": "bash", "code": code }
    });
    let definition = json!({
        "name": "nap",
        "nodes": [
            { "id": "in", "type": "core:GroupInput" },
            { "id": "nap", "type": "core:ExecuteTool", "inputValues": values },
            { "id": "out", "type": "core:GroupOutput" }
        ],
        "edges": [
            { "id": "e", "source": "nap", "sourceHandle": "result", "target": "out", "targetHandle": "done" }
        ],
        "interfaceInputs": {},
        "interfaceOutputs": { "done": { "dataFlowType": "WILDCARD" } }
    });
    world.put_workflow("chain", &definition).await?;
    let gateway = world.stack.gateway();
    let in_workflow = |event: &RunEvent| !event.parent_path.is_empty() && dispatched(event);
    let request = user_message("delegate", "Sleep.");
    let (run_id, events) = until(&gateway, request, in_workflow).await?;
    eventually("the script to start", || async {
        (processes_with(&mark) >= 1).then_some(())
    })
    .await?;
    let request = CancelRunRequest {
        run_id: run_id.clone(),
        reason: "enough".into(),
    };
    let cancelled = world.stack.runs().cancel_run(request).await?.into_inner();
    assert_eq!(cancelled.still_running, []);
    assert_eq!(
        cancelled.run.unwrap_or_default().state(),
        RunState::Cancelled
    );
    let child = events
        .last()
        .map(|event| event.run_id.clone())
        .unwrap_or_default();
    eventually("everything below to end", || async {
        let request = GetRunRequest {
            run_id: child.clone(),
        };
        let child = world
            .stack
            .runs()
            .get_run(request)
            .await
            .ok()?
            .into_inner()
            .run?;
        (child.state() == RunState::Cancelled && processes_with(&mark) == 0).then_some(())
    })
    .await?;
    let ended = collect(&world.stack.runs(), &run_id, 0).await?;
    assert_nothing_is_reported_twice(&ended);
    Ok(())
}
