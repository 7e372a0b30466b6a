//! Plain gRPC to every service through the gateway, with each service in a process of its own.

use std::time::Duration;

use contracts::tavern::{
    common::v1::CallStatus,
    registry::v1::{
        CallToolRequest, ReadOutputRequest, call_service_client::CallServiceClient,
        call_tool_response::Record,
    },
};
use grpc_kit::{ClientSettings, Outbound, Transport};
use prost_reflect::DescriptorPool;
use serde_json::{Value, json};
use testkit::Stack;
use tonic::{Code, Request, codegen::http::uri::PathAndQuery};

use crate::rules::RawCodec;

/// The longest time of a method with an empty request. No method waits then.
const PATIENCE: Duration = Duration::from_secs(30);

async fn five_processes() -> anyhow::Result<(Stack, Transport)> {
    let stack = Stack::builder().separate().start().await?;
    let transport = grpc_kit::remote(&ClientSettings::to(stack.address()))?;
    Ok((stack, transport))
}

/// Sends an empty request as a stream, which on the wire a single request is too.
async fn answer(transport: &Transport, path: &str) -> anyhow::Result<Code> {
    let mut client = tonic::client::Grpc::new(transport.outermost());
    client.ready().await?;
    let mut request = Request::new(tokio_stream::once(Vec::new()));
    request.set_timeout(PATIENCE);
    let answers = client
        .streaming(request, PathAndQuery::try_from(path)?, RawCodec)
        .await;
    let first = match answers {
        Ok(answers) => answers.into_inner().message().await,
        Err(status) => Err(status),
    };
    Ok(first.map_or_else(|status| status.code(), |_| Code::Ok))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_of_every_service_answers_at_the_gateway() -> anyhow::Result<()> {
    let (_stack, gateway) = five_processes().await?;
    let contract = DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET)?;
    let methods: Vec<String> = contract
        .services()
        .filter(|service| service.full_name().starts_with("tavern."))
        .flat_map(|service| {
            let name = service.full_name().to_owned();
            let methods: Vec<_> = service.methods().collect();
            methods
                .into_iter()
                .map(move |method| format!("/{name}/{}", method.name()))
        })
        .collect();
    let mut silent = Vec::new();
    for method in &methods {
        match answer(&gateway, method).await? {
            Code::Unimplemented | Code::Unavailable | Code::DeadlineExceeded | Code::Internal => {
                silent.push(method);
            }
            _ => {}
        }
    }
    assert!(methods.len() > 50, "{methods:?}");
    assert_eq!(silent, [""; 0]);
    Ok(())
}

/// Makes a call and returns its result.
async fn call(
    calls: &mut CallServiceClient<Outbound>,
    (tool_id, effect_id): (&str, &str),
    arguments: &Value,
) -> anyhow::Result<contracts::tavern::common::v1::CallResult> {
    let request = CallToolRequest {
        tool_id: tool_id.to_owned(),
        effect_id: effect_id.to_owned(),
        conversation_id: "c1".to_owned(),
        arguments_json: arguments.to_string(),
        ..CallToolRequest::default()
    };
    let mut answers = calls.call_tool(request).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        if let Some(Record::Result(result)) = answer.record {
            assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
            return Ok(result);
        }
    }
    anyhow::bail!("the call has no result")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_is_too_long_for_a_result_is_read_through_the_gateway() -> anyhow::Result<()>
{
    let (_stack, gateway) = five_processes().await?;
    let mut calls = CallServiceClient::new(gateway.outermost());
    let content = "x".repeat(500_000);
    for path in ["a", "b"] {
        let write = json!({"filePath": path, "content": content});
        call(&mut calls, ("FileOperator.WriteFile", path), &write).await?;
    }
    let read = json!({"args": {"file": [{"path": "a"}, {"path": "b"}]}});
    let result = call(&mut calls, ("read_file", "e1"), &read).await?;
    let total = result.long_output.unwrap_or_default().total_bytes;
    assert!(total > 1_000_000, "{total}");
    let mut text = String::new();
    while (text.len() as u64) < total {
        let request = ReadOutputRequest {
            effect_id: "e1".to_owned(),
            offset: text.len() as u64,
            limit: 256 << 10,
        };
        let part = calls.read_output(request).await?.into_inner();
        assert!(part.next_offset > text.len() as u64);
        text.push_str(&part.text);
    }
    let whole: Value = serde_json::from_str(&text)?;
    assert_eq!(whole.to_string().matches(&content).count(), 2);
    Ok(())
}
