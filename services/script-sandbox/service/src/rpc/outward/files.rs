//! The files that a script has left.

use blob_store::BlobDigest;
use contracts::tavern::sandbox::v1 as wire;
use sandbox_engine::domain::{
    collect::{Collected, OutputFile, RefusedFile, RefusedReason},
    workspace::{ChangedFile, WorkspaceChanges, WorkspaceOverflow},
};

pub(super) fn collected(collected: &Collected) -> wire::CollectedFiles {
    wire::CollectedFiles {
        files: collected.files.iter().map(file).collect(),
        refused: collected.refused.iter().map(refused).collect(),
        refused_count: collected.refused_count,
        partial: collected.partial,
    }
}

/// The changes to the files of a workspace, on the wire.
pub(in crate::rpc) fn changes(changes: &WorkspaceChanges) -> wire::WorkspaceChanges {
    let text = |digest: &BlobDigest| digest.to_string();
    let changed = |file: &ChangedFile| wire::ChangedFile {
        path: file.path.clone(),
        sha256: text(&file.digest),
        size_bytes: file.size,
        base_sha256: file.base.as_ref().map_or_else(String::new, text),
    };
    let removed = |(path, digest): &(String, BlobDigest)| wire::RemovedFile {
        path: path.clone(),
        base_sha256: text(digest),
    };
    let overflow = |overflow: &WorkspaceOverflow| wire::WorkspaceOverflow {
        total_bytes: overflow.total_bytes,
        entries: overflow.entries,
        largest: (overflow.largest.iter())
            .map(|(path, size)| wire::LargeFile {
                path: path.text.clone(),
                size_bytes: *size,
            })
            .collect(),
    };
    wire::WorkspaceChanges {
        changed: changes.changed.iter().map(changed).collect(),
        removed: changes.removed.iter().map(removed).collect(),
        refused: changes.refused.iter().map(refused).collect(),
        refused_count: changes.refused_count,
        overflow: changes.overflow.as_ref().map(overflow),
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
