//! The tools of an agent, as the registry knows them now.

use std::collections::{BTreeSet, HashSet};

use agent_domain::{plan::Plan, spelling::HANDLE_TOOLS};
use call_catalogue::Catalogue;
use contracts::tavern::{
    common::v1::{self as common, run_event::Kind},
    registry::v1 as registry,
};
use grpc_kit::Transport;
use registry::tool_registry_service_client::ToolRegistryServiceClient;
use run_events::outcome;

/// The tools that a turn may call.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// What the profile names.
    pub(super) catalogue: Catalogue,
    /// The same and the tools for handles, for a conversation in which a handle was given.
    pub(super) with_handles: Catalogue,
    /// Ids of the profile that no tool has.
    pub(super) missing: Vec<String>,
}

impl Inventory {
    /// Remarks on the tools that the profile names and that do not exist.
    pub(super) fn remarks(&self) -> impl Iterator<Item = Kind> + '_ {
        self.missing.iter().map(|id| {
            Kind::Diagnosed(common::Diagnosed {
                diagnostic: Some(common::Diagnostic {
                    rule: "N4".to_owned(),
                    code: "tool_missing".to_owned(),
                    severity: common::Severity::Warning.into(),
                    message: format!(
                        "The agent's profile names the tool '{id}', which is not registered."
                    ),
                    hint: "Register the tool, or take it out of tool_ids_inventory.".to_owned(),
                    ..common::Diagnostic::default()
                }),
            })
        })
    }
}

/// What kept the tools from being read.
#[derive(Debug)]
pub(super) enum InventoryError {
    /// The registry failed or refused.
    Registry(tonic::Status),
    /// A parser cannot distinguish the tools.
    Unusable(common::CallError),
}

/// The most tools that the registry is asked for.
const MAX_TOOLS: usize = 20_000;
/// The most ids that the registry takes at once.
const MAX_BATCH: usize = 500;

/// The tools of an inventory as the registry has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    /// Those that the profile names, by the names that it has for them, and those for handles.
    pub(super) all: Vec<registry::Tool>,
    /// The ids of those that are there only for handles.
    pub(super) for_handles: Vec<String>,
    /// The ids of all tools of the registry.
    pub(super) known: Vec<String>,
    /// Ids of the profile that no tool has.
    pub(super) missing: Vec<String>,
}

impl Tools {
    /// Makes the catalogues. All other tools are known and not available, so that a call of one differs
    /// from a call of a tool that does not exist (rule N5).
    pub(super) fn inventory(self) -> Result<Inventory, InventoryError> {
        let tools = self.all.iter();
        let visible = tools.filter(|tool| !self.for_handles.contains(&tool.tool_id));
        let visible: Vec<registry::Tool> = visible.cloned().collect();
        Ok(Inventory {
            catalogue: catalogue_of(&visible, &self.known)?,
            with_handles: catalogue_of(&self.all, &self.known)?,
            missing: self.missing,
        })
    }
}

/// Asks the registry for the tools of a turn.
pub(super) async fn fetch(
    registry: ToolRegistryServiceClient<Transport>,
    plan: &Plan,
) -> Result<Inventory, InventoryError> {
    fetch_tools(registry, plan).await?.inventory()
}

/// Asks the registry for the tools of a turn, and for the ids of all.
pub(super) async fn fetch_tools(
    registry: ToolRegistryServiceClient<Transport>,
    plan: &Plan,
) -> Result<Tools, InventoryError> {
    let tool_ids = plan.inventory.as_slice();
    let wanted = |id: &String| tool_ids.contains(id);
    let own = HANDLE_TOOLS.iter().map(|id| (*id).to_owned());
    let for_handles: Vec<String> = own.filter(|id| !wanted(id)).collect();
    let written = [tool_ids, &for_handles].concat();
    let (mut all, mut missing) = named(registry.clone(), &ids_of(plan, &written)).await?;
    for tool in &mut all {
        spell(tool, plan);
    }
    missing.retain(wanted);
    missing.dedup();
    let mut known: Vec<String> = all.iter().map(|tool| tool.tool_id.clone()).collect();
    let everything = list(registry).await?;
    known.extend(everything.into_iter().map(|tool| tool.tool_id));
    Ok(Tools {
        all,
        for_handles,
        known,
        missing,
    })
}

/// Returns the ids of the tools that a profile names.
fn ids_of(plan: &Plan, written: &[String]) -> Vec<String> {
    let ids = written.iter().map(|name| plan.tool_id(name).into_owned());
    ids.collect()
}

/// Gives a tool the name by which the profile lists it.
fn spell(tool: &mut registry::Tool, plan: &Plan) {
    let is_it = |name: &&String| plan.tool_id(name) == tool.tool_id;
    if let Some(name) = plan.inventory.iter().find(is_it)
        && *name != tool.tool_id
    {
        tool.tool_id.clone_from(name);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        tool.alias = name.replace(|c| !plain(c), "__");
    }
}

/// Makes the catalogue in which `visible` may be called and every other known tool is not available.
fn catalogue_of(visible: &[registry::Tool], known: &[String]) -> Result<Catalogue, InventoryError> {
    let ids: HashSet<&str> = visible.iter().map(|tool| tool.tool_id.as_str()).collect();
    let hidden: BTreeSet<&String> = known
        .iter()
        .filter(|id| !ids.contains(id.as_str()))
        .collect();
    let hidden = hidden.into_iter().cloned().collect();
    call_wire::catalogue(visible, hidden)
        .map_err(|error| unusable(grpc_kit::failure::chain(&error)))
}

/// Returns the tools with these ids, and the ids that no tool has.
async fn named(
    mut registry: ToolRegistryServiceClient<Transport>,
    tool_ids: &[String],
) -> Result<(Vec<registry::Tool>, Vec<String>), InventoryError> {
    let (mut tools, mut missing) = (Vec::new(), Vec::new());
    for tool_ids in tool_ids.chunks(MAX_BATCH) {
        let request = registry::BatchGetToolsRequest {
            tool_ids: tool_ids.to_vec(),
            ..Default::default()
        };
        let response = registry.batch_get_tools(request).await;
        let batch = response.map_err(InventoryError::Registry)?.into_inner();
        tools.extend(batch.tools);
        missing.extend(batch.missing_tool_ids);
    }
    Ok((tools, missing))
}

/// Lists every tool.
async fn list(
    mut registry: ToolRegistryServiceClient<Transport>,
) -> Result<Vec<registry::Tool>, InventoryError> {
    let mut tools = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = registry::ListToolsRequest {
            page_size: 500,
            page_token,
        };
        let response = registry.list_tools(request).await;
        let page = response.map_err(InventoryError::Registry)?.into_inner();
        tools.extend(page.tools);
        page_token = page.next_page_token;
        if page_token.is_empty() || tools.len() >= MAX_TOOLS {
            return Ok(tools);
        }
    }
}

fn unusable(message: String) -> InventoryError {
    InventoryError::Unusable(outcome::error(
        common::ErrorCategory::Validation,
        "inventory_invalid",
        message,
    ))
}
