//! Tools of a plugin that was removed, as models name them (rule R110).

use std::fs;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::RunState;
use contracts::tavern::gateway::v1::{
    CallProblem, ParseTextRequest, StreamTextRequest, StreamTextStart, ToolScope,
    stream_text_request::Part, stream_text_response::Event,
};
use contracts::tavern::registry::v1::UninstallPluginRequest;
use serde_json::json;
use testkit::{Stack, invoke};

use super::{files, install, package};
use crate::text::user_message;

/// A call of the tool in each dialect, by its id or its alias.
const CALLS: [&str; 6] = [
    "<ACTION><dice:roll></dice:roll></ACTION>",
    "<ACTION><DICE__ROLL></DICE__ROLL></ACTION>",
    "<|[REQUEST_TOOL]|>\ncommand:「始」dice:roll「末」\n<|[END_TOOL]|>",
    "<<<[TOOL_REQUEST]>>>\ntool_name:「始」dice:roll「末」\n<<<[END_TOOL_REQUEST]>>>",
    "<tool_call name=\"dice:roll\"></tool_call>",
    "<tool_call>{\"name\": \"dice__roll\", \"arguments\": {}}</tool_call>",
];

/// A deployment with an agent that calls the tool, and then expects to read that it is gone.
fn deployment() -> anyhow::Result<tempfile::TempDir> {
    let deploy = tempfile::tempdir()?;
    for directory in ["agents", "models", "plugins", "workflows"] {
        fs::create_dir(deploy.path().join(directory))?;
    }
    let profile = json!({
        "id": "player",
        "name": "Player",
        "tool_ids_inventory": ["dice:roll"],
        "custom_metadata": {"tavern": {"model": "player"}},
    });
    let turns = json!([
        {"answer": {"text": CALLS[0]}},
        {"expect": {"last_contains": ["the plugin dice, which brought it"]}, "answer": {"text": "No dice."}},
    ]);
    let model = "[models.player]\nprovider = \"scripted\"\nscript = \"player.json\"\n";
    for (path, content) in [
        ("agents/player.json", profile.to_string()),
        ("models/player.json", json!({"turns": turns}).to_string()),
        ("agent-runtime.toml", model.to_owned()),
    ] {
        fs::write(deploy.path().join(path), content)?;
    }
    Ok(deploy)
}

/// Returns the problem of the first call of a text that is streamed.
async fn streamed_problem(stack: &Stack, text: &str) -> anyhow::Result<CallProblem> {
    let parts = [
        Part::Start(StreamTextStart::default()),
        Part::Chunk(text.as_bytes().to_vec()),
    ];
    let parts = parts.map(|part| StreamTextRequest { part: Some(part) });
    let requests = futures::stream::iter(parts);
    let mut answers = stack.gateway().stream_text(requests).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        if let Some(Event::CallOpened(opened)) = answer.event {
            ensure!(opened.stop_generating, "{opened:?}");
            return Ok(opened.problem());
        }
    }
    anyhow::bail!("no call was opened")
}

#[tokio::test(flavor = "multi_thread")]
async fn r110_texts_in_each_dialect_streams_and_turns_read_that_a_tool_is_removed()
-> anyhow::Result<()> {
    let deploy = deployment()?;
    for builder in [Stack::builder(), Stack::builder().separate()] {
        let stack = builder.deploy(deploy.path()).start().await?;
        let dice = package(files("dice", "", &[("roll", "print(4)")]))?;
        install(&stack, &dice).await?;
        let request = UninstallPluginRequest {
            name: "dice".into(),
            ..UninstallPluginRequest::default()
        };
        stack.plugins().uninstall_plugin(request).await?;

        let of_agent = ToolScope {
            profile_id: "player".into(),
            ..ToolScope::default()
        };
        for text in CALLS {
            for scope in [None, Some(of_agent.clone())] {
                let request = ParseTextRequest {
                    text: text.into(),
                    scope,
                    ..ParseTextRequest::default()
                };
                let parsed = stack.gateway().parse_text(request).await?.into_inner();
                let parsed = parsed.parsed.context("the text was parsed")?;
                let problems = parsed.calls.iter().flat_map(|call| &call.problems);
                let codes: Vec<&str> = problems.map(|problem| &*problem.code).collect();
                ensure!(codes == ["tool_removed"], "{text}: {parsed:?}");
            }
        }
        let problem = streamed_problem(&stack, CALLS[0]).await?;
        ensure!(problem == CallProblem::ToolRemoved, "{problem:?}");

        let ended = invoke(&stack.gateway(), user_message("player", "Roll.")).await?;
        let outcome = ended.run.outcome.context("the turn has ended")?;
        ensure!(outcome.state() == RunState::Succeeded, "{outcome:?}");
    }
    Ok(())
}
