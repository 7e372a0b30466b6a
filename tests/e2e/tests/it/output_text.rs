//! The text of a call's output, read by its handle while the call runs, across a restart, and when it has ended.

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::registry::v1::call_service_client::CallServiceClient;
use contracts::tavern::registry::v1::call_tool_response::Record;
use contracts::tavern::registry::v1::{CallToolRequest, ReadOutputRequest, StartCallRequest};
use grpc_kit::{ClientSettings, Outbound};
use serde_json::{Value, json};
use testkit::Stack;

/// Long enough for a restart in the middle.
const LINES: usize = 40;

/// A program that prints slowly.
fn program() -> String {
    format!(
        "import time\nfor number in range({LINES}):\n    print(number, flush=True)\n    time.sleep(0.05)\n"
    )
}

fn written() -> String {
    (0..LINES).map(|number| format!("{number}\n")).collect()
}

fn prepare(deploy: &Path) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let edge = |from: &str, out: &str, key: &str| json!({"source": from, "sourceHandle": out, "target": "out", "targetHandle": key});
    let script = json!({"id": "say", "type": "core:Script", "inputValues": {"code": program()}});
    let call = json!({"id": "call", "type": "core:ExecuteTool", "inputValues": {"tool_id": "workflow:whole"}});
    let out = json!({"id": "out", "type": "core:GroupOutput"});
    let live = json!({"dataFlowType": "STRING", "isStream": true});
    let plain = json!({"dataFlowType": "STRING"});
    for (id, nodes, edges, outputs) in [
        (
            "whole",
            json!([script, out]),
            json!([edge("say", "stdout", "live")]),
            json!({"live": live}),
        ),
        (
            "parts",
            json!([script, out]),
            json!([
                edge("say", "stderr", "errors"),
                edge("say", "stdout", "live")
            ]),
            json!({"errors": plain, "live": live}),
        ),
        (
            "outer",
            json!([call, out]),
            json!([edge("call", "output", "live")]),
            json!({"live": live}),
        ),
    ] {
        let definition = json!({"nodes": nodes, "edges": edges, "interfaceOutputs": outputs});
        std::fs::write(
            deploy.join(format!("workflows/{id}.json")),
            definition.to_string(),
        )?;
    }
    let profile = json!({"id": "talker", "name": "talker", "custom_metadata": {"tavern": {"model": "talker"}}});
    std::fs::write(deploy.join("agents/talker.json"), profile.to_string())?;
    let answer = json!({"text": written(), "chunk": 3, "delay": "50ms"});
    let script = json!({"turns": [{"answer": answer}]});
    std::fs::write(deploy.join("models/talker.json"), script.to_string())?;
    let models = "[models.talker]\nprovider = \"scripted\"\nscript = \"talker.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

fn calls(stack: &Stack) -> anyhow::Result<CallServiceClient<Outbound>> {
    let settings = ClientSettings::to(stack.address());
    Ok(CallServiceClient::new(
        grpc_kit::remote(&settings)?.outermost(),
    ))
}

/// Reads the output of a handle behind an offset.
async fn read(stack: &Stack, handle: &str, offset: usize) -> anyhow::Result<Value> {
    let arguments = json!({"handle": handle, "offset": offset, "limit": 64});
    let request = CallToolRequest {
        tool_id: "system:read_stream".to_owned(),
        arguments_json: arguments.to_string(),
        conversation_id: "c".to_owned(),
        ..CallToolRequest::default()
    };
    let mut records = calls(stack)?.call_tool(request).await?.into_inner();
    while let Some(response) = records.message().await? {
        if let Some(Record::Result(result)) = response.record {
            ensure!(
                result.error.is_none(),
                "{handle} at {offset}: {:?}",
                result.error
            );
            return Ok(serde_json::from_str(&result.output_json)?);
        }
    }
    anyhow::bail!("the call has no result")
}

/// Pages through an output from the moment of its call to its end, over a restart if `restarts`.
/// Returns the text and the bytes of it that were read before the end.
async fn page_through(
    stack: &mut Stack,
    handle: &str,
    mut restarts: bool,
) -> anyhow::Result<(String, usize)> {
    let (mut text, mut live) = (String::new(), 0);
    loop {
        let part = read(stack, handle, text.len()).await?;
        let piece = part["text"].as_str().context("there is a text")?;
        text.push_str(piece);
        ensure!(part["next_offset"] == text.len(), "{part}");
        if part["state"] == "succeeded" {
            if part["next_offset"] == part["total_bytes"] {
                return Ok((text, live));
            }
            continue;
        }
        live = text.len();
        if restarts && live > 0 {
            stack.kill()?;
            stack.restart().await?;
            restarts = false;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_pages_by_offset_from_the_running_call_into_its_output() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let code = json!({"language": "python", "code": program()});
    let script = json!({"code": program()});
    let lines = written();
    for (tool, arguments, restarts, place) in [
        ("CodeInterpreter:execute", code, false, "/stdout"),
        ("node:core:Script", script, true, "/stdout"),
        ("workflow:whole", json!({}), true, ""),
        ("workflow:parts", json!({}), true, "/live"),
        ("workflow:outer", json!({}), true, ""),
        ("agent:talker", json!({"message": "Count."}), true, "/text"),
    ] {
        let request = StartCallRequest {
            tool_id: tool.to_owned(),
            arguments_json: arguments.to_string(),
            effect_id: format!("of-{tool}"),
            conversation_id: "c".to_owned(),
            ..StartCallRequest::default()
        };
        let handle = request.effect_id.clone();
        calls(&stack)?.start_call(request).await?;
        let (text, live) = page_through(&mut stack, &handle, restarts).await?;
        assert!(live > 0, "{tool} shows nothing while it runs");
        let whole = ReadOutputRequest {
            effect_id: handle,
            ..ReadOutputRequest::default()
        };
        let whole = calls(&stack)?.read_output(whole).await?.into_inner();
        assert_eq!(text, whole.text, "{tool}");
        let output: Value = serde_json::from_str(&text)?;
        let said = output.pointer(place).and_then(Value::as_str);
        assert_eq!(said.map(str::trim_end), Some(lines.trim_end()), "{tool}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_below_writes_of_its_output_is_shown_as_output_of_its_call() -> anyhow::Result<()>
{
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    for tool in [
        "node:core:Script",
        "workflow:whole",
        "workflow:parts",
        "workflow:outer",
    ] {
        let request = CallToolRequest {
            tool_id: tool.to_owned(),
            arguments_json: match tool {
                "node:core:Script" => json!({"code": program()}).to_string(),
                _ => "{}".to_owned(),
            },
            effect_id: format!("of-{tool}"),
            ..CallToolRequest::default()
        };
        let handle = request.effect_id.clone();
        let mut records = calls(&stack)?.call_tool(request).await?.into_inner();
        let mut shown = String::new();
        while let Some(response) = records.message().await? {
            let Some(Record::Event(event)) = response.record else {
                continue;
            };
            match event.kind {
                Some(Kind::OutputChunk(chunk)) if chunk.effect_id == handle => {
                    shown.push_str(&chunk.text);
                }
                _ => {}
            }
        }
        assert_eq!(shown, written(), "{tool}");
    }
    Ok(())
}
