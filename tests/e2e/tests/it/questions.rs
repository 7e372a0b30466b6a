//! Agents that ask a person, with services killed meanwhile (rule G808).

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{CallResult, RunEvent, RunState, WaitKind, run_event::Kind};
use contracts::tavern::run::v1::{AnswerWaitRequest, ListRunsRequest, ListWaitsRequest};
use serde_json::{Value, json};
use testkit::{Stack, collect, eventually, invoke, until};

use crate::text::user_message;

/// Writes an agent that asks which herb to fetch, and then repeats the answer.
fn prepare(deploy: &Path, interaction: &str, answer: &Value) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let ask = "<ACTION><ui:RequestUserInteraction><prompt>Which herb?</prompt>\
               <options>sage</options><options>moonmoss</options>\
               </ui:RequestUserInteraction></ACTION>";
    let free = "</options><allow_free_text>true</allow_free_text>\n</ui:";
    let ask = match interaction {
        "wait" => ask.replace("</options></ui:", free),
        _ => ask.to_owned(),
    };
    let mut turns = vec![json!({"answer": {"text": ask}})];
    if interaction == "continue" {
        let expect = json!({"last_contains": ["\"status\":\"pending\""]});
        turns.push(json!({"expect": expect, "answer": {"text": "I will see."}}));
    }
    turns.push(json!({"expect": {"last_contains": [answer]}, "answer": {"text": "I fetch it."}}));
    let profile = json!({
        "id": "herbalist",
        "name": "herbalist",
        "tool_ids_inventory": ["ui:RequestUserInteraction"],
        "custom_metadata": {"tavern": {"model": "herbalist", "interaction": interaction}},
    });
    std::fs::write(deploy.join("agents/herbalist.json"), profile.to_string())?;
    let script = json!({ "turns": turns });
    std::fs::write(deploy.join("models/herbalist.json"), script.to_string())?;
    let models = "[models.herbalist]\nprovider = \"scripted\"\nscript = \"herbalist.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

/// Waits until a run of the workflow service asks a person, and answers.
async fn answer(stack: &Stack, run_id: &str, answer: &str) -> anyhow::Result<()> {
    let request = ListWaitsRequest {
        run_id: run_id.to_owned(),
        ..ListWaitsRequest::default()
    };
    let wait = eventually("a question", || async {
        let listed = stack.runs().list_waits(request.clone()).await.ok()?;
        listed.into_inner().waits.pop()
    })
    .await?;
    ensure!(wait.kind() == WaitKind::HumanInput && wait.name == "Which herb?");
    let choices: Vec<&str> = wait.choices.iter().map(|choice| &*choice.value).collect();
    ensure!(choices == ["sage", "moonmoss"], "{choices:?}");
    let request = AnswerWaitRequest {
        run_id: run_id.to_owned(),
        wait_id: wait.wait_id,
        answer_json: json!(answer).to_string(),
        answered_by: "mara".to_owned(),
        request_id: String::new(),
    };
    stack.runs().answer_wait(request).await?;
    Ok(())
}

fn result(events: &[RunEvent]) -> Option<&CallResult> {
    events.iter().find_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.as_ref(),
        _ => None,
    })
}

/// The number of answers of its model in a turn.
fn answers(events: &[RunEvent]) -> usize {
    let is_answer = |event: &&RunEvent| matches!(event.kind, Some(Kind::ModelAnswered(_)));
    events.iter().filter(is_answer).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn g808_a_turn_waits_for_the_answer_of_a_person_over_a_kill() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let answered = json!("\"status\":\"answered\",\"answer\":\"the blue one\"");
    prepare(deploy.path(), "wait", &answered)?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let request = user_message("herbalist", "I have a cough.");
    // The question is in the log of the turn.
    let asks = |event: &RunEvent| matches!(event.kind, Some(Kind::NodeWaiting(_)));
    let (run_id, seen) = until(&stack.gateway(), request, asks).await?;
    let asking = seen.last().context("the turn asks")?.run_id.clone();
    stack.kill()?;
    stack.restart().await?;
    answer(&stack, &asking, "the blue one").await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    ensure!(ended.run.state() == RunState::Succeeded, "{:?}", ended.run);
    let result = result(&ended.events).context("the call has ended")?;
    let output: Value = serde_json::from_str(&result.output_json)?;
    ensure!(
        output == json!({"interaction_id": asking, "status": "answered", "answer": "the blue one"}),
        "{output}"
    );
    ensure!(
        answers(&ended.events) == 2,
        "each answer was asked for once"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g808_a_turn_that_does_not_wait_ends_and_the_answer_opens_one_more() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let opening = json!("Event interaction.answered from caller person");
    prepare(deploy.path(), "continue", &opening)?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let request = user_message("herbalist", "I have a cough.");
    let first = invoke(&stack.gateway(), request).await?;
    ensure!(first.run.state() == RunState::Succeeded, "{:?}", first.run);
    let result = result(&first.events).context("the call has ended")?;
    let output: Value = serde_json::from_str(&result.output_json)?;
    let asking = output["interaction_id"]
        .as_str()
        .context("a pending question")?;
    stack.kill()?;
    stack.restart().await?;
    let refused = answer(&stack, asking, "the blue one").await;
    ensure!(refused.is_err(), "an answer is accepted that is no option");
    answer(&stack, asking, "sage").await?;
    let request = ListRunsRequest {
        conversation_id: first.run.conversation_id.clone(),
        subject: "herbalist".to_owned(),
        ..ListRunsRequest::default()
    };
    let turns = || async {
        let listed = stack.runs().list_runs(request.clone()).await.ok()?;
        let turns = listed.into_inner().runs;
        let have_ended = turns.iter().all(|turn| turn.outcome.is_some());
        (turns.len() == 2 && have_ended).then_some(turns)
    };
    let turns = eventually("the answer to open a turn", turns).await?;
    let outcome = turns[0].outcome.clone().context("it has ended")?;
    ensure!(outcome.result_json == "\"I fetch it.\"", "{outcome:?}");
    // Another start opens no other turn.
    stack.kill()?;
    stack.restart().await?;
    let listed = stack.runs().list_runs(request.clone()).await?.into_inner();
    ensure!(listed.runs.len() == 2);
    Ok(())
}
