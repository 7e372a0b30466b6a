//! The references of definitions that cannot be resolved.

use std::{collections::BTreeSet, time::Duration};

use call_outcome::Violation;
use core_types::{LoadDiagnostic, Reference, ReferenceKind};
use grpc_kit::CallContext;
use tonic::Status;
use workflow_domain::load::load_with_source;
use workflow_domain::references::{may_come, references};

use crate::runner::Inner;

/// The time limit of the services with models and languages. Without their answer no reference is
/// missing.
const PATIENCE: Duration = Duration::from_secs(2);

/// The names in some definitions that cannot be resolved.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    tools: Vec<String>,
    models: Vec<String>,
    languages: Vec<String>,
    node_types: Vec<String>,
}

/// The references of a definition that cannot be resolved, by their severity.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// The tools without which the definition cannot work.
    pub(super) violations: Vec<Violation>,
    /// The names of documents that may be stored later.
    pub(super) findings: Vec<LoadDiagnostic>,
}

/// Returns every reference of a definition; none if it does not load.
pub(super) fn named(text: &str) -> Vec<Reference> {
    let (loaded, source) = load_with_source(text);
    let workflow = loaded.workflow.as_ref();
    workflow.map_or_else(Vec::new, |workflow| references(workflow, &source))
}

/// Looks up all references of definitions. A service is only called if one of them is its.
///
/// # Errors
/// The registry does not answer.
pub(super) async fn ask(
    inner: &Inner,
    context: &CallContext,
    named: &[Reference],
) -> Result<Unknown, Status> {
    let ids = |kind: ReferenceKind| {
        let of_kind = named.iter().filter(|reference| reference.kind == kind);
        let ids: BTreeSet<String> = of_kind.map(|reference| reference.id.clone()).collect();
        ids.into_iter().collect::<Vec<_>>()
    };
    let peers = inner.runner.peers(context);
    let tools = peers.unknown_tools(ids(ReferenceKind::Tool)).await?;
    let mut node_types = ids(ReferenceKind::NodeType);
    let named = node_types.iter().cloned().collect();
    let types = inner.library.node_types();
    let resolved = types.resolve(context.tenant(), named).await?;
    node_types.retain(|full_type| !resolved.node_types.contains_key(full_type));
    let context = context.clone().without_deadline().with_timeout(PATIENCE);
    let peers = inner.runner.peers(&context);
    let (models, languages) = tokio::join!(
        peers.unknown_models(ids(ReferenceKind::Model)),
        peers.unknown_languages(ids(ReferenceKind::Language)),
    );
    let unanswered = |error: Status| {
        tracing::debug!(%error, "what a definition names cannot be looked up");
        Vec::new()
    };
    Ok(Unknown {
        tools,
        models: models.unwrap_or_else(unanswered),
        languages: languages.unwrap_or_else(unanswered),
        node_types,
    })
}

impl Unknown {
    /// Returns the references in `named` that cannot be resolved.
    pub(super) fn among<'a>(&self, named: &'a [Reference]) -> impl Iterator<Item = &'a Reference> {
        named.iter().filter(|reference| match reference.kind {
            ReferenceKind::Tool => self.tools.contains(&reference.id),
            ReferenceKind::Model => self.models.contains(&reference.id),
            ReferenceKind::Language => self.languages.contains(&reference.id),
            ReferenceKind::NodeType => self.node_types.contains(&reference.id),
            _ => false,
        })
    }
}

impl Missing {
    /// Looks up the references of a definition, and decides which missing ones keep the definition
    /// from being stored.
    ///
    /// # Errors
    /// The registry does not answer.
    pub(super) async fn of(
        inner: &Inner,
        context: &CallContext,
        text: &str,
    ) -> Result<Self, Status> {
        let named = named(text);
        let unknown = ask(inner, context, &named).await?;
        let mut found = Self::default();
        for reference in unknown.among(&named) {
            match reference.kind == ReferenceKind::Tool && !may_come(&reference.id) {
                true => found.violations.push(unknown_tool(reference)),
                false => found.findings.push(reference.missing()),
            }
        }
        Ok(found)
    }
}

fn unknown_tool(reference: &Reference) -> Violation {
    let message = format!("there is no tool `{}`", reference.id);
    Violation::new(reference.path.clone(), "unknown_tool", message)
}
