//! Workflows that shorten the input of a model: a long conversation (rule G603) and a long output
//! (rule G605).

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::agent::v1::CompactConversationRequest;
use contracts::tavern::agent::v1::conversation_service_client::ConversationServiceClient;
use contracts::tavern::common::v1::conversation_compacted::Method;
use contracts::tavern::common::v1::{RunState, run_event::Kind};
use contracts::tavern::gateway::v1::{AgentTarget, agent_target::Input};
use serde_json::{Value, json};
use testkit::{Stack, collect, invoke};

use crate::text::turn;

/// A workflow that puts a word before its text, of which it passes the beginning on.
fn shortens(word: &str) -> Value {
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "cut", "type": "core:ApplyRegex", "inputValues": {"inlineRegexRules": [
                {"name": "cut", "pattern": "(?s)^(.{20}).*$", "replacement": format!("{word}: $1")}]}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"id": "a", "source": "in", "sourceHandle": "text", "target": "cut", "targetHandle": "inputText"},
            {"id": "b", "source": "cut", "sourceHandle": "outputText", "target": "out", "targetHandle": "summary"},
        ],
        "interfaceInputs": {"text": {"dataFlowType": "STRING", "required": true}},
        "interfaceOutputs": {"summary": {"dataFlowType": "STRING"}},
    })
}

fn prepare(deploy: &Path, turns: &Value) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    for (id, word) in [("summarise", "SUMMARY"), ("reduce", "REDUCED")] {
        let path = deploy.join(format!("workflows/{id}.json"));
        std::fs::write(path, shortens(word).to_string())?;
    }
    let profile = json!({
        "id": "clerk",
        "name": "clerk",
        "tool_ids_inventory": ["CodeInterpreter:execute"],
        "custom_metadata": {"tavern": {
            "model": "clerk",
            "compaction": {"keep_turns": 1, "workflow": "summarise"},
            "reduction": [{"tools": ["*"], "workflow": "reduce"}],
        }},
    });
    std::fs::write(deploy.join("agents/clerk.json"), profile.to_string())?;
    let script = json!({ "turns": turns });
    std::fs::write(deploy.join("models/clerk.json"), script.to_string())?;
    let models = "[models.clerk]\nprovider = \"scripted\"\nscript = \"clerk.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

fn says(text: &str) -> contracts::tavern::gateway::v1::InvokeTextRequest {
    turn(AgentTarget {
        profile_id: "clerk".to_owned(),
        conversation_id: "desk".to_owned(),
        input: Some(Input::UserMessage(text.to_owned())),
        ..AgentTarget::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn g605_a_workflow_shortens_a_long_output_whose_whole_text_has_a_handle() -> anyhow::Result<()>
{
    let deploy = tempfile::tempdir()?;
    let call = "<ACTION><CodeInterpreter:execute><language>python</language>\
                <code>print(\"mist \" * 3000)</code></CodeInterpreter:execute></ACTION>";
    let shown = json!({
        "last_contains": ["Result: REDUCED: ", "A workflow shortened", "system:read_stream"],
        "last_lacks": ["mist mist mist mist mist mist"],
    });
    let turns = json!([
        {"answer": {"text": call}},
        {"expect": shown, "answer": {"text": "Fog."}},
    ]);
    prepare(deploy.path(), &turns)?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let ended = invoke(&stack.gateway(), says("Look.")).await?;
    ensure!(
        ended.run.state() == RunState::Succeeded,
        "{:?}",
        ended.run.outcome
    );
    let own = ended
        .events
        .iter()
        .filter(|event| event.run_id == ended.run.run_id);
    let result = own.clone().find_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.as_ref(),
        _ => None,
    });
    let whole = &result.context("the call has ended")?.output_json;
    ensure!(whole.len() > 15_000, "the log has the whole output");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g603_a_workflow_summarises_a_conversation() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let speaks = json!([
        {"answer": {"text": "Welcome."}},
        {"answer": {"text": "Welcome again."}},
    ]);
    prepare(deploy.path(), &speaks)?;
    let stack = Stack::builder()
        .deploy(deploy.path())
        .separate()
        .start()
        .await?;
    for text in ["Hello 1.", "Hello 2."] {
        let ended = invoke(&stack.gateway(), says(text)).await?;
        ensure!(
            ended.run.state() == RunState::Succeeded,
            "{:?}",
            ended.run.outcome
        );
    }
    let settings = grpc_kit::ClientSettings::to(stack.address());
    let mut conversations =
        ConversationServiceClient::new(grpc_kit::remote(&settings)?.outermost());
    let request = CompactConversationRequest {
        conversation_id: "desk".to_owned(),
        ..CompactConversationRequest::default()
    };
    let started = conversations
        .compact_conversation(request)
        .await?
        .into_inner();
    let run = started.run.context("the run is named")?;
    let ended = collect(&stack.runs(), &run.run_id, 0).await?;
    ensure!(
        ended.run.state() == RunState::Succeeded,
        "{:?}",
        ended.run.outcome
    );
    let compacted = ended.events.iter().find_map(|event| match &event.kind {
        Some(Kind::ConversationCompacted(compacted)) => Some(compacted),
        _ => None,
    });
    let compacted = compacted.context("the conversation is compacted")?;
    ensure!(
        (
            compacted.method(),
            compacted.turns,
            compacted.model.as_str()
        ) == (Method::Workflow, 1, "workflow:summarise"),
        "{compacted:?}"
    );
    ensure!(
        compacted.summary.starts_with("SUMMARY: user: Hello 1."),
        "{compacted:?}"
    );
    Ok(())
}
