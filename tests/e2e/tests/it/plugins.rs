//! Plugins as packages that are installed, over the wire, with a real sandbox.

mod files;
mod hooks;
mod kills;
mod load;
mod nodes;
mod overrides;
mod plans;
mod removed;
mod samples;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{CallResult, CallStatus};
use contracts::tavern::registry::v1::plan_plugin_request::Part;
use contracts::tavern::registry::v1::{
    CallToolRequest, InstallPluginRequest, PlanPluginHeader, PlanPluginRequest, PluginPlan,
    PutBackendRequest, call_service_client::CallServiceClient, call_tool_response,
};
use grpc_kit::Outbound;
use plugin_package::{PluginFiles, write_archive};
use serde_json::Value;
use testkit::Stack;
use tonic::Status;
use tool_domain::package::PackageFile;

/// Returns a file of a package.
pub(crate) fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> PackageFile {
    PackageFile {
        path: path.into(),
        content: content.into(),
    }
}

/// Returns the files of a manifest and of one script tool for each of these scripts, named after it.
fn files(name: &str, manifest: &str, scripts: &[(&str, &str)]) -> Vec<PackageFile> {
    let manifest = format!("name: {name}\ntools: {{entry: tools}}\n{manifest}");
    let mut files = vec![file("plugin.yaml", manifest)];
    for (tool, script) in scripts {
        let definition = serde_json::json!({
            "id": format!("{name}:{tool}"),
            "description": tool,
            "readOnly": true,
            "idempotent": true,
            "parameters": {"type": "object", "additionalProperties": true},
            "implementation": {"type": "script", "command": format!("python3 {tool}.py")},
        });
        files.push(file(
            format!("tools/{tool}.tool.json"),
            definition.to_string(),
        ));
        files.push(file(format!("{tool}.py"), *script));
    }
    files
}

/// Returns the package of files.
pub(crate) fn package(files: Vec<PackageFile>) -> anyhow::Result<PluginFiles> {
    PluginFiles::new(files).map_err(|violations| anyhow::anyhow!("{violations:?}"))
}

/// Registers a gRPC server.
async fn register(stack: &Stack, name: &str, endpoint: String) -> anyhow::Result<()> {
    let request = PutBackendRequest {
        name: name.to_owned(),
        endpoint,
        ..PutBackendRequest::default()
    };
    stack.registry().put_backend(request).await?;
    Ok(())
}

/// Plans the installation of a package that can be installed.
pub(crate) async fn plan(stack: &Stack, files: &PluginFiles) -> anyhow::Result<PluginPlan> {
    let plan = planned(stack, files).await?;
    ensure!(plan.violations.is_empty(), "{}", plan.text);
    Ok(plan)
}

/// Plans the installation of a package.
async fn planned(stack: &Stack, files: &PluginFiles) -> anyhow::Result<PluginPlan> {
    let mut parts = vec![Part::Header(PlanPluginHeader::default())];
    let archive = write_archive(files);
    parts.extend(
        archive
            .chunks(1 << 20)
            .map(|piece| Part::Chunk(piece.to_vec())),
    );
    let parts = parts
        .into_iter()
        .map(|part| PlanPluginRequest { part: Some(part) });
    let mut plugins = stack.plugins();
    let planned = plugins.plan_plugin(futures::stream::iter(parts));
    planned.await?.into_inner().plan.context("there is a plan")
}

/// Installs a plan.
async fn install_plan(stack: &Stack, plan_digest: String) -> Result<(), Status> {
    let request = InstallPluginRequest {
        plan_digest,
        ..InstallPluginRequest::default()
    };
    stack.plugins().install_plugin(request).await.map(drop)
}

/// Plans and installs a package.
pub(crate) async fn install(stack: &Stack, files: &PluginFiles) -> anyhow::Result<()> {
    let plan = plan(stack, files).await?;
    Ok(install_plan(stack, plan.plan_digest).await?)
}

/// Calls a tool in a conversation, or in none.
pub(crate) async fn call(
    stack: &Stack,
    place: (&str, &str),
    arguments: Value,
) -> anyhow::Result<CallResult> {
    call_by(stack.calls(), place, arguments).await
}

/// Does the same over the connection of a client.
async fn call_by(
    mut calls: CallServiceClient<Outbound>,
    (tool, conversation): (&str, &str),
    arguments: Value,
) -> anyhow::Result<CallResult> {
    let request = CallToolRequest {
        tool_id: tool.to_owned(),
        arguments_json: arguments.to_string(),
        conversation_id: conversation.to_owned(),
        ..CallToolRequest::default()
    };
    let mut stream = calls.call_tool(request).await?.into_inner();
    while let Some(response) = stream.message().await? {
        if let Some(call_tool_response::Record::Result(result)) = response.record {
            return Ok(result);
        }
    }
    anyhow::bail!("the call of {tool} has no result")
}

/// Calls a tool, and returns its output.
async fn output_of(stack: &Stack, place: (&str, &str), arguments: Value) -> anyhow::Result<Value> {
    let result = call(stack, place, arguments).await?;
    ensure!(result.status() == CallStatus::Succeeded, "{result:?}");
    Ok(serde_json::from_str(&result.output_json)?)
}

/// Returns the code of the error of a call that failed.
fn code_of(result: &CallResult) -> &str {
    result.error.as_ref().map_or("", |error| &error.code)
}
