//! The tools of one tenant: loaded when they are used first, and completed from their implementations.

use call_outcome::Violation;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use core_types::Tenant;
use grpc_kit::CallContext;
use tokio::sync::OnceCell;
use tool_domain::{
    catalogue::{AddError, Catalogue, Reading},
    definition::{self, Definition, Implementation},
    tool::{Origin, Tool},
};

use super::{Missing, NotActive, PluginChoices, Revision, Shared, Tools, choices};
use crate::dispatch::builtin;
use crate::store::{StoreError, tools_of};

/// The most derived tools of a tenant that are kept compiled.
const MAX_KEPT: usize = 4_096;

/// The tools of a tenant that are in memory.
#[derive(Debug, Default)]
pub(super) struct ToolsOfTenant {
    loaded: OnceCell<Loaded>,
    /// Held by one change at a time, over its write to the store.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Tools that were derived, by id. An entry whose digest is no longer that of its source is made
    /// anew. Never held across an await.
    derived: Mutex<HashMap<String, (String, Arc<Tool>)>>,
}

/// Catalogues that are replaced as a whole by a change; a reader keeps the one that it has. Locked for the time of a
/// pointer copy only.
#[derive(Debug)]
struct Loaded {
    /// The tools of all tenants and the tenant's own.
    own: RwLock<Own>,
    /// The tools of all tenants, the tenant's own and the shared ones; `None` until it is used.
    whole: RwLock<Option<Whole>>,
    /// The tenant's choices about plugins.
    choices: RwLock<Arc<PluginChoices>>,
}

/// The tools of a revision and the tenant's own.
#[derive(Debug)]
struct Own {
    revision: Arc<Revision>,
    catalogue: Arc<Catalogue>,
    /// The tenant's own tools whose ids tools of the revision have.
    left_out: Vec<Arc<Tool>>,
}

/// A catalogue, and those of which it was made.
#[derive(Clone, Debug)]
struct Whole {
    catalogue: Arc<Catalogue>,
    own: Arc<Catalogue>,
    system: Arc<Catalogue>,
}

/// The parts of a derived tool.
pub(super) type Parts = (Definition, Origin, String);

/// The result of a look-up of a derived tool.
pub(super) enum DerivedTool {
    Tool(Arc<Tool>),
    /// No such tool; `names` are the ids that exist.
    Nothing {
        names: Vec<String>,
    },
}

/// The tools of a tenant as they are at a time.
pub(crate) struct ToolView<'a> {
    pub(super) tenant: Tenant,
    /// The tools of all tenants, its own, and the shared ones.
    pub(crate) catalogue: Arc<Catalogue>,
    /// The plugins whose tools are in the catalogue.
    pub(crate) revision: Arc<Revision>,
    /// The tenant's choices about plugins.
    pub(crate) choices: Arc<PluginChoices>,
    pub(super) shared: &'a Shared,
    pub(super) of_tenant: Arc<ToolsOfTenant>,
}

impl Tools {
    /// Returns the tools of a tenant, loaded if they are not in memory.
    pub(crate) async fn view(&self, tenant: Tenant) -> Result<ToolView<'_>, StoreError> {
        let shared = &*self.shared;
        let of_tenant = shared.tenants.of(tenant);
        let loaded = of_tenant.loaded(tenant, shared).await?;
        let (revision, own) = loaded.own(shared);
        let catalogue = match tenant == Tenant::SYSTEM {
            true => own,
            false => {
                let system = shared.tenants.of(Tenant::SYSTEM);
                let (_, system) = system.loaded(Tenant::SYSTEM, shared).await?.own(shared);
                loaded.whole(own, system)
            }
        };
        let choices = loaded.choices();
        Ok(ToolView {
            tenant,
            catalogue,
            revision,
            choices,
            shared,
            of_tenant,
        })
    }
}

impl ToolsOfTenant {
    async fn loaded(&self, tenant: Tenant, shared: &Shared) -> Result<&Loaded, StoreError> {
        let load = || async move {
            let own = load(tenant, shared).await?;
            let choices = choices::load_choices(&*shared.store, tenant).await?;
            Ok(Loaded {
                own: RwLock::new(own),
                whole: RwLock::default(),
                choices: RwLock::new(Arc::new(choices)),
            })
        };
        self.loaded.get_or_try_init(load).await
    }

    /// Puts another catalogue, made from that of a revision by a change of one tool, in the place of the tenant's own.
    pub(super) fn replace(&self, catalogue: Catalogue, revision: &Arc<Revision>, id: &str) {
        if let Some(loaded) = self.loaded.get() {
            let mut own = loaded.own.write().unwrap_or_else(PoisonError::into_inner);
            own.left_out.retain(|tool| tool.id() != id);
            own.catalogue = Arc::new(catalogue);
            own.revision = Arc::clone(revision);
        }
    }

    /// Puts other choices about plugins in force.
    pub(super) fn choose(&self, choices: PluginChoices) {
        if let Some(loaded) = self.loaded.get() {
            let present = loaded.choices.write();
            *present.unwrap_or_else(PoisonError::into_inner) = Arc::new(choices);
        }
    }
}

impl Own {
    /// Returns the tenant's own tools with those of another revision.
    fn moved_to(&self, revision: Arc<Revision>) -> Self {
        let (mut catalogue, mut left_out) = revision.catalogue.with_registered_of(&self.catalogue);
        for tool in &self.left_out {
            let is_known = left_out.iter().any(|other| other.id() == tool.id());
            let definition = tool.definition().clone();
            if !is_known && catalogue.add(definition, Origin::Registered).is_err() {
                left_out.push(Arc::clone(tool));
            }
        }
        Self {
            revision,
            catalogue: Arc::new(catalogue),
            left_out,
        }
    }
}

impl Loaded {
    /// Returns the revision in force, and the own catalogue with its tools.
    fn own(&self, shared: &Shared) -> (Arc<Revision>, Arc<Catalogue>) {
        let revision = shared.revision();
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&own.revision, &revision) {
            return (revision, Arc::clone(&own.catalogue));
        }
        drop(own);
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        // Another one may be in force by now.
        let revision = shared.revision();
        if !Arc::ptr_eq(&own.revision, &revision) {
            *own = own.moved_to(Arc::clone(&revision));
        }
        (revision, Arc::clone(&own.catalogue))
    }

    fn choices(&self) -> Arc<PluginChoices> {
        let choices = self.choices.read();
        Arc::clone(&choices.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the own catalogue with the tools of `system` as shared ones.
    fn whole(&self, own: Arc<Catalogue>, system: Arc<Catalogue>) -> Arc<Catalogue> {
        let kept = self.whole.read().unwrap_or_else(PoisonError::into_inner);
        let of_both =
            |kept: &&Whole| Arc::ptr_eq(&kept.own, &own) && Arc::ptr_eq(&kept.system, &system);
        if let Some(whole) = kept.as_ref().filter(of_both) {
            return Arc::clone(&whole.catalogue);
        }
        drop(kept);
        let catalogue = Arc::new(own.sharing(&system));
        let whole = Whole {
            catalogue: Arc::clone(&catalogue),
            own,
            system,
        };
        *self.whole.write().unwrap_or_else(PoisonError::into_inner) = Some(whole);
        catalogue
    }
}

/// Loads the tools that were put for a tenant. A tool that no longer works is logged and left out; it stays in the
/// store.
async fn load(tenant: Tenant, shared: &Shared) -> Result<Own, StoreError> {
    let revision = shared.revision();
    let (mut catalogue, mut left_out) = ((*revision.catalogue).clone(), Vec::new());
    let stored = shared
        .store
        .page(tools_of(tenant), "", usize::MAX, usize::MAX);
    for row in stored.await? {
        let added = definition::read(&row.text)
            .map_err(AddError::Invalid)
            .and_then(|definition| match revision.catalogue.get(&row.id) {
                Some(other) => {
                    let alias = revision.catalogue.alias_of(&row.id);
                    let tool = Tool::new(definition, Origin::Registered, alias);
                    left_out.push(Arc::new(tool.map_err(AddError::Invalid)?));
                    Err(AddError::Taken(other.origin().clone()))
                }
                None => catalogue.add(definition, Origin::Registered),
            });
        if let Err(reason) = added {
            tracing::error!(tool = row.id, %tenant, reason = ?reason, "a stored tool is left out");
        }
    }
    Ok(Own {
        revision,
        catalogue: Arc::new(catalogue),
        left_out,
    })
}

impl ToolView<'_> {
    /// Returns the context of questions to other services.
    pub(super) fn context(&self) -> CallContext {
        CallContext::of_tenant(self.tenant)
    }

    /// Finds a tool by a name as [`Catalogue::read`] reads it.
    ///
    /// # Errors
    /// [`Missing`] is the reason.
    pub(crate) async fn find(&self, written: &str) -> Result<Arc<Tool>, Missing> {
        let name = match self.catalogue.read(written) {
            Reading::Tool(tool) => return self.complete(tool).await,
            Reading::Derived(name) => name,
        };
        let removed = self.removed(written).or_else(|| self.removed(&name));
        if let Some(plugin) = removed {
            return Err(Missing::NotActive(NotActive::Removed(plugin.to_owned())));
        }
        let names = match self.find_derived(&name).await? {
            DerivedTool::Tool(tool) => {
                self.check_active(&tool)?;
                return Ok(tool);
            }
            DerivedTool::Nothing { names } => names,
        };
        let names = names.iter().map(String::as_str);
        let suggestions = self.catalogue.nearest(written, names);
        Err(Missing::Unknown { suggestions })
    }

    /// Returns the catalogue without the shared tools, as changes see it.
    pub(super) fn own(&self) -> (Arc<Revision>, Arc<Catalogue>) {
        let loaded = self.of_tenant.loaded.get();
        let own = loaded.map(|loaded| loaded.own(self.shared));
        own.unwrap_or_else(|| {
            (
                Arc::clone(&self.revision),
                Arc::clone(&self.revision.catalogue),
            )
        })
    }

    /// Returns the plugin that brought a tool that was removed, by its id or its alias.
    fn removed(&self, written: &str) -> Option<&str> {
        let removed = &self.revision.removed;
        let by_alias = || {
            let mut all = removed.iter();
            let found = all.find(|(id, _)| self.catalogue.alias_of(id) == written);
            found.map(|(_, plugin)| plugin)
        };
        let plugin = removed.get(written).or_else(by_alias);
        plugin.map(String::as_str)
    }

    /// Checks that a tool can be called for now.
    pub(super) fn check_active(&self, tool: &Tool) -> Result<(), Missing> {
        let plugin = self.revision.plugin_of(tool.origin());
        match self
            .choices
            .refuses(tool.id(), plugin.map(|plugin| &**plugin))
        {
            Some(reason) => Err(Missing::NotActive(reason)),
            None => Ok(()),
        }
    }

    /// Takes from the implementation of a tool what its definition leaves to it: the parameters where it
    /// has none, and effects that it may not declare away.
    pub(super) async fn complete(&self, tool: &Arc<Tool>) -> Result<Arc<Tool>, Missing> {
        self.check_active(tool)?;
        let name = match tool.implementation() {
            Implementation::Workflow { workflow_id } => format!("workflow:{workflow_id}"),
            Implementation::Node { full_type, .. } => format!("node:{full_type}"),
            Implementation::Backend { service, method } => {
                let backends = &self.shared.backends;
                let backend = backends.of_tool(self.tenant, tool, service).await?;
                let backend = backend.as_ref();
                let of_method = backend.and_then(|backend| backend.flags_of(method));
                // Of a method that says nothing of itself, only a tool that was put may say more.
                let of_method = match tool.origin() {
                    Origin::Plugin(_) => of_method.unwrap_or_default(),
                    _ => of_method.unwrap_or(tool.flags()),
                };
                let etag = backend.map_or("", |backend| &backend.etag);
                return self.bound(tool, etag, |definition| {
                    definition.limit_flags(of_method);
                });
            }
            Implementation::Builtin(method) if builtin::runs_code(method) => {
                let Some((described, digest)) = self.shared.packages.described().await else {
                    return Ok(Arc::clone(tool));
                };
                return self.bound(tool, &digest, |definition| {
                    definition.description.push_str(&described);
                });
            }
            Implementation::Builtin(_)
            | Implementation::Script(_)
            | Implementation::Agent { .. }
            | Implementation::Question => {
                return Ok(Arc::clone(tool));
            }
        };
        let DerivedTool::Tool(source) = self.find_derived(&name).await? else {
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
        self.bound(tool, source.etag(), |definition| {
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
        // Another tool may have taken the alias since, or an own one the place of a shared one.
        let same = completed.alias() == tool.alias() && completed.is_shared() == tool.is_shared();
        Ok(match same {
            true => completed,
            false => {
                let completed = completed.with_alias(tool.alias().to_owned());
                Arc::new(completed.with_shared(tool.is_shared()))
            }
        })
    }

    /// Returns the derived tool `id` if it was made from the source of this digest, or makes it.
    pub(super) fn kept(
        &self,
        id: &str,
        source_digest: &str,
        make: impl FnOnce() -> Result<Parts, Vec<Violation>>,
    ) -> Result<Arc<Tool>, Missing> {
        let derived = &self.of_tenant.derived;
        let lock = || derived.lock().unwrap_or_else(PoisonError::into_inner);
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

    pub(super) fn alias_of(&self, id: &str) -> String {
        self.catalogue.alias_of(id)
    }
}
