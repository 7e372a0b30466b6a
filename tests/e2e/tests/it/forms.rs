//! The same task by models that call tools in different forms.

use std::{path::Path, process::Command};

use anyhow::ensure;
use contracts::tavern::common::v1::{CallStatus, run_event::Kind};
use serde_json::{Value, json};
use testkit::{Stack, invoke, python, python_program};

use crate::text::{model_text, user_message, write_file};

const MESSAGE: &str = "Note that the gate is open, then read the note.";
const READ: &str =
    "<ACTION><FileOperator.ReadFile><filePath>gate.md</filePath></FileOperator.ReadFile></ACTION>";

/// An agent: its name, its part of `custom_metadata.tavern`, and the two answers that call tools.
type Form = (&'static str, Value, [Value; 2]);

fn forms() -> [Form; 4] {
    let text = |text: &str| json!({ "text": text });
    let native = |name: &str, arguments: Value| {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        json!({"finish_reason": "tool_calls",
               "tool_calls": [{"id": "c1", "type": "function", "function": function}]})
    };
    let write = json!({"filePath": "gate.md", "content": "The gate is open."});
    let read = json!({"filePath": "gate.md"});
    let tool_call = |name: &str, arguments: &Value| {
        let call = json!({"name": name, "arguments": arguments});
        json!({ "text": format!("<tool_call>{call}</tool_call>") })
    };
    [
        (
            "form_action",
            json!({"dialect": "action"}),
            [
                text(
                    "<ACTION><FileOperator.WriteFile><filePath>gate.md</filePath>\
                     <content>The gate is open.</content></FileOperator.WriteFile></ACTION>",
                ),
                text(READ),
            ],
        ),
        (
            "form_tam",
            json!({"dialect": "tam_v1"}),
            [
                text(
                    "<|[REQUEST_TOOL]|>command:「始」FileOperator.WriteFile「末」,\
                     filePath:「始」gate.md「末」,content:「始」The gate is open.「末」<|[END_TOOL]|>",
                ),
                text(
                    "<|[REQUEST_TOOL]|>command:「始」FileOperator.ReadFile「末」,\
                     filePath:「始」gate.md「末」<|[END_TOOL]|>",
                ),
            ],
        ),
        (
            "form_tool_call",
            json!({"dialect": "tool_json"}),
            [
                tool_call("FileOperator.WriteFile", &write),
                tool_call("FileOperator.ReadFile", &read),
            ],
        ),
        (
            "form_native",
            json!({"tools": "native"}),
            [
                native("FileOperator__WriteFile", write.clone()),
                native("FileOperator__ReadFile", read.clone()),
            ],
        ),
    ]
}

/// Writes a deploy directory with an agent and a scripted model for each form.
fn deploy(directory: &Path) -> anyhow::Result<()> {
    for part in ["plugins", "agents", "models", "workflows"] {
        std::fs::create_dir(directory.join(part))?;
    }
    let mut settings = String::new();
    for (name, tavern, answers) in forms() {
        let mut tavern = tavern;
        tavern["model"] = name.into();
        let profile = json!({
            "id": name,
            "tool_ids_inventory": ["FileOperator.WriteFile", "FileOperator.ReadFile"],
            "custom_metadata": {"tavern": tavern},
        });
        let [first, second] = answers;
        let last = json!({"text": "The note is there."});
        let mut expect = json!({"last_contains": ["The gate is open."]});
        if tavern["tools"] == "native" {
            expect["roles"] = json!(["system", "user", "assistant", "tool", "assistant", "tool"]);
            expect["system_lacks"] = json!(["FileOperator"]);
        }
        let script = json!({"turns": [
            {"answer": first},
            {"answer": second},
            {"expect": expect, "answer": last},
        ]});
        let file = format!("{name}.json");
        std::fs::write(directory.join("agents").join(&file), profile.to_string())?;
        std::fs::write(directory.join("models").join(&file), script.to_string())?;
        settings += &format!("[models.{name}]\nprovider = \"scripted\"\nscript = \"{file}\"\n");
    }
    std::fs::write(directory.join("agent-runtime.toml"), settings)?;
    Ok(())
}

/// Reads the note as any caller would, and replaces it.
async fn take_note(stack: &Stack) -> anyhow::Result<Value> {
    let read = calls_of(stack, READ).await?;
    calls_of(stack, &write_file("gate.md", "")).await?;
    Ok(read)
}

async fn calls_of(stack: &Stack, text: &str) -> anyhow::Result<Value> {
    let run = invoke(&stack.gateway(), model_text(text)).await?;
    Ok(settled(
        run.events.into_iter().filter_map(|event| event.kind),
    ))
}

/// The calls that ended: tool, status and output of each.
fn settled(kinds: impl Iterator<Item = Kind>) -> Value {
    let results = kinds.filter_map(|kind| match kind {
        Kind::CallSettled(settled) => settled.result,
        _ => None,
    });
    results
        .map(|result| {
            json!([
                result.tool_id,
                result.status().as_str_name(),
                result.output_json
            ])
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_calls_comes_to_the_same_calls_and_the_same_state() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    deploy(directory.path())?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    let mut expected = None;
    for (name, ..) in forms() {
        let run = invoke(&stack.gateway(), user_message(name, MESSAGE)).await?;
        let kinds: Vec<Kind> = run
            .events
            .into_iter()
            .filter_map(|event| event.kind)
            .collect();
        let asked: Value = kinds
            .iter()
            .filter_map(|kind| match kind {
                Kind::ToolSelected(selected) => selected.call.as_ref(),
                _ => None,
            })
            .map(|call| json!([call.tool_id, call.arguments_json]))
            .collect();
        let ended = settled(kinds.into_iter());
        assert_eq!(ended.as_array().map(Vec::len), Some(2), "{name}: {ended}");
        let answer = run.run.outcome.unwrap_or_default().result_json;
        let came_to = (asked, ended, answer, take_note(&stack).await?);
        assert_eq!(
            came_to.1[0][1],
            CallStatus::Succeeded.as_str_name(),
            "{name}"
        );
        assert_eq!(&came_to, expected.get_or_insert(came_to.clone()), "{name}");
    }
    let (.., note) = expected.unwrap_or_default();

    for (name, ..) in forms() {
        let mut client = Command::new(python()?);
        client.arg(python_program("edge_clients.py"));
        client.args([&stack.address(), "ask", name, MESSAGE]);
        let asked = tokio::task::spawn_blocking(move || client.output()).await??;
        let answer = String::from_utf8_lossy(&asked.stdout).into_owned();
        ensure!(
            asked.status.success(),
            "{}",
            String::from_utf8_lossy(&asked.stderr)
        );
        assert_eq!(answer.trim(), "The note is there.", "{name}");
        assert_eq!(take_note(&stack).await?, note, "{name}");
    }
    Ok(())
}
