//! The files of a workspace, on which code works, and the changes that it makes to them.

use std::collections::BTreeSet;

use blob_store::{BlobDigest, BlobSettings};

use super::{
    collect::{MAX_REFUSED, RefusedFile, RefusedReason, name::PathText},
    path::path_problem,
    violation::Violation,
};

/// The most files that an overflow names.
pub const MAX_LARGEST: usize = 5;

/// The files before the code begins, and the limits of its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceSpec {
    /// The files.
    pub files: Vec<WorkspaceFile>,
    /// The limits.
    pub caps: WorkspaceCaps,
    /// The directories that hold all files; none: the working directory holds them.
    pub directories: Vec<String>,
}

/// A file of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceFile {
    /// Its path below the working directory.
    pub path: String,
    /// The digest of its content.
    pub digest: BlobDigest,
    /// Its size in bytes.
    pub size: u64,
}

/// The limits of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceCaps {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Files and directories.
    pub entries: u32,
}

impl WorkspaceCaps {
    /// The limits of a request that names none.
    pub const DEFAULT: Self = Self {
        file_bytes: 64 << 20,
        total_bytes: 256 << 20,
        entries: 10_000,
    };
}

impl WorkspaceSpec {
    /// Checks the paths, and compares the limits with the budgets of blobs.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn new(
        files: Vec<WorkspaceFile>,
        directories: Vec<String>,
        caps: WorkspaceCaps,
        blobs: &BlobSettings,
    ) -> Result<Self, Vec<Violation>> {
        let mut problems = Vec::new();
        for (index, name) in directories.iter().enumerate() {
            if !name.bytes().all(|byte| byte.is_ascii_lowercase()) {
                let field = format!("workspace.directories[{index}]");
                let problem = "must have lower-case letters only".to_owned();
                problems.push(Violation { field, problem });
            }
        }
        let mut met = BTreeSet::new();
        for (index, file) in files.iter().enumerate() {
            let mut refuse = |problem: String| {
                let field = format!("workspace.files[{index}].path");
                problems.push(Violation { field, problem });
            };
            if let Some(problem) = path_problem(&file.path) {
                refuse(problem);
            } else if file.path.chars().any(char::is_control) {
                refuse("must not have control characters".to_owned());
            } else if !met.insert(file.path.as_str()) {
                refuse("must not be that of another file".to_owned());
            } else if !is_in(&file.path, &directories) {
                refuse("must be in one of the directories".to_owned());
            }
        }
        for (field, value, most) in [
            ("max_file_bytes", caps.file_bytes, blobs.largest),
            ("max_total_bytes", caps.total_bytes, blobs.per_caller),
        ] {
            if value > most as u64 {
                let field = format!("workspace.{field}");
                let problem = format!("must be from 1 to {most}");
                problems.push(Violation { field, problem });
            }
        }
        match problems.is_empty() {
            true => Ok(Self {
                files,
                caps,
                directories,
            }),
            false => Err(problems),
        }
    }
}

fn is_in(path: &str, directories: &[String]) -> bool {
    let first = path.split_once('/').map(|(first, _)| first);
    directories.is_empty() || directories.iter().any(|name| first == Some(name))
}

/// The changes since the files were last the same as those of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceChanges {
    /// New files, and files with other content, by path. Their content is a blob of the caller.
    pub changed: Vec<ChangedFile>,
    /// Files that are gone, with the digests that they had.
    pub removed: Vec<(String, BlobDigest)>,
    /// The first entries that are no file of a workspace.
    pub refused: Vec<RefusedFile>,
    /// The number of all of them.
    pub refused_count: u64,
    /// The reason for which no change was taken.
    pub overflow: Option<WorkspaceOverflow>,
}

/// A file that is new or has other content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    /// The path.
    pub path: String,
    /// The digest of its content.
    pub digest: BlobDigest,
    /// Its size in bytes.
    pub size: u64,
    /// The digest of the content that was changed; `None` for a new file.
    pub base: Option<BlobDigest>,
}

/// Files beyond the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceOverflow {
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Files and directories.
    pub entries: u64,
    /// The largest files with their sizes, the largest first.
    pub largest: Vec<(PathText, u64)>,
}

impl WorkspaceChanges {
    /// Leaves out files that are not the workspace's.
    pub fn leave_out(&mut self, paths: &[String]) {
        self.changed.retain(|file| !paths.contains(&file.path));
        self.removed.retain(|(path, _)| !paths.contains(path));
    }

    /// Leaves out all files but these.
    pub fn keep(&mut self, paths: &[String]) {
        self.changed.retain(|file| paths.contains(&file.path));
        self.removed.retain(|(path, _)| paths.contains(path));
    }

    /// Records an entry that is no file of a workspace.
    pub fn refuse(&mut self, path: &[u8], reason: RefusedReason, size: u64) {
        self.refused_count += 1;
        if self.refused.len() < MAX_REFUSED {
            let path = PathText::of(path);
            self.refused.push(RefusedFile { path, reason, size });
        }
    }
}
