//! How much of its scratch space a script finds taken.

use std::collections::BTreeSet;

use blob_store::BlobDigest;

use super::{Content, Program, Script};

/// What a file system hands out at once, in bytes.
const BLOCK: u64 = 4096;

/// Directories that are there before anything is placed, with a little room for the script itself.
const OTHERS: u64 = 8;

/// What the files of a request take when they are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// In bytes: files are rounded up to blocks, and a directory takes one as well.
    pub(super) bytes: u64,
    /// Files and directories, those that are there for every script included.
    pub(super) files: u64,
}

impl Taken {
    /// What a script's files take if its blobs have these sizes.
    pub(super) fn by(script: &Script, blob_size: impl Fn(&BlobDigest) -> u64) -> Self {
        let mut directories = BTreeSet::new();
        let mut sizes = Vec::new();
        for file in &script.files {
            sizes.push(match &file.content {
                Content::Bytes(bytes) => bytes.len() as u64,
                Content::Blob(digest) => blob_size(digest),
            });
            let ends = file.path.match_indices('/').map(|(end, _)| end);
            directories.extend(ends.map(|end| &file.path[..end]));
        }
        if let Program::Source(source) = &script.program {
            sizes.push(source.len() as u64);
        }
        if !script.input_json.is_empty() {
            sizes.push(script.input_json.len() as u64);
        }
        let directories = directories.len() as u64;
        let blocks = |size: &u64| size.div_ceil(BLOCK);
        let blocks = sizes
            .iter()
            .map(blocks)
            .fold(directories, u64::saturating_add);
        Self {
            bytes: blocks.saturating_mul(BLOCK),
            files: OTHERS + directories + sizes.len() as u64,
        }
    }
}
