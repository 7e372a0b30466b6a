//! Node types of plugins, for the engine that executes workflows.

use contracts::tavern::registry::v1::{
    PluginNodeType, ResolveNodeTypesRequest, ResolveNodeTypesResponse,
};
use tonic::Status;
use tool_domain::naming::NODE_PREFIX;

use crate::{
    rpc::page::page_after,
    tools::{ActivePlugin, PluginChoices, Revision},
};

/// The name of the list in page tokens.
const LIST: &str = "plugin_node_types";

/// The most node types in a page of all.
const PAGE: i32 = 100;

/// Returns node types by name, or a page of all, as a tenant may use them.
pub(super) fn resolve(
    revision: &Revision,
    choices: &PluginChoices,
    request: &ResolveNodeTypesRequest,
) -> Result<ResolveNodeTypesResponse, Status> {
    let describe = |full_type: &String| describe(revision, choices, full_type);
    if !request.full_types.is_empty() {
        return Ok(ResolveNodeTypesResponse {
            node_types: request.full_types.iter().filter_map(describe).collect(),
            next_page_token: String::new(),
        });
    }
    let plugins = revision.plugins.values();
    let mut all: Vec<&String> = plugins.flat_map(|plugin| &plugin.plugin.nodes).collect();
    all.sort();
    let (page, next_page_token) =
        page_after(LIST, &request.page_token, PAGE, &all, |full_type| full_type)?;
    Ok(ResolveNodeTypesResponse {
        node_types: page
            .iter()
            .filter_map(|full_type| describe(full_type))
            .collect(),
        next_page_token,
    })
}

fn describe(
    revision: &Revision,
    choices: &PluginChoices,
    full_type: &String,
) -> Option<PluginNodeType> {
    let (name, _) = full_type.split_once(':')?;
    let plugin: &ActivePlugin = revision.plugins.get(name)?;
    let tool_id = format!("{NODE_PREFIX}{full_type}");
    let tool = revision.catalogue.get(&tool_id)?;
    let refused = choices.refuses(&tool_id, Some(plugin));
    Some(PluginNodeType {
        full_type: full_type.clone(),
        definition_json: tool.definition().source.to_string(),
        inactive_reason: refused.map_or_else(String::new, |reason| {
            format!("{}. {}", reason.sentence(&tool_id), reason.remedy(&tool_id))
        }),
        tool_id,
        package_digest: plugin.plugin.digest.clone(),
    })
}
