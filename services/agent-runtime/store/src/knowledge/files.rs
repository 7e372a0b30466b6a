//! The knowledge bases of a directory.

use std::path::{Path, PathBuf};

use agent_domain::knowledge::{self, KnowledgeBase, MAX_KNOWLEDGE_BYTES};
use core_types::LoadDiagnostic;
use documents::files::paths;
use settings::text_file;

/// Reads `*.json` of a directory. A file that cannot be read is left out, as is a file with the id
/// of an earlier one.
pub(super) fn read(directory: &Path) -> (Vec<KnowledgeBase>, Vec<LoadDiagnostic>) {
    let mut bases: Vec<KnowledgeBase> = Vec::new();
    let mut left_out = Vec::new();
    let paths: Vec<PathBuf> = paths(directory, "").unwrap_or_default();
    for path in paths {
        let read = text_file::read(&path, MAX_KNOWLEDGE_BYTES as u64)
            .map_err(|error| error.to_string())
            .and_then(|text| knowledge::read(&text).map_err(|error| error.to_string()))
            .and_then(|base| match bases.iter().any(|other| other.id == base.id) {
                true => Err(format!("its id `{}` is taken by an earlier file", base.id)),
                false => Ok(base),
            });
        match read {
            Ok(base) => bases.push(base),
            Err(problem) => {
                let shown = path.strip_prefix(directory).unwrap_or(&path).display();
                tracing::warn!(path = %shown, problem, "a knowledge base cannot be read");
                left_out.push(LoadDiagnostic::left_out(shown.to_string(), &problem));
            }
        }
    }
    left_out.truncate(LoadDiagnostic::MAX);
    (bases, left_out)
}
