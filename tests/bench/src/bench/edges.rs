//! Following runs at the edges: their delay, and the cost of clients that stall.

mod live;
mod stalled;

use anyhow::Context;
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::invoke_text_request::Target;
use contracts::tavern::gateway::v1::{
    CallsTarget, InvokeTextRequest, InvokeTextResponse, ToolScope,
};
use tonic::Streaming;
use tonic::transport::Channel;

use crate::harness::Effort;
use crate::support::{in_process, served};
use crate::table::Figure;

/// The tool that executes scripts.
const TOOL: &str = "CodeInterpreter:execute";

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    // Without it the server could not execute a script.
    served::program("sandbox-launcher")?;
    let mut figures = live::run(effort).await?;
    figures.extend(stalled::run(effort).await?);
    Ok(figures)
}

/// Starts a run that executes a Python script, in memory; returns its id and its stream of answers.
async fn start_script(
    gateway: &mut GatewayServiceClient<Channel>,
    code: &str,
) -> anyhow::Result<(String, Streaming<InvokeTextResponse>)> {
    let calls = CallsTarget {
        text: format!(
            "<ACTION><{TOOL}><language>python</language><code><![CDATA[\n{code}\n]]></code></{TOOL}></ACTION>"
        ),
        scope: Some(ToolScope {
            tool_ids: vec![TOOL.to_owned()],
            ..ToolScope::default()
        }),
        ..CallsTarget::default()
    };
    let request = InvokeTextRequest {
        target: Some(Target::Calls(calls)),
        options: Some(in_process::in_memory()),
        ..InvokeTextRequest::default()
    };
    let mut answers = gateway.invoke_text(request).await?.into_inner();
    let first = answers.message().await?.context("there is no answer")?;
    Ok((first.run_id, answers))
}
