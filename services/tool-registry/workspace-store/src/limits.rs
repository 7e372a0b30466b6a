//! The limits of a workspace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The limits of a workspace.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkspaceLimits {
    /// The largest file, in bytes. Default 64 MiB.
    #[serde(with = "settings::SizeText")]
    pub file_bytes: usize,
    /// All files of one conversation together, in bytes. Default 256 MiB.
    #[serde(with = "settings::SizeText")]
    pub total_bytes: usize,
    /// Files and directories of one conversation. Default 10,000.
    pub entries: usize,
    /// The most text that one call reads, in bytes. Default 512 KiB; more would not fit into an
    /// event of the run log.
    #[serde(with = "settings::SizeText")]
    pub read_bytes: usize,
    /// The most entries that one listing gives. Default 1,000.
    pub listing: usize,
}

impl Default for WorkspaceLimits {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            total_bytes: 256 << 20,
            entries: 10_000,
            read_bytes: 512 << 10,
            listing: 1_000,
        }
    }
}
