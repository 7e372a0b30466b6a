//! Requesting the descriptions of tools from the registry.

use call_catalogue::{Tool, ToolKind};
use call_outcome::{Category, Failure};
use call_wire::{NamedTools, with_names};
use contracts::tavern::registry::v1::{self as registry, BatchGetToolsRequest, ImplementationType};
use run_client::Tries;
use run_events::RunControl;
use tonic::Status;

use crate::wire;
use workflow_domain::node_type::Settled;
use workflow_domain::tool::tool_to_value;

use super::{Clients, code_of};

/// The most ids in one request to the registry.
const MAX_BATCH: usize = 500;

/// Requests the tools with these ids, in their order.
///
/// # Errors
/// No tool has one of the ids, or the registry does not answer.
pub(super) async fn execute(
    peers: Clients,
    control: RunControl,
    tool_ids: Vec<String>,
) -> Result<Settled, Failure> {
    tokio::select! {
        described = ask_until_answered(peers, tool_ids) => described,
        () = control.cancelled() => {
            let message = "the run was ended while the registry was asked";
            Err(Failure::new(Category::Cancelled, "cancelled", message))
        }
    }
}

impl Clients {
    /// Returns the ids, of these, that no tool has.
    ///
    /// # Errors
    /// The registry does not answer.
    pub async fn unknown_tools(&self, tool_ids: Vec<String>) -> Result<Vec<String>, Status> {
        let mut unknown = Vec::new();
        for tool_ids in tool_ids.chunks(MAX_BATCH) {
            let request = BatchGetToolsRequest {
                tool_ids: tool_ids.to_vec(),
                ..BatchGetToolsRequest::default()
            };
            let found = self.tools.clone().batch_get_tools(request).await?;
            unknown.extend(found.into_inner().missing_tool_ids);
        }
        Ok(unknown)
    }

    /// Returns the names, of these, of tools that are read-only or idempotent.
    ///
    /// # Errors
    /// The registry does not answer.
    pub async fn harmless_tools(&self, tool_ids: Vec<String>) -> Result<Vec<String>, Status> {
        let mut harmless = Vec::new();
        for tool_ids in tool_ids.chunks(MAX_BATCH) {
            let request = BatchGetToolsRequest {
                tool_ids: tool_ids.to_vec(),
                ..BatchGetToolsRequest::default()
            };
            let found = self.tools.clone().batch_get_tools(request).await?;
            let tools = with_names(tool_ids, found.into_inner()).into_iter();
            let tools = tools.filter(|(_, tool)| tool.read_only || tool.idempotent);
            harmless.extend(tools.map(|(name, _)| name));
        }
        Ok(harmless)
    }
}

/// Returns the ids and etags of the tools with these names, in their order; none if one of them is
/// missing or not read-only, or if the registry does not answer.
pub(super) async fn etags_if_read_only(
    peers: &Clients,
    tool_ids: Vec<String>,
) -> Option<Vec<(String, String)>> {
    let request = BatchGetToolsRequest {
        tool_ids,
        ..BatchGetToolsRequest::default()
    };
    let found = peers.tools.clone().batch_get_tools(request).await.ok()?;
    let found = found.into_inner();
    if !found.missing_tool_ids.is_empty() {
        return None;
    }
    let etag = |tool: registry::Tool| tool.read_only.then_some((tool.tool_id, tool.etag));
    found.tools.into_iter().map(etag).collect()
}

async fn ask_until_answered(peers: Clients, tool_ids: Vec<String>) -> Result<Settled, Failure> {
    let request = BatchGetToolsRequest {
        tool_ids,
        visible_only: true,
        permitted_only: true,
    };
    let mut tries = Tries::default();
    loop {
        let status = match peers.tools.clone().batch_get_tools(request.clone()).await {
            Ok(response) => return described(&request.tool_ids, response.into_inner()),
            Err(status) => status,
        };
        if !tries.wait_after(&status).await {
            let message = format!("the registry did not list the tools: {}", status.message());
            let code = code_of(&status, "registry_failed");
            return Err(Failure::new(Category::Dependency, code, message));
        }
    }
}

fn described(
    tool_ids: &[String],
    found: registry::BatchGetToolsResponse,
) -> Result<Settled, Failure> {
    if !found.missing_tool_ids.is_empty() {
        let missing = found.missing_tool_ids.join(", ");
        let message = format!("no tool has the id: {missing}");
        return Err(Failure::invalid("unknown_tool", message));
    }
    let mut named = NamedTools::default();
    named.add(tool_ids, found);
    let tools = named
        .tools
        .iter()
        .map(|(name, tool)| Ok(tool_to_value(&read(tool)?, name)));
    Ok(Settled::Tools(tools.collect::<Result<_, Failure>>()?))
}

fn read(tool: &registry::Tool) -> Result<Tool, Failure> {
    let parameters = wire::read_value(&tool.parameters_json).map_err(|problem| {
        let message = format!(
            "the parameters of `{}` are not usable: {problem}",
            tool.tool_id
        );
        Failure::new(Category::Dependency, "tool_malformed", message)
    })?;
    let kind = match tool.implementation() == ImplementationType::Workflow {
        true => ToolKind::Skill,
        false => ToolKind::Tool,
    };
    Ok(Tool {
        kind,
        read_only: tool.read_only,
        parallel_safe: tool.parallel_safe,
        idempotent: tool.idempotent,
        strict: tool.strict,
        ..Tool::new(&tool.tool_id, &tool.description, parameters)
    })
}
