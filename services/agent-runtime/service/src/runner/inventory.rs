//! The tools of an agent, as the registry has them now.

use std::collections::{BTreeSet, HashSet};

use agent_domain::{plan::Plan, spelling::HANDLE_TOOLS};
use call_catalogue::{Absent, Catalogue, RemovedTool};
use call_wire::{NamedTools, ToolList};
use contracts::tavern::{
    common::v1::{self as common, run_event::Kind},
    registry::v1 as registry,
};
use grpc_kit::Outbound;
use registry::tool_registry_service_client::ToolRegistryServiceClient;
use run_events::outcome;

/// The tools that a turn may call.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// The tools of the profile.
    plain: Catalogue,
    /// The same and the tools for handles, for a conversation with a handle.
    with_handles: Catalogue,
    /// Names in the profile that no tool has.
    pub(super) missing: Vec<String>,
}

impl Inventory {
    /// Returns the tools that the model may call once a handle was given, or before.
    pub(super) fn catalogue(&self, handle_given: bool) -> &Catalogue {
        match handle_given {
            true => &self.with_handles,
            false => &self.plain,
        }
    }

    /// Remarks on tools of the profile that do not exist.
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

/// The reason for which the tools cannot be read.
#[derive(Debug)]
pub(super) enum InventoryError {
    /// The registry failed or rejected the request.
    Registry(tonic::Status),
    /// A parser cannot distinguish the tools.
    Unusable(common::CallError),
}

/// The most ids in one request to the registry.
const MAX_BATCH: usize = 500;

/// The tools of an inventory as the registry has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    /// The profile's tools, by its names for them, and the tools for handles.
    pub(super) all: Vec<registry::Tool>,
    /// The ids of the tools that are included only for handles.
    pub(super) for_handles: Vec<String>,
    /// The ids of all tools of the registry.
    pub(super) known: Vec<String>,
    /// The tools that plugins brought and bring no more.
    pub(super) removed: Vec<RemovedTool>,
    /// Names in the profile that no tool has.
    pub(super) missing: Vec<String>,
}

impl Tools {
    /// Makes the catalogues. All other tools are known and not available, so that a call of them
    /// differs from a call of a tool that does not exist (rule N5).
    pub(super) fn inventory(self, plan: &Plan) -> Result<Inventory, InventoryError> {
        let tools = self.all.iter();
        let visible = tools.filter(|tool| !self.for_handles.contains(&tool.tool_id));
        let visible: Vec<registry::Tool> = visible.cloned().collect();
        Ok(Inventory {
            plain: self.catalogue_of(&visible, plan)?,
            with_handles: self.catalogue_of(&self.all, plan)?,
            missing: self.missing,
        })
    }

    /// Makes the catalogue in which `visible` may be called and every other known tool is not available. A tool that
    /// has the profile's name is also called by its id.
    fn catalogue_of(
        &self,
        visible: &[registry::Tool],
        plan: &Plan,
    ) -> Result<Catalogue, InventoryError> {
        let shown = visible.iter().map(|tool| tool.tool_id.as_str());
        let ids = shown
            .clone()
            .map(|name| (plan.tool_id(name).into_owned(), name.to_owned()));
        let mut names: Vec<(String, String)> = ids.filter(|(id, name)| id != name).collect();
        let shown: HashSet<&str> = shown
            .chain(names.iter().map(|(id, _)| id.as_str()))
            .collect();
        let hidden = self.known.iter().filter(|id| !shown.contains(id.as_str()));
        let hidden: BTreeSet<&String> = hidden.collect();
        let absent = Absent {
            hidden: hidden.into_iter().cloned().collect(),
            removed: self.removed.clone(),
        };
        let missing = self.missing.iter();
        names.extend(missing.map(|name| (name.clone(), plan.tool_id(name).into_owned())));
        call_wire::catalogue(visible, absent, &names)
            .map_err(|error| unusable(grpc_kit::failure::chain(&error)))
    }
}

/// Requests the tools of a turn from the registry: those of its plan that its principal may call.
pub(super) async fn fetch(
    registry: ToolRegistryServiceClient<Outbound>,
    plan: &Plan,
) -> Result<Inventory, InventoryError> {
    fetch_tools(registry, plan).await?.inventory(plan)
}

/// Requests the tools of a turn, and the ids of all tools, from the registry.
pub(super) async fn fetch_tools(
    registry: ToolRegistryServiceClient<Outbound>,
    plan: &Plan,
) -> Result<Tools, InventoryError> {
    let own = plan.inventory_ids();
    let asked = own.iter().cloned().chain(HANDLE_TOOLS.map(str::to_owned));
    let named = named(registry.clone(), &asked.collect::<Vec<_>>()).await?;
    let mut tools = Tools::default();
    for (id, mut tool) in named.tools {
        match own.iter().position(|own| *own == id) {
            Some(place) => spell(&mut tool, &plan.inventory[place], &id),
            None => tools.for_handles.push(tool.tool_id.clone()),
        }
        tools.known.push(tool.tool_id.clone());
        tools.all.push(tool);
    }
    let listed = plan.inventory.iter().zip(&own);
    let missing = listed.filter(|(_, id)| named.missing.contains(id));
    tools.missing = missing.map(|(name, _)| name.clone()).collect();
    let everything = list(registry).await?;
    let ids = everything.tools.into_iter().map(|tool| tool.tool_id);
    tools.known.extend(ids);
    tools.removed = everything.removed;
    Ok(tools)
}

/// Names a tool as the profile lists it, if only agents have that name for it (rule G307).
fn spell(tool: &mut registry::Tool, name: &str, id: &str) {
    if name != id {
        tool.tool_id = name.to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        tool.alias = name.replace(|c| !plain(c), "__");
    }
}

/// Returns the tools of these names that the principal may call, and the names that no tool has.
async fn named(
    mut registry: ToolRegistryServiceClient<Outbound>,
    names: &[String],
) -> Result<NamedTools, InventoryError> {
    let mut named = NamedTools::default();
    for names in names.chunks(MAX_BATCH) {
        let request = registry::BatchGetToolsRequest {
            tool_ids: names.to_vec(),
            permitted_only: true,
            ..Default::default()
        };
        let response = registry.batch_get_tools(request).await;
        named.add(
            names,
            response.map_err(InventoryError::Registry)?.into_inner(),
        );
    }
    Ok(named)
}

/// Lists every tool.
async fn list(registry: ToolRegistryServiceClient<Outbound>) -> Result<ToolList, InventoryError> {
    let page = |request| {
        let mut registry = registry.clone();
        async move { Ok(registry.list_tools(request).await?.into_inner()) }
    };
    ToolList::read(page).await.map_err(InventoryError::Registry)
}

fn unusable(message: String) -> InventoryError {
    InventoryError::Unusable(outcome::error(
        common::ErrorCategory::Validation,
        "inventory_invalid",
        message,
    ))
}
