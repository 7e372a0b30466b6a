//! The files that a script has left.

use contracts::tavern::sandbox::v1 as wire;
use sandbox_engine::domain::collect::{Collected, OutputFile, RefusedFile, RefusedReason};

pub(super) fn collected(collected: &Collected) -> wire::CollectedFiles {
    wire::CollectedFiles {
        files: collected.files.iter().map(file).collect(),
        refused: collected.refused.iter().map(refused).collect(),
        refused_count: collected.refused_count,
        partial: collected.partial,
    }
}

fn file(file: &OutputFile) -> wire::OutputFile {
    wire::OutputFile {
        path: file.path.text.clone(),
        path_escaped: file.path.escaped,
        size_bytes: file.size,
        sha256: file.digest.to_string(),
        executable: file.executable,
        content: file.content.clone().unwrap_or_default(),
        is_blob: file.content.is_none(),
    }
}

fn refused(file: &RefusedFile) -> wire::RefusedFile {
    wire::RefusedFile {
        path: file.path.text.clone(),
        path_escaped: file.path.escaped,
        reason: reason(file.reason).into(),
        size_bytes: file.size,
    }
}

fn reason(reason: RefusedReason) -> wire::RefusedReason {
    super::same_name! { reason, RefusedReason => wire::RefusedReason:
        SymbolicLink HardLink Fifo Socket Device TooLarge TotalTooLarge TooMany TooDeep Name Time
        Unreadable NoRoom NotEnded NotFound
    }
}
