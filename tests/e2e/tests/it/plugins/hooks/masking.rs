//! A hook that masks addresses in results: no way out shows one, and operators find the raw result.
//!
//! `TAVERN_TEST_MASKED` sets the results over all ways; `make bars` sets 1,000.

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::agent::v1::ExportTurnRequest;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::registry::v1::{
    GetCallRequest, GetRawResultRequest, ListCallsRequest, ReadOutputRequest, WatchCallRequest,
};
use plugin_package::read_path;
use serde_json::{Value, json};
use testkit::{Stack, collect, exchange, invoke, repository, size};

use super::{files, follow, install, package};
use crate::forged::frame;
use crate::text::{model_text, user_message};

/// Results in `make test`.
const RESULTS: usize = 27;

/// Answers with addresses in texts, lists and keys, and writes one to its log meanwhile.
const PEOPLE: &str = "import json, sys\n\
    address = f\"user{json.load(sys.stdin)['n']}@mail.example.com\"\n\
    print('asking ' + address, file=sys.stderr, flush=True)\n\
    print(json.dumps({'to': [address], address: 1, 'text': f'Write to <{address}>, now.'}))\n";

/// A way out for results.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Call,
    Ledger,
    Text,
    Sse,
    WebSocket,
    Connect,
    OpenAi,
    A2a,
    Export,
}

const WAYS: [Way; 9] = [
    Way::Call,
    Way::Ledger,
    Way::Text,
    Way::Sse,
    Way::WebSocket,
    Way::Connect,
    Way::OpenAi,
    Way::A2a,
    Way::Export,
];

impl Way {
    /// Whether it shows the output of tools, and not the words of the agent only.
    fn shows_outputs(self) -> bool {
        !matches!(self, Self::OpenAi | Self::A2a)
    }
}

/// Writes an agent that calls a tool and then answers.
pub(super) fn deploy(directory: &Path, tool: &str, call: &str) -> anyhow::Result<()> {
    for part in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(directory.join(part))?;
    }
    let settings = crate::doubt::agent(directory, "clerk", tool, call)?;
    std::fs::write(directory.join("agent-runtime.toml"), settings)?;
    Ok(())
}

/// Returns everything that the ledger shows of a call.
async fn of_ledger(
    stack: &Stack,
    number: usize,
    effect: &str,
    arguments: Value,
) -> anyhow::Result<String> {
    let effect_id = effect.to_owned();
    follow(stack, "people:list", effect, arguments).await?;
    let mut calls = stack.calls();
    let request = GetCallRequest {
        effect_id: effect_id.clone(),
    };
    let found = calls.get_call(request).await?;
    let listed = calls.list_calls(ListCallsRequest::default()).await?;
    let request = ReadOutputRequest {
        effect_id: effect_id.clone(),
        ..ReadOutputRequest::default()
    };
    let part = calls.read_output(request).await?;
    let request = WatchCallRequest {
        effect_id: effect_id.clone(),
        ..WatchCallRequest::default()
    };
    let mut watched = calls.watch_call(request).await?.into_inner();
    let mut records = Vec::new();
    while let Some(record) = watched.message().await? {
        records.push(record);
    }
    let raw = calls
        .get_raw_result(GetRawResultRequest { effect_id })
        .await?;
    let raw = raw.into_inner().result;
    let raw = raw.context("operators see the raw result")?;
    let address = format!("user{number}@mail");
    ensure!(raw.output_json.contains(&address), "{raw:?}");
    Ok(format!("{found:?} {listed:?} {part:?} {records:?}"))
}

/// Returns everything of a turn: as it is followed, now and again, and as a fixture.
async fn exported(stack: &Stack) -> anyhow::Result<String> {
    let turn = invoke(&stack.gateway(), user_message("clerk", "Who?")).await?;
    let again = collect(&stack.runs(), &turn.run.run_id, 0).await?;
    let request = ExportTurnRequest {
        run_id: turn.run.run_id.clone(),
    };
    let mut lines = stack.agent().export_turn(request).await?.into_inner();
    let mut exported = String::new();
    while let Some(line) = lines.message().await? {
        exported += &line.text;
    }
    Ok(format!("{turn:?} {again:?} {exported}"))
}

/// Makes a call, and returns everything that a client on this way reads of it.
async fn read(stack: &Stack, way: Way, number: usize) -> anyhow::Result<String> {
    let arguments = json!({"n": number});
    let effect = format!("people-{number}");
    let text = format!("<ACTION><people:list><n>{number}</n></people:list></ACTION>");
    let http = async |head: &str, body: &[u8], enough: &str| {
        exchange(&stack.address(), head, body, |answer| {
            !enough.is_empty() && answer.contains(enough)
        })
        .await
    };
    const JSON: &str = "content-type: application/json\r\n";
    Ok(match way {
        Way::Call => format!("{:?}", follow(stack, "people:list", "", arguments).await?),
        Way::Ledger => of_ledger(stack, number, &effect, arguments).await?,
        Way::Text => format!("{:?}", invoke(&stack.gateway(), model_text(&text)).await?),
        Way::Sse => {
            let run = invoke(&stack.gateway(), model_text(&text))
                .await?
                .run
                .run_id;
            let head = format!("GET /v1/runs/{run}/events\r\naccept: text/event-stream\r\n");
            http(&head, b"", "").await?
        }
        Way::WebSocket => {
            let request = json!({"id": "1", "invokeText": {"calls": {"text": text}}});
            let head = "GET /v1/session\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
            http(head, &frame(&request.to_string()), "runFinished").await?
        }
        // As the page does.
        Way::Connect => {
            follow(stack, "people:list", &effect, arguments).await?;
            let head = format!("POST /tavern.registry.v1.CallService/GetCall\r\n{JSON}");
            http(
                &head,
                json!({"effectId": effect}).to_string().as_bytes(),
                "",
            )
            .await?
        }
        Way::OpenAi => {
            let messages = json!([{"role": "user", "content": "Who?"}]);
            let body = json!({"model": "clerk", "stream": true, "messages": messages});
            let head = format!("POST /v1/chat/completions\r\n{JSON}");
            http(&head, body.to_string().as_bytes(), "").await?
        }
        Way::A2a => {
            let message = json!({"messageId": format!("m{number}"), "role": "ROLE_USER", "parts": [{"text": "Who?"}]});
            let body = json!({"tenant": "clerk", "message": message});
            let head =
                format!("POST /lf.a2a.v1.A2AService/SendMessage\r\na2a-version: 1.0\r\n{JSON}");
            http(&head, body.to_string().as_bytes(), "").await?
        }
        Way::Export => exported(stack).await?,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn r205_masked_addresses_leave_on_no_way_and_operators_read_the_raw_result()
-> anyhow::Result<()> {
    let results = size("TAVERN_TEST_MASKED", RESULTS)?;
    let directory = tempfile::tempdir()?;
    let call = "<ACTION><people:list><n>7</n></people:list></ACTION>";
    deploy(directory.path(), "people:list", call)?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    install(
        &stack,
        &package(files("people", "version: 1.0.0\n", &[("list", PEOPLE)]))?,
    )
    .await?;
    let mask = read_path(&repository().join("deploy/hooks/mask-emails"))?;
    let mask = mask.map_err(|violations| anyhow::anyhow!("{violations:?}"))?;
    install(&stack, &mask).await?;
    for number in 0..results {
        let way = WAYS[number % WAYS.len()];
        let shown = read(&stack, way, number).await?;
        ensure!(!shown.contains("@mail"), "{way:?}: {shown}");
        ensure!(
            !way.shows_outputs() || shown.contains("[e-mail address]"),
            "{way:?}: {shown}"
        );
        ensure!(
            way.shows_outputs() || shown.contains("Done."),
            "{way:?}: {shown}"
        );
    }
    // The database has no other copy: the raw results are in the ledger alone.
    let data = stack.directory().join("data");
    for entry in std::fs::read_dir(&data)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_file() && !name.starts_with("tool-registry.effects") {
            let content = std::fs::read(&path)?;
            let found = content.windows(5).any(|part| part == b"@mail");
            ensure!(!found, "{name}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r203_the_unit_of_the_user_is_added_to_workflows_that_ask_for_one() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let unit = read_path(&repository().join("deploy/hooks/unit-of-user"))?;
    install(
        &stack,
        &unit.map_err(|violations| anyhow::anyhow!("{violations:?}"))?,
    )
    .await?;
    let node = |id: &str, full_type: &str| json!({"id": id, "type": full_type});
    let edge = |slot: &str| json!({"id": slot, "source": "in", "sourceHandle": slot, "target": "out", "targetHandle": slot});
    let slots = json!({"city": {"dataFlowType": "STRING"}, "unit": {"dataFlowType": "STRING", "required": false}});
    let definition = json!({
        "nodes": [node("in", "core:GroupInput"), node("out", "core:GroupOutput")],
        "edges": [edge("city"), edge("unit")],
        "interfaceInputs": slots,
        "interfaceOutputs": slots,
    });
    for (inputs, unit) in [
        (json!({"city": "Oslo"}), "metric"),
        (json!({"city": "Oslo", "unit": "imperial"}), "imperial"),
    ] {
        let target = contracts::tavern::workflow::v1::start_run_request::Target::DefinitionJson(
            definition.to_string(),
        );
        let run = crate::workflows::start(&stack, target, &inputs).await?;
        let ended = collect(&stack.runs(), &run, 0).await?;
        let result: Value =
            serde_json::from_str(&ended.run.outcome.unwrap_or_default().result_json)?;
        ensure!(result["unit"] == unit, "{result}");
        let hooked = ended
            .events
            .iter()
            .any(|event| matches!(event.kind, Some(Kind::HookApplied(_))));
        ensure!(hooked == inputs.get("unit").is_none());
    }
    Ok(())
}
