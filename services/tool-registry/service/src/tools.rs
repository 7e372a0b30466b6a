//! All tools: the catalogue, every workflow, every node type.

mod backends;
mod change;
mod derived;
mod put;

use call_outcome::{Category, Failure, Violation, sentences};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use contracts::tavern::workflow::v1::GetToolChoiceRequest;
use core_types::Clock;
use documents::DocumentStore;
use tonic::Status;
use tool_domain::{
    availability::WorkflowTools,
    catalogue::{Catalogue, Reading},
    definition::{Definition, Implementation},
    tool::{Origin, Tool},
};

use crate::dispatch::{backend::Backends, runs::ChildRuns};

pub use backends::PutBackend;
pub use change::{Change, ChangeError};
pub use put::PutTool;

/// The most derived tools that are kept compiled.
const MAX_KEPT: usize = 4_096;

/// All tools. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Tools {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Replaced as a whole by a change; a reader keeps the one that it has. Locked for the
    /// time of a pointer copy only.
    catalogue: RwLock<Arc<Catalogue>>,
    /// Held by one change at a time, over its write to the store.
    changing: tokio::sync::Mutex<()>,
    /// Tools that were derived, by id. An entry whose digest is no longer that of its source is made
    /// anew. Never held across an await.
    derived: Mutex<HashMap<String, (String, Arc<Tool>)>>,
    store: Arc<dyn DocumentStore>,
    clock: Arc<dyn Clock>,
    runs: ChildRuns,
    backends: Backends,
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

impl Tools {
    /// Takes the tools of the platform and of plugins, and everything else that is needed.
    pub fn new(
        catalogue: Catalogue,
        store: Arc<dyn DocumentStore>,
        clock: Arc<dyn Clock>,
        runs: ChildRuns,
        backends: Backends,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                catalogue: RwLock::new(Arc::new(catalogue)),
                changing: tokio::sync::Mutex::new(()),
                derived: Mutex::default(),
                store,
                clock,
                runs,
                backends,
            }),
        }
    }

    /// Returns the catalogue as it is now.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(
            &self
                .shared
                .catalogue
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Finds a tool by a name as [`Catalogue::read`] reads it. Prompts, calls and explanations find it here.
    ///
    /// # Errors
    /// [`Missing`] is the reason.
    pub async fn find(&self, written: &str) -> Result<Arc<Tool>, Missing> {
        let catalogue = self.catalogue();
        let name = match catalogue.read(written) {
            Reading::Tool(tool) => return self.complete(tool).await,
            Reading::Derived(name) => name,
        };
        let names = match self.shared.find_derived(&name).await? {
            derived::DerivedTool::Tool(tool) => return Ok(tool),
            derived::DerivedTool::Nothing { names } => names,
        };
        let suggestions = catalogue.nearest(written, names.iter().map(String::as_str));
        Err(Missing::Unknown { suggestions })
    }

    /// Returns the tools from which the models of a workflow may choose.
    ///
    /// # Errors
    /// The refusal of workflow-execution, or its status if it does not answer.
    pub async fn workflow_tools(
        &self,
        workflow_id: &str,
        node_path: &str,
    ) -> Result<WorkflowTools, Status> {
        let request = GetToolChoiceRequest {
            workflow_id: workflow_id.to_owned(),
            node_path: node_path.to_owned(),
        };
        let choice = self.shared.runs.client().get_tool_choice(request).await?;
        let choice = choice.into_inner();
        Ok(WorkflowTools {
            workflow_id: workflow_id.to_owned(),
            node_path: node_path.to_owned(),
            initial: choice.initial_tool_ids,
            listed: choice.listed_tool_ids,
            has_listing_nodes: choice.has_listing_nodes,
        })
    }

    /// Returns every tool of the platform, of plugins and of the operator, and every workflow,
    /// sorted by id. A workflow that cannot be a tool is left out and logged.
    ///
    /// # Errors
    /// The status of the workflow service if it does not answer.
    pub async fn list(&self) -> Result<Vec<Arc<Tool>>, Status> {
        let mut tools = Vec::new();
        for tool in self.catalogue().tools() {
            match self.complete(tool).await {
                Ok(tool) => tools.push(tool),
                Err(Missing::Unavailable(status)) => return Err(status),
                Err(missing) => {
                    let reason = missing.into_failure(tool.id()).message.clone();
                    tracing::warn!(tool = tool.id(), reason, "a tool is not listed");
                }
            }
        }
        tools.extend(self.shared.workflow_tools().await?);
        tools.sort_by(|a, b| a.id().cmp(b.id()));
        Ok(tools)
    }

    /// Takes from what a tool is bound to what its definition leaves to it: the parameters where it
    /// has none, and effects that it may not declare away.
    async fn complete(&self, tool: &Arc<Tool>) -> Result<Arc<Tool>, Missing> {
        let name = match tool.implementation() {
            Implementation::Workflow { workflow_id } => format!("workflow:{workflow_id}"),
            Implementation::Node { full_type, .. } => format!("node:{full_type}"),
            Implementation::Backend { service, method } => {
                let of_method = self.shared.backends.flags_of(service, method);
                // Of a method that says nothing of itself, only the operator may say more.
                let of_method = match tool.origin() {
                    Origin::Plugin(_) => of_method.unwrap_or_default(),
                    _ => of_method.unwrap_or(tool.flags()),
                };
                let backend = self.shared.backends.get(service);
                let etag = backend.as_ref().map_or("", |backend| &backend.etag);
                return self.shared.bound(tool, etag, |definition| {
                    definition.limit_flags(of_method);
                });
            }
            Implementation::Builtin(_)
            | Implementation::Script(_)
            | Implementation::Agent { .. }
            | Implementation::Question => {
                return Ok(Arc::clone(tool));
            }
        };
        let derived::DerivedTool::Tool(source) = self.shared.find_derived(&name).await? else {
            if tool.definition().parameters.is_some() && tool.flags().promise_nothing() {
                return Ok(Arc::clone(tool));
            }
            let message = format!("its implementation '{name}' does not exist");
            return Err(Missing::Invalid(vec![Violation::new(
                "/implementation",
                "not_found",
                message,
            )]));
        };
        self.shared.bound(tool, source.etag(), |definition| {
            if definition.parameters.is_none() {
                definition.take_interface(source.definition());
                if definition.description.is_empty() {
                    definition
                        .description
                        .clone_from(&source.definition().description);
                }
            }
            definition.limit_flags(source.flags());
        })
    }
}

impl Shared {
    /// Returns a tool completed from its implementation, of which `etag` is the digest.
    fn bound(
        &self,
        tool: &Arc<Tool>,
        etag: &str,
        complete: impl FnOnce(&mut Definition),
    ) -> Result<Arc<Tool>, Missing> {
        let digest = format!("{}/{etag}", tool.etag());
        let completed = self.kept(tool.id(), &digest, || {
            let mut definition = tool.definition().clone();
            complete(&mut definition);
            Ok((definition, tool.origin().clone(), tool.alias().to_owned()))
        })?;
        // Another tool may have taken the alias since.
        Ok(match completed.alias() == tool.alias() {
            true => completed,
            false => Arc::new(completed.with_alias(tool.alias().to_owned())),
        })
    }

    /// Returns the derived tool `id` if it was made from the source of this digest, or makes it.
    fn kept(
        &self,
        id: &str,
        source_digest: &str,
        make: impl FnOnce() -> Result<derived::Parts, Vec<Violation>>,
    ) -> Result<Arc<Tool>, Missing> {
        let lock = || self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((digest, tool)) = lock().get(id)
            && digest == source_digest
        {
            return Ok(Arc::clone(tool));
        }
        let (definition, origin, alias) = make().map_err(Missing::Invalid)?;
        let tool = Tool::new(definition, origin, alias).map_err(Missing::Invalid)?;
        let tool = Arc::new(tool.implemented_by(source_digest));
        let mut derived = lock();
        if derived.len() >= MAX_KEPT {
            derived.clear();
        }
        derived.insert(id.to_owned(), (source_digest.to_owned(), Arc::clone(&tool)));
        Ok(tool)
    }

    fn alias_of(&self, id: &str) -> String {
        let catalogue = self
            .catalogue
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        catalogue.alias_of(id)
    }
}
