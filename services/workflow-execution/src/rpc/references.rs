//! Whether what a definition names is there.

use std::time::Duration;

use call_outcome::Violation;
use core_types::{LoadDiagnostic, Reference, ReferenceKind};
use grpc_kit::CallContext;
use tonic::Status;
use workflow_domain::load::load_with_source;
use workflow_domain::references::{may_come, references};

use crate::runner::Inner;

/// How long the services that have models and languages may take. Without their answer nothing is missing.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a definition names and is not there.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// The tools by which the definition cannot work.
    pub(super) violations: Vec<Violation>,
    /// What may come later.
    pub(super) findings: Vec<LoadDiagnostic>,
}

/// Finds what a definition names and is not there. A service is asked only about definitions that name
/// something of its.
///
/// # Errors
/// The registry does not answer.
pub(super) async fn missing(inner: &Inner, text: &str) -> Result<Vec<Reference>, Status> {
    let (loaded, source) = load_with_source(text);
    let Some(workflow) = loaded.workflow else {
        return Ok(Vec::new());
    };
    let named = references(&workflow, &source);
    let ids = |kind: ReferenceKind| {
        let of_kind = named.iter().filter(|reference| reference.kind == kind);
        of_kind.map(|reference| reference.id.clone()).collect()
    };
    let tools = inner.runner.unknown_tools(ids(ReferenceKind::Tool)).await?;
    let context = CallContext::current();
    let context = CallContext::new(context.path().clone()).with_timeout(PATIENCE);
    let (models, languages) = context
        .scope(async {
            tokio::join!(
                inner.runner.unknown_models(ids(ReferenceKind::Model)),
                inner.runner.unknown_languages(ids(ReferenceKind::Language)),
            )
        })
        .await;
    let unanswered = |error: Status| {
        tracing::debug!(%error, "what a definition names cannot be looked up");
        Vec::new()
    };
    let models = models.unwrap_or_else(unanswered);
    let languages = languages.unwrap_or_else(unanswered);
    let is_missing = |reference: &&Reference| match reference.kind {
        ReferenceKind::Tool => tools.contains(&reference.id),
        ReferenceKind::Model => models.contains(&reference.id),
        ReferenceKind::Language => languages.contains(&reference.id),
        _ => false,
    };
    Ok(named.iter().filter(is_missing).cloned().collect())
}

impl Missing {
    /// Decides what keeps a definition from being stored.
    pub(super) fn of(missing: &[Reference]) -> Self {
        let mut found = Self::default();
        for reference in missing {
            match reference.kind == ReferenceKind::Tool && !may_come(&reference.id) {
                true => found.violations.push(unknown_tool(reference)),
                false => found.findings.push(reference.missing()),
            }
        }
        found
    }
}

fn unknown_tool(reference: &Reference) -> Violation {
    let message = format!("there is no tool `{}`", reference.id);
    Violation::new(reference.path.clone(), "unknown_tool", message)
}
