//! Turns that are forked (rule G1003).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use contracts::tavern::agent::v1::{
    GetPrivateStateRequest, state_service_client::StateServiceClient,
};
use contracts::tavern::common::v1::{RunState, run_event::Kind};
use serde_json::{Value, json};
use testkit::{Followed, Stack, binary, collect, invoke};

use crate::ledger::World;
use crate::text::user_message;

/// A call with an effect, and a call that changes the private state.
fn calls(note: &str, mood: &str) -> String {
    format!(
        "<ACTION><ledger.append><key>k</key><note>{note}</note></ledger.append></ACTION>\
         <ACTION><UpdatePrivateStateTool><key>mood</key><value>{mood}</value>\
         </UpdatePrivateStateTool></ACTION>"
    )
}

/// Writes the agent `scribe` with some tools, and its model, which plays some turns.
pub(crate) fn write_scribe(
    deploy: &Path,
    tools: &[&str],
    turns: &serde_json::Value,
) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let profile = json!({
        "id": "scribe",
        "name": "scribe",
        "tool_ids_inventory": tools,
        "initial_private_state_values": {"mood": "calm"},
        "custom_metadata": {"tavern": {"model": "scribe"}},
    });
    std::fs::write(deploy.join("agents/scribe.json"), profile.to_string())?;
    let script = json!({"turns": turns});
    std::fs::write(deploy.join("models/scribe.json"), script.to_string())?;
    let models = "[models.scribe]\nprovider = \"scripted\"\nscript = \"scribe.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

fn prepare(deploy: &Path) -> anyhow::Result<()> {
    // Long enough for a kill before the last answer.
    let turns = json!([
        {"answer": {"text": calls("ink", "merry")}},
        {"answer": {"text": "Done.", "delay": "400ms"}},
    ]);
    let tools = ["ledger.append", "UpdatePrivateStateTool"];
    write_scribe(deploy, &tools, &turns)
}

/// Forks a turn at its first answer by the command line. Returns the run.
pub(crate) fn fork(stack: &Stack, turn: &Followed, edit: &[&str]) -> anyhow::Result<String> {
    let mut events = turn.events.iter();
    let answer = events.find(|event| matches!(event.kind, Some(Kind::ModelAnswered(_))));
    let answer = answer.context("the model answered")?.sequence.to_string();
    let forked = Command::new(binary("tavern")?)
        .args(["runs", "fork", &turn.run.run_id, "--at", &answer])
        .args(edit)
        .env("TAVERN_ADDRESS", stack.address())
        .output()?;
    let said = String::from_utf8_lossy(&forked.stdout);
    let run_id = said.trim().strip_prefix("started ");
    let refused = || String::from_utf8_lossy(&forked.stderr).into_owned();
    Ok(run_id.with_context(refused)?.to_owned())
}

async fn mood(stack: &Stack, conversation_id: &str) -> anyhow::Result<Value> {
    let settings = grpc_kit::ClientSettings::to(stack.address());
    let mut states = StateServiceClient::new(grpc_kit::remote(&settings)?.outermost());
    let request = GetPrivateStateRequest {
        conversation_id: conversation_id.to_owned(),
        ..GetPrivateStateRequest::default()
    };
    let state = states.get_private_state(request).await?.into_inner();
    Ok(serde_json::from_str(&state.value_json)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn g1003_a_fork_survives_a_kill_repeats_no_effect_and_changes_a_copy_of_the_state()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let mut world = World::new(stack).await?;
    let turn = invoke(&world.stack.gateway(), user_message("scribe", "Write.")).await?;
    ensure!(turn.run.state() == RunState::Succeeded, "{:?}", turn.run);
    let conversation = turn.run.conversation_id.as_str();
    ensure!(mood(&world.stack, conversation).await? == json!({"mood": "merry"}));

    let same = fork(&world.stack, &turn, &[])?;
    world.stack.kill()?;
    world.stack.restart().await?;
    let ended = collect(&world.stack.runs(), &same, 0).await?;
    ensure!(ended.run.state() == RunState::Succeeded, "{:?}", ended.run);
    ensure!(world.effects("ink")?.len() == 1, "it is taken over");
    let copy = ended.run.conversation_id.as_str();
    ensure!(mood(&world.stack, copy).await? == json!({"mood": "merry"}));

    let edited = deploy.path().join("answer.txt");
    let both = calls("ink", "sad") + &calls("milk", "sad");
    std::fs::write(&edited, both)?;
    let path = edited.to_str().context("a path is text")?;
    let other = fork(&world.stack, &turn, &["--answer", path])?;
    let ended = collect(&world.stack.runs(), &other, 0).await?;
    ensure!(ended.run.state() == RunState::Succeeded, "{:?}", ended.run);
    ensure!(world.effects("ink")?.len() == 1 && world.effects("milk")?.len() == 1);
    let copy = ended.run.conversation_id.as_str();
    ensure!(mood(&world.stack, copy).await? == json!({"mood": "sad"}));
    ensure!(mood(&world.stack, conversation).await? == json!({"mood": "merry"}));
    Ok(())
}
