//! Registering tools and gRPC servers.

use std::sync::{Arc, PoisonError};

use run_log::Hash;

use tonic::Status;

use super::{Missing, Tools, derived::Found};
use crate::{
    dispatch::backend::BackendError,
    domain::{
        catalogue::AddError,
        definition::{self, Definition, Implementation},
        tool::{Origin, Tool},
        violation::Violation,
    },
    store::{BackendRow, RequestRow, StoreError, ToolRow},
};

/// Why something was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The definition is wrong.
    #[error("the definition is wrong")]
    Invalid(Vec<Violation>),
    /// The id belongs to a tool that is not the operator's.
    #[error("the id belongs to a tool of {0}")]
    Taken(Origin),
    /// The etag is not the present one.
    #[error("the etag is not the present one")]
    EtagMismatch {
        /// The present one; empty if there is no such tool.
        present: String,
    },
    /// The gRPC server cannot be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The workflow service, which knows what the tool is bound to, cannot be asked.
    #[error("the workflow service cannot be asked")]
    Unavailable(Status),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a caller says beside the definition itself.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The caller's name for the request; empty if it is never repeated.
    pub request_id: String,
    /// The digest of the request.
    pub body: Option<Hash>,
    /// The etag of the definition to replace; empty replaces whatever is there.
    pub etag: String,
    /// Checks and changes nothing.
    pub validate_only: bool,
}

impl Request {
    fn row(&self, method: &'static str) -> Option<RequestRow> {
        let body = self.body.filter(|_| !self.request_id.is_empty())?;
        Some(RequestRow {
            method,
            request_id: self.request_id.clone(),
            body_hash: body.to_string(),
        })
    }
}

/// A tool that was registered, with remarks.
#[derive(Clone, Debug)]
pub struct Registered {
    /// The tool.
    pub tool: Arc<Tool>,
    /// The remarks.
    pub warnings: Vec<String>,
}

impl Tools {
    /// Adds a tool of the operator, or replaces one.
    ///
    /// # Errors
    /// [`RegisterError`] says why not; nothing has changed then.
    pub async fn register(
        &self,
        text: &str,
        request: &Request,
    ) -> Result<Registered, RegisterError> {
        let definition = definition::read(text).map_err(RegisterError::Invalid)?;
        let violations = self.check_implementation(&definition).await?;
        if !violations.is_empty() {
            return Err(RegisterError::Invalid(violations));
        }
        let _registering = self.shared.registering.lock().await;
        let catalogue = self.catalogue();
        let id = definition.id.to_string();
        let mut warnings = Vec::new();
        if let Some(twin) = catalogue.case_twin(&id) {
            warnings.push(format!(
                "the id differs from '{twin}' in letter case only; consider another id"
            ));
        }
        let present = catalogue.find(&id).filter(|tool| tool.id() == id);
        let present_etag = present
            .map(|tool| tool.etag().to_owned())
            .unwrap_or_default();
        let unchanged = present.is_some_and(|tool| tool.definition() == &definition);
        let (next, tool) = catalogue
            .with(definition, Origin::Registered)
            .map_err(|error| match error {
                AddError::Taken(origin) => RegisterError::Taken(origin),
                AddError::Invalid(violations) => RegisterError::Invalid(violations),
            })?;
        // A repeat finds its own definition in place, whose etag is no longer the one it names.
        if !request.etag.is_empty() && request.etag != present_etag && !unchanged {
            return Err(RegisterError::EtagMismatch {
                present: present_etag,
            });
        }
        let tool = self.complete(&tool).await.unwrap_or(tool);
        let found = tool.definition().diagnostics.iter();
        warnings.extend(found.map(|each| each.message.clone()));
        if request.validate_only {
            return Ok(Registered { tool, warnings });
        }
        let row = ToolRow {
            tool_id: id,
            definition_json: text.to_owned(),
        };
        self.shared
            .store
            .put_tool(&row, request.row("RegisterTool").as_ref())
            .await?;
        *self
            .shared
            .catalogue
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(Registered { tool, warnings })
    }

    /// Names a gRPC server and returns the methods that it offers.
    ///
    /// # Errors
    /// [`RegisterError`] says why not; nothing has changed then.
    pub async fn register_backend(
        &self,
        name: &str,
        endpoint: &str,
        request: &Request,
    ) -> Result<Vec<String>, RegisterError> {
        let backend = self.shared.backends.discover(name, endpoint).await?;
        let methods = backend.methods();
        let row = BackendRow {
            name: backend.name.clone(),
            endpoint: backend.endpoint.clone(),
            descriptors: backend.descriptors.clone(),
        };
        let _registering = self.shared.registering.lock().await;
        self.shared
            .store
            .put_backend(&row, request.row("RegisterBackend").as_ref())
            .await?;
        self.shared.backends.put(backend);
        Ok(methods)
    }

    /// Takes what was registered before the last restart. What no longer works is logged and left
    /// out; it stays in the store.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn restore(&self) -> Result<(), StoreError> {
        for row in self.shared.store.backends().await? {
            let known = self
                .shared
                .backends
                .known(&row.name, &row.endpoint, row.descriptors);
            match known {
                Ok(backend) => self.shared.backends.put(backend),
                Err(error) => {
                    tracing::error!(backend = row.name, error = %error, "a stored gRPC server is left out");
                }
            }
        }
        let mut catalogue = (*self.catalogue()).clone();
        for row in self.shared.store.tools().await? {
            let added = definition::read(&row.definition_json)
                .map_err(AddError::Invalid)
                .and_then(|definition| catalogue.with(definition, Origin::Registered));
            match added {
                Ok((next, _)) => catalogue = next,
                Err(reason) => {
                    tracing::error!(tool = row.tool_id, reason = ?reason, "a stored tool is left out");
                }
            }
        }
        *self
            .shared
            .catalogue
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(catalogue);
        Ok(())
    }

    /// Returns what is wrong with how a registered tool is carried out.
    async fn check_implementation(
        &self,
        definition: &Definition,
    ) -> Result<Vec<Violation>, RegisterError> {
        let wrong = match &definition.implementation {
            Implementation::Script(_) => Some(Violation::new(
                "/implementation/type",
                "script_without_plugin",
                "a script tool comes with a plugin, which brings the script's files; put it into one",
            )),
            Implementation::Backend { service, method } => {
                self.shared.backends.check(service, method)
            }
            Implementation::Node { full_type, .. } => self.check_node_type(full_type).await?,
            // A workflow may be stored later; until then the tool says that it is not there.
            Implementation::Workflow { .. } | Implementation::Builtin(_) => None,
        };
        Ok(wrong.into_iter().collect())
    }

    async fn check_node_type(&self, full_type: &str) -> Result<Option<Violation>, RegisterError> {
        match self.shared.find_derived(&format!("node:{full_type}")).await {
            Ok(Found::Tool(_)) => Ok(None),
            Ok(Found::Nothing { names }) => {
                let names = names.iter().filter_map(|name| name.strip_prefix("node:"));
                let near = json_schema::nearest_names(full_type, names);
                let hint = match near.as_slice() {
                    [] => String::new(),
                    near => format!(", did you mean {}?", near.join(" or ")),
                };
                let message = format!("there is no node type '{full_type}'{hint}");
                let mut unknown =
                    Violation::new("/implementation/nodeType", "unknown_node_type", message);
                unknown.suggestions = near;
                Ok(Some(unknown))
            }
            Err(Missing::Unavailable(status)) => Err(RegisterError::Unavailable(status)),
            Err(missing) => {
                let reason = missing.into_failure(full_type).message.clone();
                Ok(Some(Violation::new(
                    "/implementation/nodeType",
                    "tool_invalid",
                    reason,
                )))
            }
        }
    }
}
