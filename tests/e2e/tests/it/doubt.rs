//! Calls in doubt: their runs wait until a decision, and continue with it, for each carrier of the
//! call, at each depth, and over kills.
//!
//! The tool `ledger.append_in_haste` appends its note and answers later than it may take, so each of its calls has
//! taken effect and is in doubt.

mod decider;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{
    CallStatus, ErrorReason, RunEvent, RunOptions, RunState, StopReason, WaitReason,
};
use contracts::tavern::registry::v1::{
    Call, CallDecision, CallState, ListCallsRequest, ResolveCallRequest,
};
use contracts::tavern::run::v1::{CancelRunRequest, GetRunRequest};
use contracts::tavern::workflow::v1::{StartRunRequest, start_run_request::Target};
use serde_json::{Value, json};
use testkit::{Followed, Stack, collect, eventually, size, until};

use crate::ledger::{World, append, dispatched};
use crate::text::{model_text, user_message};
pub(crate) use decider::{Decider, at_random};

/// The id of the note that each call of these tests appends.
const NOTE: &str = "doubtful";

/// A workflow with one call.
fn workflow(tool: &str) -> Value {
    json!({
        "name": "append",
        "nodes": [
            {"id": "append", "type": "core:ExecuteTool", "inputValues": {
                "tool_id": tool, "arguments": {"key": "k", "note": NOTE, "delay_ms": 3_000}}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [{"source": "append", "sourceHandle": "result", "target": "out", "targetHandle": "done"}],
        "interfaceInputs": {},
        "interfaceOutputs": {"done": {"dataFlowType": "WILDCARD"}},
    })
}

/// A workflow whose only call is in a list inside a map.
fn nested(tool: &str) -> Value {
    let inside = |id: &str, full_type: &str, presets: Value| json!({"id": id, "type": full_type, "parentNode": "map", "inputValues": presets});
    let request =
        json!({"toolName": tool, "arguments": {"key": "k", "note": NOTE, "delay_ms": 3_000}});
    json!({
        "name": "nested",
        "nodes": [
            {"id": "map", "type": "core:MapList", "inputValues": {"items": [1]}},
            inside("in", "core:ZoneInput", json!({})),
            inside("append", "core:ExecuteTool", json!({"requests": [request]})),
            inside("result", "core:ZoneOutput", json!({})),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"source": "append", "sourceHandle": "status", "target": "result", "targetHandle": "result"},
            {"source": "map", "sourceHandle": "results", "target": "out", "targetHandle": "done"},
        ],
        "interfaceInputs": {},
        "interfaceOutputs": {"done": {"dataFlowType": "WILDCARD"}},
    })
}

/// Writes an agent that calls a tool once and then answers. Returns the settings of its model.
pub(crate) fn agent(deploy: &Path, id: &str, tool: &str, text: &str) -> anyhow::Result<String> {
    let profile = json!({
        "id": id,
        "name": id,
        "tool_ids_inventory": [tool],
        "custom_metadata": {"tavern": {"model": id}},
    });
    std::fs::write(
        deploy.join(format!("agents/{id}.json")),
        profile.to_string(),
    )?;
    let script = json!({"turns": [{"answer": {"text": text}}, {"answer": {"text": "Done."}}]});
    std::fs::write(deploy.join(format!("models/{id}.json")), script.to_string())?;
    Ok(format!(
        "[models.{id}]\nprovider = \"scripted\"\nscript = \"{id}.json\"\n"
    ))
}

/// A ledger, with workflows and agents that append to it.
async fn world(separate: bool) -> anyhow::Result<(World, tempfile::TempDir)> {
    let deploy = tempfile::tempdir()?;
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.path().join(directory))?;
    }
    let hasty = append("ledger.append_in_haste", NOTE, 3_000);
    let models = [
        agent(deploy.path(), "hasty", "ledger.append_in_haste", &hasty)?,
        agent(
            deploy.path(),
            "slow",
            "ledger.append",
            &append("ledger.append", "turn", 40),
        )?,
        agent(
            deploy.path(),
            "delegate",
            "workflow:append",
            "<ACTION><workflow:append></workflow:append></ACTION>",
        )?,
    ];
    std::fs::write(deploy.path().join("agent-runtime.toml"), models.concat())?;
    let stack = Stack::builder().deploy(deploy.path());
    let stack = match separate {
        true => stack.separate(),
        false => stack,
    };
    let world = World::new(stack.start().await?).await?;
    world
        .put_workflow("append", &workflow("ledger.append_in_haste"))
        .await?;
    world
        .put_workflow("nested", &nested("ledger.append_in_haste"))
        .await?;
    Ok((world, deploy))
}

/// The origin of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Carrier {
    Text,
    Turn,
    Workflow,
    ListInMap,
    WorkflowBelowTurn,
    WorkflowBelowText,
}

const CARRIERS: [Carrier; 6] = [
    Carrier::Text,
    Carrier::Turn,
    Carrier::Workflow,
    Carrier::ListInMap,
    Carrier::WorkflowBelowTurn,
    Carrier::WorkflowBelowText,
];

/// Starts a run that makes a call in doubt. Returns its id.
async fn start(stack: &Stack, carrier: Carrier) -> anyhow::Result<String> {
    let request = match carrier {
        Carrier::Text => model_text(&append("ledger.append_in_haste", NOTE, 3_000)),
        Carrier::Turn => user_message("hasty", "Append it."),
        Carrier::WorkflowBelowTurn => user_message("delegate", "Append it."),
        Carrier::WorkflowBelowText => {
            model_text("<ACTION><workflow:append></workflow:append></ACTION>")
        }
        Carrier::Workflow => return start_workflow(stack, "append").await,
        Carrier::ListInMap => return start_workflow(stack, "nested").await,
    };
    Ok(until(&stack.gateway(), request, dispatched).await?.0)
}

pub(crate) async fn start_workflow(stack: &Stack, id: &str) -> anyhow::Result<String> {
    let request = StartRunRequest {
        target: Some(Target::WorkflowId(id.to_owned())),
        ..StartRunRequest::default()
    };
    let started = stack.workflow().start_run(request).await?.into_inner();
    Ok(started.run.context("the answer has no run")?.run_id)
}

/// Returns the calls in doubt.
async fn in_doubt(stack: &Stack) -> anyhow::Result<Vec<Call>> {
    let request = ListCallsRequest {
        state: CallState::InDoubt.into(),
        ..ListCallsRequest::default()
    };
    Ok(stack.calls().list_calls(request).await?.into_inner().calls)
}

/// Waits until a call is in doubt for which its run waits. Returns the call.
pub(crate) async fn await_doubt(stack: &Stack) -> anyhow::Result<Call> {
    eventually("a run to wait for the decision about its call", || async {
        let call = in_doubt(stack).await.ok()?.pop()?;
        let request = GetRunRequest {
            run_id: call.run_id.clone(),
        };
        let run = stack.runs().get_run(request).await.ok()?.into_inner().run?;
        let waits = run.state() == RunState::Waiting && run.wait_reason() == WaitReason::InDoubt;
        waits.then_some(call)
    })
    .await
}

/// Decides about a call.
pub(crate) async fn decide(
    stack: &Stack,
    effect_id: &str,
    decision: CallDecision,
) -> Result<Call, tonic::Status> {
    let output = match decision {
        CallDecision::TookEffect => r#"{"appended": true, "index": 7}"#,
        _ => "",
    };
    let request = ResolveCallRequest {
        effect_id: effect_id.to_owned(),
        decision: decision.into(),
        output_json: output.to_owned(),
        reason: "looked it up".to_owned(),
        ..ResolveCallRequest::default()
    };
    let answer = stack.calls().resolve_call(request).await?.into_inner();
    Ok(answer.call.unwrap_or_default())
}

/// Returns the ends of calls of an effect in the log of a run.
fn ends(run: &Followed, effect_id: &str) -> Vec<CallStatus> {
    let results = run.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.as_ref(),
        _ => None,
    });
    let of_effect = results.filter(|result| result.effect_id == effect_id);
    of_effect.map(|result| result.status()).collect()
}

/// Returns the attempts that events report in doubt, and the decisions about them, in order.
fn story(events: &[RunEvent], effect_id: &str) -> Vec<String> {
    let steps = events.iter().filter_map(|event| match &event.kind {
        Some(Kind::CallInDoubt(doubt)) if doubt.effect_id == effect_id => {
            Some(format!("{} in doubt", doubt.attempt))
        }
        Some(Kind::CallDecided(decided)) if decided.effect_id == effect_id => {
            let status = decided.status().as_str_name();
            let status = status.trim_start_matches("CALL_STATUS_");
            Some(format!("{} {status}", decided.attempt))
        }
        _ => None,
    });
    steps.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_for_the_decision_about_its_call_and_continues_with_it() -> anyhow::Result<()> {
    let (world, _deploy) = world(false).await?;
    let stack = &world.stack;
    let mut effects = 0;
    for carrier in CARRIERS {
        for decision in [
            CallDecision::TookEffect,
            CallDecision::DidNot,
            CallDecision::Repeat,
        ] {
            let name = format!("{carrier:?} {decision:?}");
            let run_id = start(stack, carrier).await?;
            let call = await_doubt(stack).await.context(name.clone())?;
            decide(stack, &call.effect_id, decision).await?;
            let mut expected = vec!["1 in doubt"];
            effects += 1;
            if decision == CallDecision::Repeat {
                let again = await_doubt(stack).await.context(name.clone())?;
                ensure!(
                    again.effect_id == call.effect_id && again.attempt == 2,
                    "{name}: {again:?}"
                );
                decide(stack, &call.effect_id, CallDecision::TookEffect).await?;
                expected.extend(["1 UNSPECIFIED", "2 in doubt", "2 SUCCEEDED"]);
                effects += 1;
            } else {
                expected.push(match decision {
                    CallDecision::TookEffect => "1 SUCCEEDED",
                    _ => "1 FAILED",
                });
            }
            let ended = collect(&stack.runs(), &run_id, 0).await?;
            let took_effect = decision != CallDecision::DidNot;
            let end = match took_effect {
                true => CallStatus::Succeeded,
                false => CallStatus::Failed,
            };
            ensure!(
                ends(&ended, &call.effect_id) == [end],
                "{name}: {:?}",
                ended.events
            );
            ensure!(
                story(&ended.events, &call.effect_id) == expected,
                "{name}: {:?}",
                ended.events
            );
            // A model reads the result of the call and answers; a batch returns its results.
            let goes_on = matches!(
                carrier,
                Carrier::Turn | Carrier::WorkflowBelowTurn | Carrier::ListInMap
            );
            let state = match took_effect || goes_on {
                true => RunState::Succeeded,
                false => RunState::Failed,
            };
            ensure!(ended.run.state() == state, "{name}: {:?}", ended.run);
            ensure!(world.effects(NOTE)?.len() == effects, "{name}");
            ensure!(in_doubt(stack).await?.is_empty(), "{name}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_decision_survives_each_service() -> anyhow::Result<()> {
    let (mut world, _deploy) = world(true).await?;
    let victims = [
        ("tool-registry", Carrier::Text),
        ("tool-registry", Carrier::Turn),
        ("agent-runtime", Carrier::Turn),
        ("workflow-execution", Carrier::Workflow),
        ("workflow-execution", Carrier::WorkflowBelowTurn),
        ("gateway", Carrier::WorkflowBelowText),
    ];
    for (at, (victim, carrier)) in victims.into_iter().enumerate() {
        let name = format!("{victim} {carrier:?}");
        let run_id = start(&world.stack, carrier).await?;
        let call = await_doubt(&world.stack).await.context(name.clone())?;
        world.stack.kill_service(victim)?;
        world.stack.restart_service(victim).await?;
        let again = await_doubt(&world.stack).await.context(name.clone())?;
        ensure!(again.effect_id == call.effect_id, "{name}");
        decide(&world.stack, &call.effect_id, CallDecision::TookEffect).await?;
        let ended = collect(&world.stack.runs(), &run_id, 0).await?;
        ensure!(
            ended.run.state() == RunState::Succeeded,
            "{name}: {:?}",
            ended.run
        );
        ensure!(
            story(&ended.events, &call.effect_id) == ["1 in doubt", "1 SUCCEEDED"],
            "{name}: {:?}",
            ended.events
        );
        ensure!(world.effects(NOTE)?.len() == at + 1, "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cancelled_undecided_ends_in_doubt_and_its_forks_know_what_was_decided()
-> anyhow::Result<()> {
    let (world, _deploy) = world(false).await?;
    let stack = &world.stack;
    for carrier in CARRIERS {
        let name = format!("{carrier:?}");
        let before = world.effects(NOTE)?.len();
        let run_id = start(stack, carrier).await?;
        let call = await_doubt(stack).await.context(name.clone())?;
        let cancel = CancelRunRequest {
            run_id: run_id.clone(),
            reason: "enough".to_owned(),
        };
        stack.runs().cancel_run(cancel).await?;
        let ended = collect(&stack.runs(), &run_id, 0).await?;
        let outcome = ended.run.outcome.clone().unwrap_or_default();
        ensure!(
            ended.run.state() == RunState::InDoubt,
            "{name}: {outcome:?}"
        );
        ensure!(
            outcome.stop_reason() == StopReason::InDoubt,
            "{name}: {outcome:?}"
        );
        let is_own = call.run_id == run_id;
        ensure!(
            !is_own || outcome.unsettled_effect_ids == [call.effect_id.clone()],
            "{name}: {outcome:?}"
        );

        let refused = decide(stack, &call.effect_id, CallDecision::Repeat).await;
        let reason = refused.as_ref().err().and_then(grpc_kit::reason);
        ensure!(
            reason == Some(ErrorReason::RunFinished),
            "{name}: {refused:?}"
        );
        for call in in_doubt(stack).await? {
            decide(stack, &call.effect_id, CallDecision::TookEffect).await?;
        }
        let fork = match carrier {
            Carrier::Turn => fork_turn(stack, &ended).await?,
            Carrier::Workflow => fork_run(stack, &run_id).await?,
            _ => continue,
        };
        let forked = collect(&stack.runs(), &fork, 0).await?;
        ensure!(
            forked.run.state() == RunState::Succeeded,
            "{name}: {:?}",
            forked.run
        );
        ensure!(
            world.effects(NOTE)?.len() == before + 1,
            "{name}: the fork repeated the effect"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_a_run_that_waits_for_a_decision_in_doubt() -> anyhow::Result<()> {
    let (world, _deploy) = world(false).await?;
    let stack = &world.stack;
    let options = Some(RunOptions {
        timeout: Some(prost_types::Duration {
            seconds: 2,
            nanos: 0,
        }),
        ..RunOptions::default()
    });
    let workflow = StartRunRequest {
        target: Some(Target::WorkflowId("append".to_owned())),
        options,
        ..StartRunRequest::default()
    };
    let started = stack.workflow().start_run(workflow).await?.into_inner();
    let mut run_ids = vec![started.run.unwrap_or_default().run_id];
    for mut request in [
        model_text(&append("ledger.append_in_haste", NOTE, 3_000)),
        user_message("hasty", "Append it."),
    ] {
        request.options = options;
        run_ids.push(until(&stack.gateway(), request, dispatched).await?.0);
    }
    for run_id in run_ids {
        let ended = collect(&stack.runs(), &run_id, 0).await?;
        let outcome = ended.run.outcome.clone().unwrap_or_default();
        ensure!(ended.run.state() == RunState::InDoubt, "{outcome:?}");
        ensure!(outcome.unsettled_effect_ids.len() == 1, "{outcome:?}");
    }
    ensure!(world.effects(NOTE)?.len() == 3);
    Ok(())
}

async fn fork_run(stack: &Stack, run_id: &str) -> anyhow::Result<String> {
    let request = contracts::tavern::workflow::v1::ForkRunRequest {
        run_id: run_id.to_owned(),
        ..Default::default()
    };
    let forked = stack.workflow().fork_run(request).await?.into_inner();
    let plan = forked.plan.unwrap_or_default();
    ensure!(plan.effects_repeated.is_empty(), "{plan:?}");
    Ok(forked.run.context("the fork has a run")?.run_id)
}

async fn fork_turn(stack: &Stack, turn: &Followed) -> anyhow::Result<String> {
    let answer = turn
        .events
        .iter()
        .find(|event| matches!(event.kind, Some(Kind::ModelAnswered(_))));
    let request = contracts::tavern::agent::v1::ForkTurnRequest {
        run_id: turn.run.run_id.clone(),
        sequence: answer.context("the model answered")?.sequence,
        ..Default::default()
    };
    let forked = stack.agent().fork_turn(request).await?.into_inner();
    Ok(forked.run.context("the fork has a run")?.run_id)
}

/// The usual life of a turn with one call.
const LIFE: Duration = Duration::from_millis(90);

#[tokio::test(flavor = "multi_thread")]
async fn turns_continue_with_decisions_at_random_over_kills() -> anyhow::Result<()> {
    let rounds = size("TAVERN_TEST_KILLS", 6_u32)?;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut world, _deploy) = world(false).await?;
    let decider = Decider::start(&world.stack, at_random(seed));
    for round in 0..rounds {
        let mut request = user_message("slow", "Append it.");
        request.request_id = format!("round-{round}");
        let (gateway, repeated) = (world.stack.gateway(), request.clone());
        let flying = tokio::spawn(async move { testkit::invoke(&gateway, repeated).await });
        // Any point of the turn will do, so there is no condition to wait for.
        tokio::time::sleep(LIFE.mul_f64(random.f64())).await;
        world.stack.kill()?;
        // The stream breaks wherever it was.
        let _ = flying.await?;
        world.stack.restart().await?;
        let ended = testkit::invoke(&world.stack.gateway(), request).await?;
        ensure!(
            ended.run.state() == RunState::Succeeded,
            "round {round}: {:?}",
            ended.run
        );
        let mut happened = HashMap::<String, usize>::new();
        for effect in world.effects("turn")? {
            let effect_id = effect["effect_id"].as_str().unwrap_or_default();
            *happened.entry(effect_id.to_owned()).or_default() += 1;
        }
        for (effect_id, times) in happened {
            let allowed = decider.allowed(&effect_id);
            if times > allowed {
                bail!("round {round}: {effect_id} happened {times} times, {allowed} were allowed");
            }
        }
    }
    println!("{} of {rounds} turns had a call in doubt", decider.count());
    Ok(())
}
