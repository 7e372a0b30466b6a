//! All definitions: the files of the workflows directory, which belong to the default tenant, and put definitions,
//! which hide files of their ids.

mod kind;
mod node_types;
mod plans;

use call_outcome::Violation;
use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use core_types::{LoadDiagnostic, Tenant};
use documents::{ChangeError, DocumentParts, Documents, FileChanges, Known, Listed, Put};
use grpc_kit::Failure;

use crate::error::{Error, directory_failure, store_failure, workflow_invalid, workflow_not_found};
use workflow_domain::bundle::{Bundle, Children};
use workflow_domain::compile::compile_bundle;
use workflow_domain::flatten::references;
use workflow_domain::limits::{MAX_BUNDLE_BYTES, MAX_CHILDREN};
use workflow_domain::load::load;
use workflow_domain::node_type::Catalogue;
use workflow_domain::plan::Plan;
use workflow_domain::plugin_node::{self, PLUGIN_MISSING};

pub use kind::{Definition, InvalidFile, WorkflowKind};
pub use node_types::NodeTypes;
use plans::Plans;

/// A definition in force.
pub type KnownDefinition = Known<Definition>;

/// All definitions.
#[derive(Debug)]
pub struct Library {
    documents: Documents<WorkflowKind>,
    catalogue: Arc<Catalogue>,
    node_types: NodeTypes,
    plans: Plans,
}

/// The most ids that an unknown one is compared with.
const MOST_COMPARED: usize = 1_000;

impl Library {
    /// Reads every file of `directory`. A file that is not a valid workflow is logged and left out;
    /// an empty path is not a directory.
    ///
    /// # Errors
    /// A directory that cannot be listed, or a store that does not work.
    pub async fn open(
        directory: &Path,
        parts: DocumentParts,
        (catalogue, node_types): (Arc<Catalogue>, NodeTypes),
    ) -> Result<Self, Error> {
        if !directory.as_os_str().is_empty() {
            std::fs::read_dir(directory).map_err(|source| Error::Workflows {
                path: directory.to_owned(),
                source,
            })?;
        }
        let kind = WorkflowKind {
            catalogue: Arc::clone(&catalogue),
        };
        Ok(Self {
            documents: Documents::open(kind, directory, parts).await?,
            catalogue,
            node_types,
            plans: Plans::default(),
        })
    }

    /// Reads the directory again and returns the changes.
    ///
    /// # Errors
    /// A directory that cannot be listed; the definitions are as they were.
    pub async fn reload(&self) -> Result<FileChanges, Failure> {
        let reloaded = self.documents.reload().await;
        let reloaded = reloaded.map_err(|error| store_failure(&error))?;
        let failure = |error: io::Error| directory_failure(self.documents.directory(), &error);
        reloaded.map_err(failure)
    }

    /// Returns the node types of plugins.
    pub fn node_types(&self) -> &NodeTypes {
        &self.node_types
    }

    /// Returns the node types of the engine.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Returns a definition of a tenant, or a shared one.
    ///
    /// # Errors
    /// WORKFLOW_NOT_FOUND, or WORKFLOW_INVALID for a file that is not valid.
    pub async fn get(&self, tenant: Tenant, id: &str) -> Result<KnownDefinition, Failure> {
        if let Some(definition) = self.get_valid(tenant, id).await? {
            return Ok(definition);
        }
        match self.documents.invalid_file(tenant, id) {
            Some(InvalidFile(violations)) => Err(workflow_invalid("definition_json", &violations)),
            None => Err(self.not_found(tenant, id).await),
        }
    }

    /// Reports that no workflow of the tenant has this id, with similar ids.
    pub async fn not_found(&self, tenant: Tenant, id: &str) -> Failure {
        let known = self.documents.page(tenant, "", MOST_COMPARED);
        let (known, _) = known.await.unwrap_or_default();
        let ids: Vec<String> = known
            .iter()
            .map(|known| known.document.id.clone())
            .collect();
        workflow_not_found(id, &ids)
    }

    /// Returns a definition of a tenant, or a shared one, if it exists and is valid.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn get_valid(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<KnownDefinition>, Failure> {
        let known = self.documents.get(tenant, id).await;
        known.map_err(|error| store_failure(&error))
    }

    /// Returns a page of the list of a tenant's definitions and shared ones; files that are not valid are left out.
    ///
    /// # Errors
    /// A token of another list, or a store that does not work.
    pub async fn list(
        &self,
        tenant: Tenant,
        page_token: &str,
        page_size: i32,
    ) -> Result<Listed<Definition>, Failure> {
        let listed = self.documents.list(tenant, page_token, page_size);
        listed.await
    }

    /// Stores a definition of a tenant. Returns it, and whether the request was seen before.
    ///
    /// # Errors
    /// The reason for not storing it.
    pub async fn put(
        &self,
        tenant: Tenant,
        put: Put<'_>,
    ) -> Result<(KnownDefinition, bool), ChangeError<InvalidFile>> {
        self.documents.put(tenant, put).await
    }

    /// Deletes a definition that a tenant put.
    ///
    /// # Errors
    /// The reason for not deleting it.
    pub async fn delete(
        &self,
        tenant: Tenant,
        id: &str,
        etag: &str,
    ) -> Result<(), ChangeError<InvalidFile>> {
        self.documents.delete(tenant, id, etag).await
    }

    /// Returns a finding for each file of a tenant that is not valid, at most [`LoadDiagnostic::MAX`].
    pub fn left_out(&self, tenant: Tenant) -> Vec<LoadDiagnostic> {
        self.documents.left_out(tenant)
    }

    /// Puts a text together with the workflows of the tenant that it refers to, and with the node types of plugins.
    /// Missing ones, and those beyond the bounds, are left out, which are violations once the bundle is compiled.
    ///
    /// # Errors
    /// A store that does not work, or a registry that does not answer.
    pub async fn bundle(&self, tenant: Tenant, text: &Arc<str>) -> Result<Bundle, Failure> {
        let mut children = Children::new();
        let mut bytes = text.len();
        let mut unread = vec![Arc::clone(text)];
        let (mut named, mut parts) = (BTreeSet::new(), BTreeSet::new());
        while let Some(text) = unread.pop() {
            named.extend(node_types::named_in(&text));
            for (id, part) in referenced_by(&text) {
                // A workflow that is run by one node may be a part by another.
                if let Some(known) = children.get(&id) {
                    if part && parts.insert(id) {
                        unread.push(Arc::clone(known));
                    }
                    continue;
                }
                if children.len() >= MAX_CHILDREN {
                    continue;
                }
                let Some(child) = self.get_valid(tenant, &id).await? else {
                    continue;
                };
                bytes += child.document.text.len();
                if bytes > MAX_BUNDLE_BYTES {
                    break;
                }
                if part {
                    parts.insert(id.clone());
                    unread.push(Arc::clone(&child.document.text));
                }
                children.insert(id, Arc::clone(&child.document.text));
            }
        }
        Ok(Bundle {
            root: Arc::clone(text),
            children: Arc::new(children),
            node_types: self.node_types.resolve(tenant, named).await?.node_types,
        })
    }

    /// Compiles a bundle of a tenant, or finds its earlier plan.
    ///
    /// # Errors
    /// All problems of the bundle.
    pub async fn compile(
        &self,
        tenant: Tenant,
        bundle: &Bundle,
    ) -> Result<Arc<Plan>, Vec<Violation>> {
        let for_cache = (tenant, bundle.clone());
        if let Some(plan) = self.plans.get(&for_cache) {
            return Ok(plan);
        }
        let (bundle, catalogue) = (bundle.clone(), Arc::clone(&self.catalogue));
        // A large definition takes longer than other tasks should wait.
        let compiled =
            tokio::task::spawn_blocking(move || compile_bundle(&bundle, &catalogue)).await;
        let plan = compiled.unwrap_or_else(|_| {
            Err(vec![Violation::new(
                "",
                "internal",
                "internal error: the definition could not be checked; please report this",
            )])
        });
        match plan {
            Ok(plan) => Ok(self.plans.insert(for_cache, plan)),
            Err(mut violations) => {
                self.explain(tenant, &mut violations).await;
                Err(violations)
            }
        }
    }

    /// Checks that plugins in force bring the node types with which a run began. Returns the types of which they bring
    /// another version.
    ///
    /// # Errors
    /// PLUGIN_MISSING, or a registry that does not answer.
    pub(crate) async fn in_other_versions(
        &self,
        tenant: Tenant,
        node_types: &Children,
    ) -> Result<BTreeSet<String>, Failure> {
        let named = node_types.keys().cloned().collect();
        let resolved = self.node_types.resolve(tenant, named).await?;
        let in_force = &resolved.node_types;
        let missing = node_types
            .keys()
            .filter(|name| !in_force.contains_key(*name));
        let missing = missing.map(|name| plugin_node::missing(String::new(), name, None));
        let mut missing: Vec<Violation> = missing.collect();
        if !missing.is_empty() {
            resolved.explain(&mut missing);
            return Err(workflow_invalid("definition_json", &missing));
        }
        let changed = node_types
            .iter()
            .filter(|(name, text)| in_force.get(*name) != Some(text));
        Ok(changed.map(|(name, _)| name.clone()).collect())
    }

    /// States the reasons for which plugins are not in force in the violations by missing node types.
    pub(crate) async fn explain(&self, tenant: Tenant, violations: &mut [Violation]) {
        let missing = violations
            .iter()
            .filter(|found| found.code == PLUGIN_MISSING);
        let named = missing.map(|found| found.received.clone()).collect();
        // Without an answer the reasons are not known.
        if let Ok(resolved) = self.node_types.resolve(tenant, named).await {
            resolved.explain(violations);
        }
    }
}

/// Returns the ids of the workflows that a text refers to, and for each whether it becomes part of
/// the workflow.
fn referenced_by(text: &str) -> Vec<(String, bool)> {
    // Reading a large text costs more than finding that it has no references.
    if !text.contains("orkflowId") {
        return Vec::new();
    }
    let workflow = load(text).workflow;
    let ids = workflow.iter().flat_map(references);
    ids.map(|(id, part)| (id.to_owned(), part)).collect()
}
