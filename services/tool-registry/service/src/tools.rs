//! All tools: the catalogue, every workflow, every node type.

mod active_plugin;
mod backends;
mod change;
mod choices;
mod choose;
mod derived;
mod hook_chains;
mod not_active;
mod overrides;
mod put;
mod revision;
mod view;

use call_outcome::{Category, Failure, Violation, sentences};
use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicU16, Ordering},
};

use contracts::tavern::workflow::v1::GetToolChoiceRequest;
use core_types::{Clock, PerTenant, Tenant};
use documents::DocumentStore;
use grpc_kit::CallContext;
use tokio::sync::watch;
use tonic::Status;
use tool_domain::{
    availability::WorkflowTools,
    catalogue::{Catalogue, Reading},
    hook_point::HookPoint,
    plugin_node::node_type_of,
    tool::Tool,
};

use crate::{
    dispatch::{ScriptTerms, backend::Backends, runs::ChildRuns, sandbox::PackageSets},
    store::StoreError,
};
use hook_chains::bit_of;
use view::ToolsOfTenant;

pub use active_plugin::ActivePlugin;
pub use backends::PutBackend;
pub use change::{Change, ChangeError};
pub use choices::PluginChoices;
use choices::{SWITCHES_ID, Switches};
pub(crate) use choose::Switch;
pub use hook_chains::HookChains;
pub use not_active::NotActive;
pub use overrides::{Override, Overrides};
pub use put::PutTool;
pub use revision::Revision;
pub(crate) use view::ToolView;

/// The most tenants whose tools are in memory without being in use.
const MAX_TENANTS: usize = 256;

/// All tools of all tenants. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Tools {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Replaced as a whole by a change of plugins. Locked for the time of a pointer copy only.
    revision: RwLock<Arc<Revision>>,
    /// The points with hooks, and the overridden services.
    asked: watch::Sender<Asked>,
    has_hooks: AtomicU16,
    tenants: PerTenant<ToolsOfTenant>,
    store: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    runs: ChildRuns,
    backends: Backends,
    packages: PackageSets,
}

/// The points and services of other services at which plugins are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The points with hooks, as a bit for each.
    points: u16,
    /// The overridden services, sorted.
    pub(crate) overrides: Vec<String>,
}

/// A tool of a list.
#[derive(Debug)]
pub(crate) struct ListedTool {
    /// The tool.
    pub(crate) tool: Arc<Tool>,
    /// The reason for which it cannot be called for now; none if it can.
    pub(crate) inactive: Option<NotActive>,
}

impl From<Arc<Tool>> for ListedTool {
    fn from(tool: Arc<Tool>) -> Self {
        let inactive = None;
        Self { tool, inactive }
    }
}

/// The reason for which a tool was not found.
#[derive(Clone, Debug)]
pub enum Missing {
    /// No tool has this id.
    Unknown {
        /// Ids that may have been meant, the nearest first.
        suggestions: Vec<String>,
    },
    /// It exists, and its workflow or node cannot be a tool.
    Invalid(Vec<Violation>),
    /// It exists, and cannot be called for now, or existed before.
    NotActive(NotActive),
    /// The workflow service, which knows it, cannot be asked.
    Unavailable(Status),
}

impl Missing {
    /// Returns the failure of a call of `written`.
    pub fn into_failure(self, written: &str) -> Failure {
        match self {
            Self::Unknown { suggestions } => unknown_tool(written, suggestions),
            Self::Invalid(violations) => {
                let message = format!("{written} cannot be called: {}", sentences(&violations));
                let mut failure = Failure::new(Category::Validation, "tool_invalid", message);
                failure.violations = violations;
                failure
            }
            Self::NotActive(reason) => reason.into_failure(written),
            Self::Unavailable(status) => {
                tracing::warn!(status = %status, "the service that knows a tool cannot be asked");
                let message = format!(
                    "{written} cannot be looked up, because the service that knows it does not answer"
                );
                Failure::new(Category::Dependency, "tool_source_unavailable", message).retryable()
            }
        }
    }
}

fn unknown_tool(written: &str, suggestions: Vec<String>) -> Failure {
    let shown: String = written.chars().take(120).collect();
    let mut message = format!("Unknown tool '{shown}'");
    if let Some((first, others)) = suggestions.split_first() {
        message.push_str(&format!(", did you mean '{first}'"));
        for other in others {
            message.push_str(&format!(" or '{other}'"));
        }
        message.push('?');
    }
    let mut violation = Violation::new("", "unknown_tool", message.clone());
    violation.received = shown;
    violation.suggestions = suggestions;
    let mut failure = Failure::new(Category::Validation, "unknown_tool", message);
    failure.violations = vec![violation];
    failure
}

impl From<StoreError> for Missing {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(run_events::store_failure(&error).into_status())
    }
}

impl Shared {
    fn revision(&self) -> Arc<Revision> {
        let revision = self.revision.read();
        Arc::clone(&revision.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tools {
    /// Takes the tools of the platform and of plugins, and everything else that is needed.
    pub fn new(
        revision: Revision,
        store: Arc<dyn DocumentStore>,
        clock: Arc<dyn Clock>,
        runs: ChildRuns,
        (backends, packages): (Backends, PackageSets),
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                revision: RwLock::new(Arc::new(revision)),
                asked: watch::Sender::default(),
                has_hooks: AtomicU16::default(),
                tenants: PerTenant::new(MAX_TENANTS),
                store,
                clock,
                runs,
                backends,
                packages,
            }),
        }
    }

    /// Loads the tools and gRPC servers of the default tenant and the shared ones, so that one that no longer works is
    /// logged at the start. The tools of other tenants are loaded when they are used first.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn restore(&self) -> Result<(), StoreError> {
        self.view(Tenant::DEFAULT).await?;
        self.backends(Tenant::DEFAULT).await?;
        Ok(())
    }

    /// Returns the plugins with the tools that all tenants have, as they are now.
    pub fn revision(&self) -> Arc<Revision> {
        self.shared.revision()
    }

    /// Puts another revision in force. Calls under way keep the one with which they began.
    pub(crate) fn put_in_force(&self, mut revision: Revision) {
        let present = self.shared.revision.write();
        let mut present = present.unwrap_or_else(PoisonError::into_inner);
        revision.hooks = Arc::new(HookChains::of(&revision.plugins, &present.hooks));
        revision.overrides = Arc::new(Overrides::of(&revision.plugins));
        let asked = Asked {
            points: revision.hooks.bits(),
            overrides: revision.overrides.services().cloned().collect(),
        };
        *present = Arc::new(revision);
        self.shared.has_hooks.store(asked.points, Ordering::Release);
        self.shared.asked.send_if_modified(|before| {
            let is_other = *before != asked;
            *before = asked;
            is_other
        });
    }

    /// Whether a plugin in force has a hook at a point.
    pub(crate) fn has_hooks(&self, point: HookPoint) -> bool {
        self.shared.has_hooks.load(Ordering::Acquire) & bit_of(point) != 0
    }

    /// Returns a receiver that sees each change of the points with hooks and of the overridden services.
    pub(crate) fn asked(&self) -> watch::Receiver<Asked> {
        self.shared.asked.subscribe()
    }

    /// Begins to read the package sets, so that no call has to wait for them.
    pub(crate) fn read_package_sets(&self) {
        let packages = self.shared.packages.clone();
        tokio::spawn(async move { packages.current().await });
    }

    /// Drops the tools and gRPC servers of a tenant from the memory.
    pub(crate) fn forget(&self, tenant: Tenant) {
        self.shared.tenants.forget(tenant);
        self.shared.backends.forget(tenant);
    }

    /// Returns the catalogue of a tenant as it is now: the tools of all, its own, and the shared ones.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn catalogue(&self, tenant: Tenant) -> Result<Arc<Catalogue>, StoreError> {
        Ok(self.view(tenant).await?.catalogue)
    }

    /// Finds a tool of a tenant by a name as [`Catalogue::read`] reads it. Prompts, calls and explanations find it
    /// here.
    ///
    /// # Errors
    /// [`Missing`] is the reason.
    pub async fn find(&self, tenant: Tenant, written: &str) -> Result<Arc<Tool>, Missing> {
        self.view(tenant).await?.find(written).await
    }

    /// Finds a tool of a tenant as [`Tools::find`] does, with the terms on which it runs if it is a script of a plugin:
    /// those of the same revision.
    ///
    /// # Errors
    /// [`Missing`] is the reason.
    pub(crate) async fn find_with_terms(
        &self,
        tenant: Tenant,
        written: &str,
    ) -> Result<(Arc<Tool>, ScriptTerms), Missing> {
        let view = self.view(tenant).await?;
        let tool = view.find(written).await?;
        let plugin = view.revision.plugin_of(tool.origin());
        let terms = plugin.map(|plugin| plugin.terms(view.choices.values(plugin.name())));
        Ok((tool, terms.unwrap_or_default()))
    }

    /// Takes from the implementation of a tool of a stored package what its definition leaves to it; none if the
    /// implementation is not there.
    pub(crate) async fn complete(&self, tenant: Tenant, tool: &Arc<Tool>) -> Option<Arc<Tool>> {
        let view = self.view(tenant).await.ok()?;
        view.complete(tool).await.ok()
    }

    /// Returns the id of a tool of a tenant by its name, whether or not it can be called now.
    ///
    /// # Errors
    /// [`Missing`] is the reason.
    pub(crate) async fn id_of(&self, tenant: Tenant, written: &str) -> Result<String, Missing> {
        let view = self.view(tenant).await?;
        let name = match view.catalogue.read(written) {
            Reading::Tool(tool) => return Ok(tool.id().to_owned()),
            Reading::Derived(name) => name,
        };
        match view.find(written).await {
            Ok(tool) => Ok(tool.id().to_owned()),
            Err(Missing::NotActive(NotActive::ToolOff)) => Ok(name.into_owned()),
            Err(missing) => Err(missing),
        }
    }

    /// Returns the tools from which the models of a workflow may choose.
    ///
    /// # Errors
    /// The refusal of workflow-execution, or its status if it does not answer.
    pub async fn workflow_tools(
        &self,
        tenant: Tenant,
        workflow_id: &str,
        node_path: &str,
    ) -> Result<WorkflowTools, Status> {
        let request = GetToolChoiceRequest {
            workflow_id: workflow_id.to_owned(),
            node_path: node_path.to_owned(),
        };
        let mut workflows = self.shared.runs.client(&CallContext::of_tenant(tenant));
        let choice = workflows.get_tool_choice(request).await?;
        let choice = choice.into_inner();
        Ok(WorkflowTools {
            workflow_id: workflow_id.to_owned(),
            node_path: node_path.to_owned(),
            initial: choice.initial_tool_ids,
            listed: choice.listed_tool_ids,
            has_listing_nodes: choice.has_listing_nodes,
        })
    }

    /// Returns every tool of a tenant's catalogue and every workflow that it can run, sorted by id. A workflow that
    /// cannot be a tool is left out and logged.
    ///
    /// # Errors
    /// The status of the workflow service if it does not answer, or the store's failure.
    pub async fn list(&self, tenant: Tenant) -> Result<Vec<Arc<Tool>>, Status> {
        let listed = self.list_with_states(tenant).await?.into_iter();
        Ok(listed.map(|listed| listed.tool).collect())
    }

    /// Lists the tools as [`Tools::list`] does, each with the reason for which it cannot be called for now.
    ///
    /// # Errors
    /// As for [`Tools::list`].
    pub(crate) async fn list_with_states(&self, tenant: Tenant) -> Result<Vec<ListedTool>, Status> {
        let view = self.view(tenant).await;
        let view = view.map_err(|error| run_events::store_failure(&error).into_status())?;
        let mut tools = Vec::new();
        // Node types are tools that are named and not listed.
        let listed = |tool: &&Arc<Tool>| node_type_of(tool.id()).is_none();
        for tool in view.catalogue.tools().filter(listed) {
            match view.complete(tool).await {
                Ok(tool) => tools.push(ListedTool::from(tool)),
                // It is known by its name, so that a call of it fails with the reason.
                Err(Missing::NotActive(reason)) => tools.push(ListedTool {
                    tool: Arc::clone(tool),
                    inactive: Some(reason),
                }),
                Err(Missing::Unavailable(status)) => return Err(status),
                Err(missing) => {
                    let reason = missing.into_failure(tool.id()).message.clone();
                    tracing::warn!(tool = tool.id(), %tenant, reason, "a tool is not listed");
                }
            }
        }
        let workflows = view.workflow_tools().await?.into_iter();
        let workflows = workflows.filter(|tool| view.check_active(tool).is_ok());
        tools.extend(workflows.map(ListedTool::from));
        tools.sort_by(|a, b| a.tool.id().cmp(b.tool.id()));
        Ok(tools)
    }
}
