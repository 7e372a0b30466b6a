//! What profiles, scenes and projects have in common on the wire.

use contracts::tavern::{agent::v1::DocumentRevision, common::v1 as common};
use core_types::LoadDiagnostic;
use run_events::timestamp_to_proto;

use crate::{revisions, store::RevisionRow};

pub(super) fn diagnostics_to_proto(findings: &[LoadDiagnostic]) -> Vec<common::LoadDiagnostic> {
    findings
        .iter()
        .map(call_wire::load_diagnostic_to_proto)
        .collect()
}

/// Writes the findings about a document, with what its revision adds to them.
pub(super) fn diagnostics_of(
    findings: &[LoadDiagnostic],
    revision: Option<&RevisionRow>,
) -> Vec<common::LoadDiagnostic> {
    let mut all: Vec<LoadDiagnostic> = revision
        .and_then(revisions::same_version)
        .into_iter()
        .collect();
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

/// Writes a page of revisions, of which one more may be there.
pub(super) fn revisions_page(
    list: &str,
    kept: &[RevisionRow],
    size: usize,
) -> (Vec<DocumentRevision>, String) {
    let revisions = kept.iter().map(revision_to_proto).collect();
    super::page(list, revisions, size, |row: &DocumentRevision| {
        row.revision.to_string()
    })
}
