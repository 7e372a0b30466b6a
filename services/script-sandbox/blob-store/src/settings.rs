//! The settings of the blobs.

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

/// The least charge of a blob in bytes, as a file system allocates.
pub(crate) const BLOCK: u64 = 4096;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The directory and the quotas of blobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BlobSettings {
    /// The directory that holds them; it is made if it does not exist, and one process uses it at a
    /// time. Empty: a directory for temporary files, whose blobs end with the process. Default
    /// empty.
    pub directory: PathBuf,
    /// All blobs together; each counts as whole blocks of 4 KiB. Default `1GiB`.
    #[serde(with = "settings::SizeText")]
    pub total: usize,
    /// The blobs of one caller. Default `256MiB`.
    #[serde(with = "settings::SizeText")]
    pub per_caller: usize,
    /// The largest blob. Default `64MiB`.
    #[serde(with = "settings::SizeText")]
    pub largest: usize,
    /// The time for which an unused blob is kept. Default `1d`.
    #[serde(with = "settings::DurationText")]
    pub time_to_live: Duration,
}

impl Default for BlobSettings {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            total: GIB,
            per_caller: 256 * MIB,
            largest: 64 * MIB,
            time_to_live: Duration::from_secs(24 * 3600),
        }
    }
}

impl BlobSettings {
    /// Adds every fault of these settings, with keys below `key`.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        const MOST: usize = 1024 * GIB;
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        let mut size = |name: &str, value: usize, most: usize, of: &str| {
            if !(BLOCK as usize..=most).contains(&value) {
                let most = settings::size::print(most);
                problems.add(
                    format!("{key}.{name}"),
                    "is out of range",
                    format!("give a size from 4KiB to {most}, which is {of}"),
                );
            }
        };
        size("total", self.total, MOST, "the most there is");
        size("per_caller", self.per_caller, self.total, "`total`");
        size("largest", self.largest, self.per_caller, "`per_caller`");
        if self.time_to_live < Duration::from_secs(1) || self.time_to_live > LONGEST {
            problems.add(
                format!("{key}.time_to_live"),
                "is out of range",
                "give a time from 1s to 365d",
            );
        }
    }
}
