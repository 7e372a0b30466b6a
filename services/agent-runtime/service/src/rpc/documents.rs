//! The common parts of profiles, scenes and projects on the wire.

use agent_domain::document::DocumentError;
use contracts::tavern::{agent::v1::DocumentRevision, common::v1 as common};
use core_types::{LoadDiagnostic, Tenant};
use documents::{ChangeError, Documents, Kind, RevisionRow, documents::same_version};
use grpc_kit::Failure;
use run_events::timestamp_to_proto;

use crate::error::{no_such_document, store_failure};

pub(super) fn diagnostics_to_proto(findings: &[LoadDiagnostic]) -> Vec<common::LoadDiagnostic> {
    findings
        .iter()
        .map(call_wire::load_diagnostic_to_proto)
        .collect()
}

/// Writes the findings about a document, with the finding about its revision, if any.
pub(super) fn diagnostics_of(
    findings: &[LoadDiagnostic],
    revision: Option<&RevisionRow>,
) -> Vec<common::LoadDiagnostic> {
    let mut all: Vec<LoadDiagnostic> = revision.and_then(same_version).into_iter().collect();
    all.extend_from_slice(findings);
    all.truncate(LoadDiagnostic::MAX);
    diagnostics_to_proto(&all)
}

pub(super) fn revision_to_proto(row: &RevisionRow) -> DocumentRevision {
    DocumentRevision {
        revision: row.number,
        etag: row.etag.clone(),
        version: row.label.clone(),
        create_time: Some(timestamp_to_proto(row.created)),
        from_file: row.from_file,
        same_version_as: row.same_version_as,
    }
}

/// Returns a page of the revisions of a document of a tenant or a shared one, the newest first, and the token of the next
/// page; none if no revision is kept.
pub(super) async fn revisions_page<K: Kind>(
    documents: &Documents<K>,
    tenant: Tenant,
    id: &str,
    (page_size, page_token): (i32, &str),
) -> Result<Option<(Vec<DocumentRevision>, String)>, Failure> {
    let list = format!("{}-revisions\0{id}", K::NAME);
    let list = grpc_kit::list_of_tenant(tenant, &list);
    let before = super::page_after(&list, page_token)?;
    let before = before.and_then(|before| before.parse().ok());
    let size = core_types::page::page_size(page_size);
    let known = documents.get(tenant, id).await;
    let known = known.map_err(|error| store_failure(&error))?;
    let home = match known.is_some_and(|known| known.is_shared) {
        true => Tenant::SYSTEM,
        false => tenant,
    };
    let kept = documents.revisions(home, id, before, size + 1);
    let kept = kept.await.map_err(|error| store_failure(&error))?;
    if kept.is_empty() && before.is_none() {
        return Ok(None);
    }
    let page = kept.iter().map(revision_to_proto).collect();
    let key = |row: &DocumentRevision| row.revision.to_string();
    Ok(Some(super::page(&list, page, size, key)))
}

/// Makes the failure of a change of a document with an id, whose text is the field `<kind>_json`.
pub(super) fn change_failure(
    kind: &str,
    id: &str,
    request_id: &str,
    error: ChangeError<DocumentError>,
) -> Failure {
    let (id_field, text_field) = (format!("{kind}_id"), format!("{kind}_json"));
    let invalid = |error: DocumentError| {
        let mut failure = Failure::invalid_fields();
        for problem in error.problems {
            let field = format!("{text_field}{}", problem.pointer);
            failure.add_violation(field, problem.message);
        }
        failure
    };
    error.into_failure(&id_field, request_id, invalid, || {
        no_such_document(kind, id, 0)
    })
}
