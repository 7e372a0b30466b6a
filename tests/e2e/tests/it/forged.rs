//! Clients cannot state the facts of a call that only services may state, on any road into the
//! platform (rule S507).

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::lf::a2a::v1::a2a_service_client::A2aServiceClient;
use contracts::tavern::common::v1::CallStatus;
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::{AgentTarget, agent_target::Input};
use contracts::tavern::registry::v1::{
    CallToolRequest, call_service_client::CallServiceClient, call_tool_response,
};
use grpc_kit::{ClientSettings, Transport};
use prost::Message;
use serde_json::json;
use testkit::{Stack, exchange, invoke};
use tonic::{Request, metadata::AsciiMetadataValue};

use crate::text::{model_text, turn, write_file};

/// A file that a guide must not write.
const CROWN: &str = "crown.txt";

/// Headers by which a call would be too deep, malformed, or a call of the guide; `{turn}` is its
/// turn.
const FORGED: [(&str, &str); 5] = [
    ("tavern-call-depth", "99"),
    ("tavern-call-depth", "many"),
    ("tavern-call-path", "%"),
    ("tavern-call-path", "1,2,3,4,5,6,7,8,9"),
    ("tavern-call-path", "{turn}"),
];

const JSON: &str = "content-type: application/json\r\n";
const STREAM: &str = "content-type: application/connect+json\r\n";
const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

const GATEWAY: &str = "tavern.gateway.v1.GatewayService";

/// A request over HTTP/1.1: the road, its first line, its headers, its body, and a part of the
/// answer to a client without forged headers.
type Road<'a> = (&'a str, String, &'a str, Vec<u8>, &'a str);

/// Writes the guide, who writes files, but no crown, and whose model always returns the same
/// answer.
fn prepare(deploy: &Path) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let rule = json!({
        "id": "no_crowns", "tools": ["FileOperator.*"], "action": "deny",
        "condition": "args.filePath.startsWith('crown')",
    });
    let guide = json!({
        "id": "guide",
        "tool_ids_inventory": ["FileOperator.WriteFile"],
        "custom_metadata": {"tavern": {"model": "guide", "approvals": [rule]}},
    });
    std::fs::write(deploy.join("agents/guide.json"), guide.to_string())?;
    let script = json!({"turns": [], "otherwise": {"answer": {"text": "So it is."}}});
    std::fs::write(deploy.join("models/guide.json"), script.to_string())?;
    let models = "[models.guide]\nprovider = \"scripted\"\nscript = \"guide.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

/// The call of a client, which no rule forbids.
fn call() -> CallToolRequest {
    CallToolRequest {
        tool_id: "FileOperator.WriteFile".to_owned(),
        conversation_id: "c1".to_owned(),
        arguments_json: json!({"filePath": CROWN, "content": "x"}).to_string(),
        ..CallToolRequest::default()
    }
}

/// Puts the length before a message of gRPC-Web or Connect.
fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}

/// A text frame of a WebSocket client, masked with zeros.
pub(crate) fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend((text.len() as u16).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

/// The roads on which a client makes the call.
fn roads_of_calls() -> Vec<Road<'static>> {
    const SUCCEEDED: &str = "CALL_STATUS_SUCCEEDED";
    let calls = json!({"calls": {"text": write_file(CROWN, "x")}});
    let same = "POST /tavern.registry.v1.CallService/CallTool".to_owned();
    let by_json = json!({
        "toolId": call().tool_id, "conversationId": "c1", "argumentsJson": call().arguments_json,
    });
    let session = json!({"id": "1", "invokeText": calls});
    vec![
        (
            "a stream of Connect",
            format!("POST /{GATEWAY}/InvokeText"),
            STREAM,
            framed(calls.to_string().as_bytes()),
            SUCCEEDED,
        ),
        (
            "a stream that is passed on",
            same.clone(),
            STREAM,
            framed(by_json.to_string().as_bytes()),
            SUCCEEDED,
        ),
        (
            "gRPC-Web",
            same,
            "content-type: application/grpc-web+proto\r\n",
            framed(&call().encode_to_vec()),
            "grpc-status:0",
        ),
        (
            "a session",
            "GET /v1/session".to_owned(),
            UPGRADE,
            frame(&session.to_string()),
            SUCCEEDED,
        ),
    ]
}

/// The roads of a client's other requests.
fn other_roads(turn: &str) -> Vec<Road<'static>> {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Is it so?"}]});
    let ask = json!({"tenant": "guide", "message": message});
    let chat = json!({"model": "guide", "messages": [{"role": "user", "content": "Is it so?"}]});
    let events = format!("GET /v1/runs/{turn}/events");
    let query =
        "connect=v1&encoding=json&message=%7B%22text%22%3A%22x%22%2C%22catalogue%22%3A%7B%7D%7D";
    vec![
        (
            "Connect",
            format!("POST /{GATEWAY}/ParseText"),
            JSON,
            br#"{"text":"x","catalogue":{}}"#.to_vec(),
            "\"parsed\"",
        ),
        (
            "Connect by GET",
            format!("GET /{GATEWAY}/ParseText?{query}"),
            "",
            vec![],
            "\"parsed\"",
        ),
        (
            "the chat API",
            "POST /v1/chat/completions".to_owned(),
            JSON,
            chat.to_string().into(),
            "So it is.",
        ),
        (
            "models",
            "GET /v1/models".to_owned(),
            "",
            vec![],
            "\"guide\"",
        ),
        (
            "server-sent events",
            events.clone(),
            "accept: text/event-stream\r\n",
            vec![],
            "RUN_STATE_SUCCEEDED",
        ),
        (
            "a WebSocket of events",
            events,
            UPGRADE,
            vec![],
            "RUN_STATE_SUCCEEDED",
        ),
        (
            "A2A",
            "POST /lf.a2a.v1.A2AService/SendMessage".to_owned(),
            "content-type: application/json\r\na2a-version: 1.0\r\n",
            ask.to_string().into(),
            "TASK_STATE_COMPLETED",
        ),
    ]
}

/// Adds a forged header to a request by gRPC.
fn with<T>(message: T, (name, value): (&'static str, &str)) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    let value: AsciiMetadataValue = value.parse()?;
    request.metadata_mut().insert(name, value);
    Ok(request)
}

/// Makes the same call by gRPC: as a text at the gateway, and by the registry's method.
async fn by_grpc(gateway: &Transport, forged: (&'static str, &str)) -> anyhow::Result<()> {
    let text = with(model_text(&write_file(CROWN, "x")), forged)?;
    let mut texts = GatewayServiceClient::new(gateway.outermost());
    let answers = texts.invoke_text(text).await.context("InvokeText")?;
    let mut answers = answers.into_inner();
    let mut events = String::new();
    while let Some(answer) = answers.message().await? {
        events += &format!("{:?}", contracts::watch::decode(answer.record)?);
    }
    ensure!(events.contains("status: Succeeded"), "InvokeText: {events}");
    let mut calls = CallServiceClient::new(gateway.outermost());
    let answers = calls.call_tool(with(call(), forged)?);
    let mut answers = answers.await.context("CallTool")?.into_inner();
    let mut status = CallStatus::Unspecified;
    while let Some(answer) = answers.message().await? {
        if let Some(call_tool_response::Record::Result(result)) = answer.record {
            status = result.status();
        }
    }
    ensure!(status == CallStatus::Succeeded, "CallTool: {status:?}");
    let card = contracts::lf::a2a::v1::ListTasksRequest {
        tenant: "guide".to_owned(),
        ..Default::default()
    };
    let mut card = with(card, forged)?;
    card.metadata_mut().insert("a2a-version", "1.0".parse()?);
    let mut a2a = A2aServiceClient::new(gateway.outermost());
    a2a.list_tasks(card).await.context("ListTasks")?;
    Ok(())
}

async fn clients_forge_in_vain(separate: bool) -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path());
    let stack = if separate { stack.separate() } else { stack };
    let stack = stack.start().await?;
    let of_guide = turn(AgentTarget {
        profile_id: "guide".to_owned(),
        input: Some(Input::ModelText("Nothing to do.".to_owned())),
        ..AgentTarget::default()
    });
    let turn_id = invoke(&stack.gateway(), of_guide).await?.run.run_id;
    let gateway = grpc_kit::remote(&ClientSettings::to(stack.address()))?;
    let mut believed = Vec::new();
    for (name, value) in FORGED {
        let value = value.replace("{turn}", &turn_id);
        if let Err(error) = by_grpc(&gateway, (name, &value)).await {
            believed.push(format!("{name}: {value}: gRPC: {error:#}"));
        }
        for (road, line, headers, body, part) in
            roads_of_calls().into_iter().chain(other_roads(&turn_id))
        {
            let head = format!("{line}\r\n{headers}{name}: {value}\r\n");
            let has = |answer: &str| answer.contains(part) && !answer.contains("denied_by_rule");
            let enough = |answer: &str| has(answer) || answer.contains("\"error\"");
            let answer = exchange(&stack.address(), &head, &body, enough).await?;
            if !has(&answer) {
                believed.push(format!("{name}: {value}: {road}: {answer}"));
            }
        }
    }
    ensure!(believed.is_empty(), "{}", believed.join("\n\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s507_headers_of_services_are_not_believed_of_clients_on_any_road() -> anyhow::Result<()> {
    clients_forge_in_vain(false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s507_headers_of_services_are_not_passed_on_to_other_processes() -> anyhow::Result<()> {
    clients_forge_in_vain(true).await
}
