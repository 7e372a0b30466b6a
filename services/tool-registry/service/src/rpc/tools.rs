//! Adding, deleting, finding and validating tools.

use std::sync::Arc;

use contracts::tavern::registry::v1::{
    BatchGetToolsRequest, BatchGetToolsResponse, DeleteToolRequest, DeleteToolResponse,
    GetToolRequest, GetToolResponse, ListToolsRequest, ListToolsResponse, PutToolRequest,
    PutToolResponse, RemovedTool, ValidateCallRequest, ValidateCallResponse,
};
use grpc_kit::{CallContext, Failure};
use run_events::{request_hash, store_failure};
use serde_json::Value;
use tonic::Status;
use tool_domain::tool::Tool;

use super::{
    convert,
    page::page_after,
    refusal::{self, Resource, check_request_id},
};
use crate::{
    identities::Identities,
    runner::{
        agents::{Agents, AgentsAbove, Unknown},
        rights,
    },
    tools::{Change, Missing, Revision, Tools},
};

/// Adds or replaces a tool.
pub(super) async fn put(
    tools: &Tools,
    context: &CallContext,
    request: PutToolRequest,
) -> Result<PutToolResponse, Status> {
    let change = Change {
        body: Some(request_hash(context, &request)),
        request_id: request.request_id,
        etag: request.etag,
        validate_only: request.validate_only,
    };
    check_request_id(&change.request_id)?;
    let put = tools.put_tool(context.tenant(), &request.definition_json, &change);
    let put = put.await;
    let put = put.map_err(|error| refusal::of_change(error, &Resource::Definition, &change))?;
    let mut tool = convert::tool_to_proto(&put.tool);
    let case_twin = put.case_twin.as_ref().map(convert::diagnostic_to_proto);
    tool.diagnostics.extend(case_twin);
    if let Ok(view) = tools.view(context.tenant()).await {
        let findings = view.findings(put.tool.definition()).await;
        let findings = findings.iter().map(convert::diagnostic_to_proto);
        tool.diagnostics.extend(findings);
    }
    Ok(PutToolResponse {
        tool: Some(tool),
        replayed: put.replayed,
    })
}

/// Deletes a tool.
pub(super) async fn delete(
    tools: &Tools,
    context: &CallContext,
    request: DeleteToolRequest,
) -> Result<DeleteToolResponse, Status> {
    let change = Change {
        body: Some(request_hash(context, &request)),
        request_id: request.request_id,
        etag: request.etag,
        validate_only: false,
    };
    check_request_id(&change.request_id)?;
    let deleted = tools
        .delete_tool(context.tenant(), &request.tool_id, &change)
        .await;
    let replayed = deleted.map_err(|error| {
        let resource = Resource::Tool(&request.tool_id);
        refusal::of_change(error, &resource, &change)
    })?;
    Ok(DeleteToolResponse { replayed })
}

/// Returns one tool.
pub(super) async fn get(
    tools: &Tools,
    context: &CallContext,
    request: GetToolRequest,
) -> Result<GetToolResponse, Status> {
    let tool = tools.find(context.tenant(), &request.tool_id).await;
    let tool = tool.map_err(|missing| refusal::tool_not_found(missing, &request.tool_id))?;
    Ok(GetToolResponse {
        tool: Some(convert::tool_to_proto(&tool)),
    })
}

/// Returns the tools with the given ids.
pub(super) async fn batch_get(
    tools: &Tools,
    (agents, identities): (&Agents, &Identities),
    context: &CallContext,
    request: BatchGetToolsRequest,
) -> Result<BatchGetToolsResponse, Status> {
    let above = match request.visible_only {
        true => agents.above(context, "").await,
        false => Ok(AgentsAbove::default()),
    };
    let above = above.map_err(Unknown::into_status)?;
    let of_caller = || identities.rights(context.principal());
    let rights = request.permitted_only.then(of_caller);
    let view = tools.view(context.tenant()).await;
    let view = view.map_err(|error| store_failure(&error))?;
    let is_hidden = |tool: &Tool| {
        let agent = above.nearest();
        agent.is_some_and(|agent| !agent.has(tool.id(), &view.catalogue))
            || rights
                .as_ref()
                .is_some_and(|rights| !rights::may_call(rights, tool))
    };
    let mut response = BatchGetToolsResponse::default();
    for id in request.tool_ids {
        match view.find(&id).await {
            Ok(tool) if is_hidden(&tool) => response.hidden_tool_ids.push(id),
            Ok(tool) => response.tools.push(convert::tool_to_proto(&tool)),
            Err(Missing::Unavailable(status)) => return Err(refusal::unavailable(&status)),
            Err(missing) => {
                let reason = missing.into_failure(&id).message.clone();
                tracing::info!(tool = id, reason, "a requested tool does not exist");
                response.missing_tool_ids.push(id);
            }
        }
    }
    Ok(response)
}

/// Lists tools.
pub(super) async fn list(
    tools: &Tools,
    context: &CallContext,
    request: ListToolsRequest,
) -> Result<ListToolsResponse, Status> {
    let all = tools.list(context.tenant()).await?;
    let (page, next_page_token) = page_after(
        &grpc_kit::list_of(context, "ListTools"),
        &request.page_token,
        request.page_size,
        &all,
        |tool| tool.id(),
    )?;
    let removed_tools = match next_page_token.is_empty() {
        true => removed(&tools.revision(), &all),
        false => Vec::new(),
    };
    Ok(ListToolsResponse {
        removed_tools,
        tools: page
            .iter()
            .map(|tool| convert::tool_to_proto(tool))
            .collect(),
        next_page_token,
    })
}

/// Returns the removed tools of a revision whose ids none of the tools, sorted by id, has.
fn removed(revision: &Revision, tools: &[Arc<Tool>]) -> Vec<RemovedTool> {
    let is_gone = |id: &str| tools.binary_search_by(|tool| tool.id().cmp(id)).is_err();
    let removed = revision.removed.iter().filter(|(id, _)| is_gone(id));
    let removed = removed.map(|(id, plugin)| RemovedTool {
        tool_id: id.clone(),
        plugin: plugin.clone(),
    });
    removed.collect()
}

/// Checks a call.
pub(super) async fn validate(
    tools: &Tools,
    context: &CallContext,
    request: ValidateCallRequest,
) -> Result<ValidateCallResponse, Status> {
    let mut failure = Failure::invalid_fields();
    let arguments = arguments(&request.arguments_json, &mut failure);
    failure.refuse_if_any()?;
    let tool = tools.find(context.tenant(), &request.tool_id).await;
    let tool = tool.map_err(|missing| refusal::tool_not_found(missing, &request.tool_id))?;
    Ok(match tool.check(&arguments) {
        Ok(checked) => ValidateCallResponse {
            violations: Vec::new(),
            arguments_json: checked.arguments.to_string(),
            defaulted: checked.defaulted,
        },
        Err(violations) => ValidateCallResponse {
            violations: violations
                .iter()
                .map(call_wire::violation_to_proto)
                .collect(),
            ..ValidateCallResponse::default()
        },
    })
}

/// Reads arguments, which must be a JSON object. Empty text is an empty object.
pub(super) fn arguments(text: &str, failure: &mut Failure) -> Value {
    let empty = || Value::Object(serde_json::Map::new());
    if text.is_empty() {
        return empty();
    }
    match json_schema::parse_json_strict(text) {
        Ok(object @ Value::Object(_)) => return object,
        Ok(_) => failure.add_violation("arguments_json", "is not a JSON object"),
        Err(error) => failure.add_violation("arguments_json", error.to_string()),
    }
    empty()
}
