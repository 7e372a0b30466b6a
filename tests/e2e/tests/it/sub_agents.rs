//! Agents as tools of agents (rules G901 and G703).

use std::path::Path;

use anyhow::{Context, bail, ensure};
use contracts::tavern::agent::v1::Budgets;
use contracts::tavern::common::v1::{CallResult, Run, RunEvent, RunState, run_event::Kind};
use contracts::tavern::gateway::v1::{AgentTarget, InvokeTextRequest, agent_target::Input};
use contracts::tavern::registry::v1::ApprovalVerdict;
use contracts::tavern::run::v1::{CancelRunRequest, GetRunRequest};
use serde_json::{Value, json};
use testkit::{Followed, Stack, collect, eventually, invoke, until};

use crate::approvals::decide;
use crate::scenes;
use crate::text::{turn, user_message};

const ASK: &str = "<ACTION><agent:scout><message>Is the wood safe?</message>\
                   <context>It is dusk.</context></agent:scout></ACTION>";

/// Writes a guide who asks a scout, and the answers of both.
fn prepare(deploy: &Path, scout: &Value) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let guide = json!({"turns": [
        {
            "expect": {"system_contains": ["agent:scout", "Looks around."]},
            "answer": {"text": ASK, "input_tokens": 100, "output_tokens": 20},
        },
        {"answer": {"text": "Stay here.", "input_tokens": 130, "output_tokens": 10}},
    ]});
    let mut models = String::new();
    for (id, description, inventory, script) in [
        ("guide", "Guides.", json!(["agent:scout"]), &guide),
        (
            "scout",
            "Looks around.",
            json!(["system:get_current_time"]),
            scout,
        ),
    ] {
        models += &write_agent(deploy, id, description, &inventory, script)?;
    }
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

/// Writes an agent with a scripted model; returns the settings of the model.
fn write_agent(
    deploy: &Path,
    id: &str,
    description: &str,
    inventory: &Value,
    script: &Value,
) -> anyhow::Result<String> {
    let profile = json!({
        "id": id,
        "name": id,
        "description": description,
        "tool_ids_inventory": inventory,
        "custom_metadata": {"tavern": {"model": id}},
    });
    let path = deploy.join(format!("agents/{id}.json"));
    std::fs::write(path, profile.to_string())?;
    let path = deploy.join(format!("models/{id}.json"));
    std::fs::write(path, script.to_string())?;
    Ok(format!(
        "[models.{id}]\nprovider = \"scripted\"\nscript = \"{id}.json\"\n"
    ))
}

fn safe() -> Value {
    json!({"turns": [{
        "expect": {"last_is": "It is dusk.\n\nIs the wood safe?"},
        "answer": {"text": "No: wolves.", "input_tokens": 50, "output_tokens": 5},
    }]})
}

/// Returns the result of the call of the agent.
fn result(turn: &Followed) -> anyhow::Result<CallResult> {
    let mut own = turn
        .events
        .iter()
        .filter(|event| event.run_id == turn.run.run_id);
    let settled = own.find_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.clone(),
        _ => None,
    });
    settled.context("the call has ended")
}

async fn run(stack: &Stack, run_id: &str) -> anyhow::Result<Run> {
    let request = GetRunRequest {
        run_id: run_id.to_owned(),
    };
    let found = stack.runs().get_run(request).await?.into_inner();
    found.run.context("the run is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn g901_an_agent_asks_another_in_five_processes_and_its_use_counts() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path(), &safe())?;
    let stack = Stack::builder()
        .deploy(deploy.path())
        .separate()
        .start()
        .await?;
    let turn = invoke(&stack.gateway(), user_message("guide", "May I go?")).await?;
    ensure!(turn.run.state() == RunState::Succeeded, "{:?}", turn.run);
    let output: Value = serde_json::from_str(&result(&turn)?.output_json)?;
    ensure!(
        output["text"] == "No: wolves." && output["stop_reason"] == "stop",
        "{output}"
    );
    let child = output["run_id"].as_str().context("the run is named")?;
    let run = run(&stack, child).await?;
    ensure!(run.subject == "scout", "{run:?}");
    // The events of the other agent are in the log of its caller.
    let below = turn.events.iter().filter(|event| event.run_id == child);
    let above = [turn.run.run_id.clone()];
    ensure!(below.filter(|event| event.parent_path == above).count() > 3);
    let outcome = turn.run.outcome.context("the turn has ended")?;
    let used: Vec<(String, u64)> = outcome
        .model_totals
        .iter()
        .map(|total| {
            let usage = total.usage.clone().unwrap_or_default();
            (total.model.clone(), usage.input_tokens)
        })
        .collect();
    ensure!(
        used == [("guide".to_owned(), 230), ("scout".to_owned(), 50)],
        "{used:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g703_an_agent_has_no_more_than_what_its_caller_has_left() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let calls = "<ACTION><system:get_current_time/></ACTION>";
    let looks_at_the_time = json!({"turns": [
        {"answer": {"text": calls, "input_tokens": 3_000, "output_tokens": 5}},
        {"answer": {"text": "No: wolves."}},
    ]});
    prepare(deploy.path(), &looks_at_the_time)?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    for (tokens, error) in [
        (0, ""),
        // Its caller has used 120 of them by then, and keeps a tenth for its last answer.
        (3_500, "the turn used all of its 3030 tokens"),
    ] {
        let budgets = Budgets {
            tokens,
            ..Budgets::default()
        };
        let request = turn(AgentTarget {
            profile_id: "guide".to_owned(),
            input: Some(Input::UserMessage("May I go?".to_owned())),
            budgets: Some(budgets),
            ..AgentTarget::default()
        });
        let result = result(&invoke(&stack.gateway(), request).await?)?;
        let message = result.error.unwrap_or_default().message;
        ensure!(
            message.starts_with(error) && message.is_empty() == error.is_empty(),
            "{message}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g901_an_agent_survives_a_kill_of_the_one_that_it_asks_and_is_cancelled_with_its_caller()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path(), &slow())?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let asks = |event: &RunEvent| matches!(&event.kind, Some(Kind::ModelRequested(asked)) if asked.model == "scout");
    let request = user_message("guide", "May I go?");
    let (run_id, seen) = until(&stack.gateway(), request, asks).await?;
    let child = seen.last().context("the scout is asked")?.run_id.clone();
    stack.kill()?;
    stack.restart().await?;
    ensure!(run(&stack, &child).await?.outcome.is_none(), "it continues");
    cancel_both(&stack, run_id, &child).await
}

/// A model that writes for minutes.
fn slow() -> Value {
    json!({"turns": [{"answer": {"text": "Hm ...", "chunk": 1, "delay": "20s"}}]})
}

/// Cancels a turn, and waits until the turn of its sub-agent is cancelled too.
async fn cancel_both(stack: &Stack, run_id: String, child: &str) -> anyhow::Result<()> {
    let request = CancelRunRequest {
        run_id: run_id.clone(),
        reason: "never mind".to_owned(),
    };
    stack.runs().cancel_run(request).await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    ensure!(ended.run.state() == RunState::Cancelled, "{:?}", ended.run);
    eventually("the turn below to be cancelled", || async {
        let below = run(stack, child).await.ok()?;
        (below.state() == RunState::Cancelled).then_some(())
    })
    .await
}

/// Writes a scene with a guide and a scout, each of which has the other as a tool.
fn prepare_scene(deploy: &Path, scout: &Value) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows", "scenes"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let guide = json!({"turns": [
        {
            "expect": {"system_contains": ["agent:scout_1", "Is scout."]},
            "answer": {"text": ASK.replace("agent:scout", "agent:scout_1")},
        },
        {"answer": {"text": "Stay here."}},
    ]});
    let mut models = String::new();
    for (id, asks, script) in [
        ("guide", "agent:scout_1", &guide),
        ("scout", "agent:guide_1", scout),
    ] {
        let description = format!("Is {id}.");
        models += &write_agent(deploy, id, &description, &json!([asks]), script)?;
    }
    let scene = json!({"id": "wood", "agent_instances": [
        {"instance_id": "guide_1", "profile_id": "guide"},
        {"instance_id": "scout_1", "profile_id": "scout"},
    ]});
    std::fs::write(deploy.join("scenes/wood.json"), scene.to_string())?;
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

/// Requests a turn of an agent of a scene.
fn says(scene: &str, instance: &str, text: &str) -> InvokeTextRequest {
    let profile = instance.trim_end_matches("_1");
    turn(AgentTarget {
        profile_id: profile.to_owned(),
        conversation_id: format!("{scene}.{instance}"),
        input: Some(Input::UserMessage(text.to_owned())),
        ..AgentTarget::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn g901_an_agent_of_a_scene_asks_another_in_its_conversation_and_waits_in_no_cycle()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let back =
        "<ACTION><agent:guide_1><message>What did you say?</message></agent:guide_1></ACTION>";
    let scout = json!({"turns": [
        {"answer": {"text": back}},
        {
            "expect": {"contains": ["guide_1 -> scout_1 -> guide_1"]},
            "answer": {"text": "No: wolves."},
        },
        {"expect": {"contains": ["Is the wood safe?"]}, "answer": {"text": "As I said."}},
    ]});
    prepare_scene(deploy.path(), &scout)?;
    let stack = Stack::builder()
        .deploy(deploy.path())
        .separate()
        .start()
        .await?;
    let scene = scenes::start(&stack, "wood").await?;
    let asked = invoke(&stack.gateway(), says(&scene, "guide_1", "May I go?")).await?;
    ensure!(asked.run.state() == RunState::Succeeded, "{:?}", asked.run);
    let answer = result(&asked)?;
    ensure!(answer.error.is_none(), "{:?}", answer.error);
    let output: Value = serde_json::from_str(&answer.output_json)?;
    ensure!(output["text"] == "No: wolves.", "{output}");
    let child = output["run_id"].as_str().context("the run is named")?;
    let found = run(&stack, child).await?;
    ensure!(
        found.conversation_id == format!("{scene}.scout_1"),
        "{found:?}"
    );
    let refused = asked.events.iter().find_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) if event.run_id == child => settled.result.clone(),
        _ => None,
    });
    let refused = refused.and_then(|result| result.error).unwrap_or_default();
    let is_named = refused.message.contains("guide_1 -> scout_1 -> guide_1");
    ensure!(refused.code == "wait_cycle" && is_named, "{refused:?}");
    // It remembers the earlier message.
    let again = invoke(&stack.gateway(), says(&scene, "scout_1", "And now?")).await?;
    ensure!(again.run.state() == RunState::Succeeded, "{:?}", again.run);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g801_a_rule_of_the_operator_about_a_profile_holds_for_its_agent_of_a_scene()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare_scene(deploy.path(), &safe())?;
    let rules = json!({"rules": [{"id": "scouts", "tools": ["agent:scout"], "action": "ask",
                                  "approvers": {"role": "storykeeper"}}]});
    std::fs::write(deploy.path().join("approvals.json"), rules.to_string())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let scene = scenes::start(&stack, "wood").await?;
    let is_asked = |event: &RunEvent| matches!(event.kind, Some(Kind::ApprovalRequested(_)));
    let request = says(&scene, "guide_1", "May I go?");
    let (run_id, seen) = until(&stack.gateway(), request, is_asked).await?;
    let Some(Kind::ApprovalRequested(asked)) = seen.last().and_then(|event| event.kind.clone())
    else {
        bail!("no approval is asked for");
    };
    // A person sees which agent is called.
    ensure!(
        asked.tool_id == format!("agent:{scene}.scout_1"),
        "{asked:?}"
    );
    ensure!(asked.rule_ids == ["scouts"], "{asked:?}");
    decide(&stack, asked.approval_id, ApprovalVerdict::Reject, false).await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    ensure!(ended.run.state() == RunState::Succeeded, "{:?}", ended.run);
    let refused = result(&ended)?.error.unwrap_or_default();
    ensure!(refused.code == "approval_rejected", "{refused:?}");
    let below = ended.events.iter().filter(|event| event.run_id != run_id);
    ensure!(below.count() == 0, "the scout was asked");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g901_a_turn_that_is_queued_at_an_agent_of_a_scene_is_cancelled_with_its_caller()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare_scene(deploy.path(), &slow())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let scene = scenes::start(&stack, "wood").await?;
    let is_asked = |event: &RunEvent| matches!(event.kind, Some(Kind::ModelRequested(_)));
    let request = says(&scene, "scout_1", "Look around.");
    let (busy, _) = until(&stack.gateway(), request, is_asked).await?;
    let is_queued = |event: &RunEvent| matches!(event.kind, Some(Kind::RunQueued(_)));
    let request = says(&scene, "guide_1", "May I go?");
    let (run_id, seen) = until(&stack.gateway(), request, is_queued).await?;
    let child = seen.last().context("it is queued")?.run_id.clone();
    ensure!(child != run_id, "the guide does not wait");
    cancel_both(&stack, run_id, &child).await?;
    ensure!(
        run(&stack, &busy).await?.outcome.is_none(),
        "the other turn continues"
    );
    Ok(())
}
