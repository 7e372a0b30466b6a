//! Adding and deleting tools.

use call_outcome::Violation;
use std::sync::Arc;

use core_types::Tenant;
use documents::Request;
use serde_json::{Map, Value};

use super::{
    Change, ChangeError, Missing, Tools,
    change::is_repeated,
    view::{DerivedTool, ToolView},
};
use crate::store::{StoreError, tools_of};
use tool_domain::{
    catalogue::AddError,
    definition::{self, Definition, Implementation},
    diagnostic::Diagnostic,
    tool::{Origin, Tool},
};

/// A tool that was added.
#[derive(Clone, Debug)]
pub struct PutTool {
    /// The tool as the request defines it.
    pub tool: Arc<Tool>,
    /// That another id differs from its own in letter case only.
    pub case_twin: Option<Diagnostic>,
    /// Whether the request was repeated.
    pub replayed: bool,
}

impl Tools {
    /// Adds a tool of a tenant, or replaces one.
    ///
    /// # Errors
    /// [`ChangeError`] is the reason; the catalogue is unchanged then.
    pub async fn put_tool(
        &self,
        tenant: Tenant,
        text: &str,
        change: &Change,
    ) -> Result<PutTool, ChangeError> {
        let definition = definition::read(text).map_err(ChangeError::Invalid)?;
        let view = self.view(tenant).await?;
        let violations = view.check_implementation(&definition).await?;
        if !violations.is_empty() {
            return Err(ChangeError::Invalid(violations));
        }
        let request = change.request("PutTool");
        let of_tenant = self.shared.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        // Another change may have come before.
        let view = self.view(tenant).await?;
        let replayed = self.is_repeated(tenant, request).await?;
        let (revision, catalogue) = view.own();
        let id = definition.id.to_string();
        let case_twin = catalogue.case_twin(&id).map(|twin| {
            let message =
                format!("the id differs from '{twin}' in letter case only; consider another id");
            Diagnostic::warning("/id", "case_twin", message)
        });
        let present = catalogue.get(&id);
        let unchanged = present.is_some_and(|tool| tool.definition() == &definition);
        let (next, tool) = catalogue
            .with(definition, Origin::Registered)
            .map_err(|error| match error {
                AddError::Taken(origin) => ChangeError::NotOwned(origin),
                AddError::Invalid(violations) => ChangeError::Invalid(violations),
            })?;
        // A repeat finds its own definition in place, whose etag is no longer the one it names.
        if !unchanged && !replayed {
            view.check_etag(change, present).await?;
        }
        let tool = view.complete(&tool).await.unwrap_or(tool);
        if !change.validate_only && !replayed {
            let (store, now) = (&self.shared.store, self.shared.clock.now());
            let seen = store
                .replace(tools_of(tenant), &id, text, request, now)
                .await?;
            is_repeated(&seen)?;
            of_tenant.replace(next, &revision, &id);
        }
        Ok(PutTool {
            tool,
            case_twin,
            replayed,
        })
    }

    /// Deletes a tool of a tenant. Returns whether the request was repeated.
    ///
    /// # Errors
    /// [`ChangeError`] is the reason; the catalogue is unchanged then.
    pub async fn delete_tool(
        &self,
        tenant: Tenant,
        id: &str,
        change: &Change,
    ) -> Result<bool, ChangeError> {
        let request = change.request("DeleteTool");
        let of_tenant = self.shared.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        let view = self.view(tenant).await?;
        if self.is_repeated(tenant, request).await? {
            return Ok(true);
        }
        let (revision, catalogue) = view.own();
        let present = catalogue.get(id);
        let origin = match present {
            Some(tool) => tool.origin().clone(),
            None if id.starts_with("workflow:") => Origin::Workflow,
            None if id.starts_with("node:") => Origin::Node,
            None => Origin::Registered,
        };
        if origin != Origin::Registered {
            return Err(ChangeError::NotOwned(origin));
        }
        if present.is_some() {
            view.check_etag(change, present).await?;
        }
        // A tool that no longer works is in the store only.
        let (store, now) = (&self.shared.store, self.shared.clock.now());
        if !store.delete(tools_of(tenant), id, request, now).await? {
            return Err(match view.catalogue.get(id) {
                Some(_) => ChangeError::IsShared,
                None => ChangeError::NotFound,
            });
        }
        of_tenant.replace(catalogue.without(id), &revision, id);
        Ok(false)
    }

    /// Returns whether a request of a tenant was carried out before.
    pub(super) async fn is_repeated(
        &self,
        tenant: Tenant,
        request: Option<Request<'_>>,
    ) -> Result<bool, ChangeError> {
        match request {
            Some(request) => is_repeated(&self.shared.store.seen(tenant, request).await?),
            None => Ok(false),
        }
    }
}

impl ToolView<'_> {
    /// Returns the findings about the binding of a tool: a target that does not exist now, or a
    /// pinned configuration that its node rejects or does not read. Returns none if the service
    /// does not answer.
    pub(crate) async fn findings(&self, definition: &Definition) -> Vec<Diagnostic> {
        let Some(reference) = definition.reference() else {
            return Vec::new();
        };
        let missing = || {
            let found = reference.missing();
            vec![Diagnostic::warning(found.path, found.code, found.message)]
        };
        let id = reference.id.as_str();
        let source = match &definition.implementation {
            Implementation::Backend { service, method } => {
                return match self.check_method(service, method).await {
                    Ok(Some(_)) => missing(),
                    _ => Vec::new(),
                };
            }
            Implementation::Node { .. } => format!("node:{id}"),
            _ => format!("workflow:{id}"),
        };
        let source = match self.find_derived(&source).await {
            Ok(DerivedTool::Tool(source)) => source,
            Ok(DerivedTool::Nothing { .. }) => return missing(),
            Err(_) => return Vec::new(),
        };
        match (&definition.implementation, source.implementation().node()) {
            (Implementation::Node { config, .. }, Some(node)) => {
                let wrong = node.problems(config);
                let wrong = wrong.iter().map(Diagnostic::from);
                wrong.chain(node.unread(config)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Refuses an etag with which the tool is not shown; a change without an etag needs no neighbour.
    async fn check_etag(
        &self,
        change: &Change,
        present: Option<&Arc<Tool>>,
    ) -> Result<(), ChangeError> {
        let stored = match present {
            Some(tool) if !change.etag.is_empty() => {
                let complete = self.complete(tool).await;
                complete.as_ref().unwrap_or(tool).etag().to_owned()
            }
            _ => String::new(),
        };
        change.check_etag(&stored)
    }

    /// Returns the violation of a tool that names an unknown server or method.
    async fn check_method(
        &self,
        service: &str,
        method: &str,
    ) -> Result<Option<Violation>, StoreError> {
        let backends = &self.shared.backends;
        backends.check(self.tenant, service, method).await
    }

    /// Returns the violations in the implementation of a tool that is put.
    async fn check_implementation(
        &self,
        definition: &Definition,
    ) -> Result<Vec<Violation>, ChangeError> {
        let wrong = match &definition.implementation {
            Implementation::Script(_) => Some(Violation::new(
                "/implementation/type",
                "script_without_plugin",
                "a script tool comes with a plugin, which brings the script's files; put it into one",
            )),
            Implementation::Backend { service, method } => {
                self.check_method(service, method).await?
            }
            Implementation::Node {
                full_type, config, ..
            } => {
                return self.check_node(full_type, config).await;
            }
            // A workflow may be stored later; until then a diagnostic reports that it is missing.
            Implementation::Workflow { .. }
            | Implementation::Builtin(_)
            | Implementation::Agent { .. }
            | Implementation::Question => None,
        };
        Ok(wrong.into_iter().collect())
    }

    async fn check_node(
        &self,
        full_type: &str,
        pinned: &Map<String, Value>,
    ) -> Result<Vec<Violation>, ChangeError> {
        match self.find_derived(&format!("node:{full_type}")).await {
            Ok(DerivedTool::Tool(tool)) => {
                let node = tool.implementation().node();
                Ok(node.map_or_else(Vec::new, |node| node.problems(pinned)))
            }
            Ok(DerivedTool::Nothing { names }) => {
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
                Ok(vec![unknown])
            }
            Err(Missing::Unavailable(status)) => Err(ChangeError::Unavailable(status)),
            Err(missing) => {
                let reason = missing.into_failure(full_type).message.clone();
                Ok(vec![Violation::new(
                    "/implementation/nodeType",
                    "tool_invalid",
                    reason,
                )])
            }
        }
    }
}
