//! The references of documents that cannot be resolved: looked up at the neighbours when a document
//! is stored and when documents are listed.
//!
//! Neighbours read single documents of this service to answer, so a single document is returned
//! without calling them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use agent_domain::{deliberation, profile::Profile};
use agent_store::profiles::Profiles;
use contracts::tavern::{
    registry::v1::BatchGetToolsRequest, workflow::v1::BatchGetWorkflowsRequest,
};
use core_types::{LoadDiagnostic, Reference, ReferenceKind, Tenant};
use grpc_kit::{CallContext, Failure};
use model_client::Models;
use serde_json::Value;

use crate::{knowledge_override::KnowledgeBases, peers::Peers};

/// The time limit of a neighbour. Without its answer no reference is missing.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most tools in one request to the registry.
const MAX_TOOLS: usize = 500;
/// The most workflows in one request to workflow-execution.
const MAX_WORKFLOWS: usize = 100;

/// All sources that documents can refer to.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The services that have tools and workflows.
    pub peers: Peers,
    /// The models of the settings.
    pub models: Models,
    /// The name of the default model of profiles; may be empty.
    pub default_model: String,
    /// The profiles.
    pub profiles: Profiles,
    /// The knowledge bases.
    pub knowledge: KnowledgeBases,
}

/// The neighbours' answers about the names in some documents.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    missing_tools: BTreeSet<String>,
    missing_profiles: BTreeSet<String>,
    /// Whether a backend has the knowledge bases.
    backend_has_knowledge: bool,
    /// The definitions of workflows; none for a missing one.
    workflows: BTreeMap<String, Option<Value>>,
}

impl Surroundings {
    /// Looks up the references that this service resolves itself, in a tenant.
    pub(super) async fn own(&self, tenant: Tenant, named: &[Reference]) -> Neighbours {
        let mut found = Neighbours {
            backend_has_knowledge: self.knowledge.of_backend.may_be_there(),
            ..Neighbours::default()
        };
        let profiles = named.iter();
        for reference in profiles.filter(|named| named.kind == ReferenceKind::Profile) {
            // If the storage does not work, no reference is missing.
            let known = self.profiles.get(tenant, &reference.id).await;
            if known.is_ok_and(|known| known.is_none()) {
                found.missing_profiles.insert(reference.id.clone());
            }
        }
        found
    }

    /// Looks up all references of documents at the neighbours.
    pub(super) async fn ask(&self, context: &CallContext, named: &[Reference]) -> Neighbours {
        let ids = |kind: ReferenceKind| {
            let of_kind = named.iter().filter(|reference| reference.kind == kind);
            let ids: BTreeSet<String> = of_kind.map(|reference| reference.id.clone()).collect();
            ids.into_iter().collect::<Vec<_>>()
        };
        let tools = ids(ReferenceKind::Tool);
        let workflows = ids(ReferenceKind::Workflow);
        let tenant = context.tenant();
        let context = context.clone().without_deadline().with_timeout(PATIENCE);
        let of_backend = async {
            let mut named = named.iter();
            named.any(|named| named.kind == ReferenceKind::Knowledge)
                && self.knowledge.of_backend.is_there(&context).await
        };
        let (missing_tools, workflows, backend_has_knowledge) = tokio::join!(
            self.missing_tools(&context, &tools),
            self.workflows(&context, &workflows),
            of_backend
        );
        Neighbours {
            missing_tools,
            workflows,
            backend_has_knowledge,
            ..self.own(tenant, named).await
        }
    }

    /// Returns a finding for each reference that cannot be resolved in a tenant.
    pub(super) fn missing(
        &self,
        tenant: Tenant,
        named: &[Reference],
        neighbours: &Neighbours,
    ) -> Vec<LoadDiagnostic> {
        let is_missing = |reference: &&Reference| {
            let id = reference.id.as_str();
            match reference.kind {
                ReferenceKind::Tool => neighbours.missing_tools.contains(id),
                ReferenceKind::Workflow => neighbours.workflows.get(id) == Some(&None),
                ReferenceKind::Model if id.is_empty() => {
                    self.models.get(&self.default_model).is_none()
                }
                ReferenceKind::Model => self.models.get(id).is_none(),
                ReferenceKind::Profile => neighbours.missing_profiles.contains(id),
                ReferenceKind::Knowledge => {
                    !neighbours.backend_has_knowledge && !self.knowledge.own.is_known(tenant, id)
                }
                ReferenceKind::Scene
                | ReferenceKind::Language
                | ReferenceKind::Backend
                | ReferenceKind::NodeType => false,
            }
        };
        let missing = named.iter().filter(is_missing);
        missing.map(Reference::missing).collect()
    }

    async fn missing_tools(&self, context: &CallContext, ids: &[String]) -> BTreeSet<String> {
        let mut missing = BTreeSet::new();
        for ids in ids.chunks(MAX_TOOLS) {
            let request = BatchGetToolsRequest {
                tool_ids: ids.to_vec(),
                ..BatchGetToolsRequest::default()
            };
            match self.peers.tools(context).batch_get_tools(request).await {
                Ok(found) => missing.extend(found.into_inner().missing_tool_ids),
                Err(error) => tracing::debug!(%error, "the tools of documents cannot be looked up"),
            }
        }
        missing
    }

    async fn workflows(
        &self,
        context: &CallContext,
        ids: &[String],
    ) -> BTreeMap<String, Option<Value>> {
        let mut all = BTreeMap::new();
        for ids in ids.chunks(MAX_WORKFLOWS) {
            let request = BatchGetWorkflowsRequest {
                workflow_ids: ids.to_vec(),
            };
            let mut workflows = self.peers.workflows(context);
            match workflows.batch_get_workflows(request).await {
                Ok(found) => {
                    let found = found.into_inner();
                    all.extend(found.missing_workflow_ids.into_iter().map(|id| (id, None)));
                    all.extend(found.workflows.into_iter().map(|workflow| {
                        let definition = serde_json::from_str(&workflow.definition_json);
                        (workflow.workflow_id, definition.ok())
                    }));
                }
                Err(error) => {
                    tracing::debug!(%error, "the workflows of documents cannot be looked up");
                }
            }
        }
        all
    }
}

impl Neighbours {
    /// Rejects a profile whose workflow exists and cannot deliberate (rule G201).
    ///
    /// # Errors
    /// INVALID_FIELDS.
    pub(super) fn check_deliberation(&self, profile: &Profile, field: &str) -> Result<(), Failure> {
        let mut failure = Failure::invalid_fields();
        for problem in self.of_deliberation(profile) {
            failure.add_violation(format!("{field}{}", problem.path), problem.message);
        }
        match failure.is_empty() {
            true => Ok(()),
            false => Err(failure),
        }
    }

    /// Returns the reasons for which the workflow of a profile cannot deliberate.
    pub(super) fn of_deliberation(&self, profile: &Profile) -> Vec<LoadDiagnostic> {
        let id = profile.deliberation.as_ref();
        let definition = id.and_then(|id| self.workflows.get(id)?.as_ref());
        let problems = definition.map(deliberation::problems).unwrap_or_default();
        let findings = problems.into_iter().map(|problem| {
            let id = id.map_or("", String::as_str);
            let message = format!("the workflow `{id}` cannot deliberate: {problem}");
            LoadDiagnostic::not_supported("/core_deliberation_workflow_id", message)
        });
        findings.collect()
    }
}
