//! Shared parts of the commands for documents: files to store, remarks about them, their revisions.

use std::path::Path;

use anyhow::Context;
use contracts::tavern::agent::v1::DocumentRevision;
use contracts::tavern::common::v1::LoadDiagnostic;
use prost_reflect::prost::{Message, Name};
use settings::text_file;
use tonic::Status;

use super::{json, list, print};

/// The largest file that is read, in bytes: an exported turn.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Returns the text of a file.
///
/// # Errors
/// The file cannot be read as text.
pub fn read(file: &Path) -> anyhow::Result<String> {
    let text = text_file::read(file, MAX_FILE_BYTES);
    text.with_context(|| format!("{} cannot be read", file.display()))
}

/// Prints the remarks about documents, one per line.
pub(super) fn remarks(diagnostics: &[LoadDiagnostic]) {
    for remark in diagnostics {
        print(&format!("{}: {}\n", remark.path, remark.message));
    }
}

/// Returns the word for the origin of a document: a file, the store of the tenant, or the tenant `system`.
pub(super) fn source(from_file: bool, is_shared: bool) -> String {
    let source = match (is_shared, from_file) {
        (true, _) => "shared",
        (false, true) => "file",
        (false, false) => "stored",
    };
    source.to_owned()
}

/// Prints documents as [`list::print_all`] does, and after the table the findings about files that
/// were left out, which `page` returns as well.
///
/// # Errors
/// The server refuses a page.
pub(super) async fn print_all<T: Message + Name, const N: usize>(
    as_json: bool,
    head: [&str; N],
    row: impl Fn(&T) -> [String; N],
    mut page: impl AsyncFnMut(String) -> Result<(Vec<T>, Vec<LoadDiagnostic>, String), Status>,
) -> anyhow::Result<()> {
    let mut left_out = Vec::new();
    list::print_all(as_json, head, row, async |page_token| {
        let (documents, diagnostics, next) = page(page_token).await?;
        left_out.extend(diagnostics);
        Ok((documents, next))
    })
    .await?;
    if !as_json {
        remarks(&left_out);
    }
    Ok(())
}

/// Prints a document as it was written, or the message that holds it as a line of JSON.
///
/// # Errors
/// A message that is not part of the contract.
pub(super) fn show<T: Message + Name>(
    as_json: bool,
    message: &T,
    document: &str,
) -> anyhow::Result<()> {
    match as_json {
        true => json::print_line(message)?,
        false => print(&format!("{}\n", document.trim_end())),
    }
    Ok(())
}

/// Prints the revisions of a document that are kept, the newest first. `page` is as for
/// [`list::print_all`].
///
/// # Errors
/// The server refuses a page.
pub(super) async fn print_revisions(
    as_json: bool,
    page: impl AsyncFnMut(String) -> Result<(Vec<DocumentRevision>, String), Status>,
) -> anyhow::Result<()> {
    let row = |revision: &DocumentRevision| {
        [
            revision.revision.to_string(),
            revision.version.clone(),
            source(revision.from_file, false),
            revision
                .create_time
                .map_or_else(String::new, |time| time.to_string()),
            revision.etag.clone(),
        ]
    };
    let head = ["REVISION", "VERSION", "SOURCE", "SINCE", "SHA-256"];
    list::print_all(as_json, head, row, page).await
}
