//! One task in four dialects: the same calls, the same results and the same state, over gRPC and through the
//! OpenAI-compatible edge.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{RunEvent, RunState, run_event::Kind};
use contracts::tavern::run::v1::ListRunsRequest;
use serde_json::{Value, json};
use testkit::{Stack, collect, invoke, python, python_program};

use crate::text::user_message;

const FILE: &str = "notes/fence.txt";
/// With everything that a dialect could trip over.
const CODE: &str = "if a < b && c > d { \"]]\" }\n";
const MORE: &str = "done: [x] «ok»\n";

/// A dialect, its settings in a profile, and the two answers that make the calls.
struct Dialect {
    id: &'static str,
    settings: Value,
    answers: [Value; 2],
}

fn tag(name: &str, arguments: &Value) -> String {
    let call = json!({"name": name, "arguments": arguments});
    format!("<tool_call>\n{call}\n</tool_call>")
}

fn native(text: &str, calls: &[(&str, &Value)]) -> Value {
    let call = |(index, (name, arguments)): (usize, &(&str, &Value))| {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        json!({"id": format!("call_{index}"), "type": "function", "function": function})
    };
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    json!({"text": text, "tool_calls": calls, "finish_reason": "tool_calls"})
}

fn dialects() -> [Dialect; 4] {
    let write = json!({"filePath": FILE, "content": CODE});
    let append = json!({"filePath": FILE, "content": MORE});
    let read = json!({"filePath": FILE});
    let text = |text: String| json!({ "text": text });
    let action = |tool: &str, content: &str| {
        format!("<{tool}><filePath>{FILE}</filePath>{content}</{tool}>")
    };
    let cdata = |content: &str| format!("<content><![CDATA[{content}]]></content>");
    let tam = |calls: &str| format!("<|[REQUEST_TOOL]|>\n{calls}\n<|[END_TOOL]|>");
    [
        Dialect {
            id: "in_action",
            settings: json!({"dialect": "action"}),
            answers: [
                text(format!(
                    "Now.\n<ACTION>{}{}</ACTION>",
                    action("FileOperator.WriteFile", &cdata(CODE)),
                    action("FileOperator.AppendFile", &cdata(MORE)),
                )),
                text(format!(
                    "<ACTION>{}</ACTION>",
                    action("FileOperator.ReadFile", "")
                )),
            ],
        },
        Dialect {
            id: "in_tam",
            settings: json!({"dialect": "tam_v2"}),
            answers: [
                text(format!(
                    "Now.\n{}",
                    tam(&format!(
                        "command1:»»»FileOperator.WriteFile«««\nfilePath1:»»»{FILE}«««\n\
                     content1:»»»{CODE}«««\n\
                     command2:»»»FileOperator.AppendFile«««\nfilePath2:»»»{FILE}«««\n\
                     content2:»»»{MORE}«««"
                    ))
                )),
                text(tam(&format!(
                    "command:»»»FileOperator.ReadFile«««\nfilePath:»»»{FILE}«««"
                ))),
            ],
        },
        Dialect {
            id: "in_tags",
            settings: json!({"dialect": "tool_json"}),
            answers: [
                text(format!(
                    "Now.\n{}\n{}",
                    tag("FileOperator.WriteFile", &write),
                    tag("FileOperator.AppendFile", &append)
                )),
                text(tag("FileOperator.ReadFile", &read)),
            ],
        },
        Dialect {
            id: "in_native",
            settings: json!({"tools": "native"}),
            answers: [
                native(
                    "Now.",
                    &[
                        ("FileOperator__WriteFile", &write),
                        ("FileOperator__AppendFile", &append),
                    ],
                ),
                native("", &[("FileOperator__ReadFile", &read)]),
            ],
        },
    ]
}

fn prepare(deploy: &Path, dialects: &[Dialect]) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let mut models = String::new();
    for Dialect {
        id,
        settings,
        answers,
    } in dialects
    {
        let mut settings = settings.clone();
        settings["model"] = json!(id);
        let profile = json!({
            "id": id,
            "name": id,
            "tool_ids_inventory": [
                "FileOperator.WriteFile", "FileOperator.AppendFile", "FileOperator.ReadFile",
            ],
            "custom_metadata": {"tavern": settings},
        });
        std::fs::write(
            deploy.join(format!("agents/{id}.json")),
            profile.to_string(),
        )?;
        let mut turns: Vec<Value> = answers
            .iter()
            .map(|answer| json!({ "answer": answer }))
            .collect();
        turns.push(json!({"answer": {"text": "It is written."}}));
        let script = json!({ "turns": turns });
        std::fs::write(deploy.join(format!("models/{id}.json")), script.to_string())?;
        models += &format!("[models.{id}]\nprovider = \"scripted\"\nscript = \"{id}.json\"\n");
    }
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

/// The steps of a turn: each call with its arguments, and its outcome.
fn story(events: &[RunEvent]) -> Vec<Value> {
    let mut story = Vec::new();
    for event in events {
        match &event.kind {
            Some(Kind::CallDispatched(left)) => {
                let arguments: Value =
                    serde_json::from_str(&left.arguments_json).unwrap_or_default();
                story.push(json!(["left", left.tool_id, arguments]));
            }
            Some(Kind::CallSettled(settled)) => {
                let result = settled.result.clone().unwrap_or_default();
                let output: Value = serde_json::from_str(&result.output_json).unwrap_or_default();
                story.push(json!(["ended", result.tool_id, result.status, output]));
            }
            _ => {}
        }
    }
    // Calls of one answer may end in any order.
    story.sort_by_key(Value::to_string);
    story
}

#[tokio::test(flavor = "multi_thread")]
async fn one_task_in_four_dialects_gives_the_same_calls_and_state_also_through_the_openai_edge()
-> anyhow::Result<()> {
    let (deploy, dialects) = (tempfile::tempdir()?, dialects());
    prepare(deploy.path(), &dialects)?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let mut stories = Vec::new();
    for Dialect { id, .. } in &dialects {
        let over_grpc = invoke(&stack.gateway(), user_message(id, "Write it down.")).await?;
        let mut client = Command::new(python()?);
        client.arg(python_program("edge_clients.py"));
        client.args([&stack.address(), "ask", id, "Write it down."]);
        let asked = tokio::task::spawn_blocking(move || client.output()).await??;
        let printed = String::from_utf8_lossy(&asked.stdout);
        let words: Vec<&str> = printed.split_whitespace().collect();
        // In one piece, the answer is the outcome.
        ensure!(words.join(" ") == "It is written.", "{id}: {printed}");
        let request = ListRunsRequest {
            subject: (*id).to_owned(),
            ..ListRunsRequest::default()
        };
        let runs = stack.runs().list_runs(request).await?.into_inner().runs;
        ensure!(runs.len() == 2, "{id}: {runs:?}");
        let newest = runs.first().context("the edge started a turn")?;
        let through_edge = collect(&stack.runs(), &newest.run_id, 0).await?;
        for turn in [over_grpc, through_edge] {
            ensure!(
                turn.run.state() == RunState::Succeeded,
                "{id}: {:?}",
                turn.run
            );
            stories.push((id, story(&turn.events)));
        }
    }
    let (_, first) = stories.first().context("there are dialects")?;
    ensure!(first.len() == 6, "{first:?}");
    let state = json!(["ended", "FileOperator.ReadFile", 1, format!("{CODE}{MORE}")]);
    ensure!(first.contains(&state), "{first:?}");
    for (id, story) in &stories {
        ensure!(story == first, "{id} differs: {story:#?}\n{first:#?}");
    }
    Ok(())
}
