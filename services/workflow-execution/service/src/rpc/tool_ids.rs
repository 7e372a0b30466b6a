//! The tools that the models of a workflow may choose from.

use contracts::tavern::workflow::v1::{GetToolChoiceRequest, GetToolChoiceResponse};
use core_types::Tenant;
use grpc_kit::Failure;

use crate::error::workflow_invalid;
use crate::runner::Inner;
use crate::store::etag_of;
use workflow_domain::flatten::flatten;
use workflow_domain::load::load_with_source;
use workflow_domain::tool_choice;

/// Returns the tools that a workflow lets its models choose from.
pub(super) async fn choice(
    inner: &Inner,
    tenant: Tenant,
    request: GetToolChoiceRequest,
) -> Result<GetToolChoiceResponse, Failure> {
    let GetToolChoiceRequest {
        workflow_id,
        node_path,
    } = request;
    let known = inner.library.get(tenant, &workflow_id).await?;
    let text = &known.document.text;
    let bundle = inner.library.bundle(tenant, text).await?;
    let (loaded, source) = load_with_source(text);
    let (Some(workflow), Some(root)) = (loaded.workflow, source.as_object()) else {
        return Err(workflow_invalid("workflow_id", &loaded.violations));
    };
    let (workflow, wrong) = flatten(workflow, &bundle.children, inner.library.catalogue());
    if !wrong.is_empty() {
        return Err(workflow_invalid("workflow_id", &wrong));
    }
    let listed = tool_choice::listed(&workflow.nodes, &node_path);
    if listed.is_none() && !node_path.is_empty() {
        let problem = "is not a node that lists tools for a model; name one such as core:LLM or core:AvailableTools";
        return Err(Failure::invalid_fields().violation("node_path", problem));
    }
    Ok(GetToolChoiceResponse {
        initial_tool_ids: tool_choice::initial(root).unwrap_or_default(),
        has_listing_nodes: listed.is_some(),
        listed_tool_ids: listed.unwrap_or_default(),
        etag: etag_of(text),
    })
}
