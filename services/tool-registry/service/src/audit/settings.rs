//! The operator's choices about the audit.

use std::time::Duration;

use run_events::retention::check_age;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

/// The least size of the file, in bytes: it holds the tables, and some records.
const LEAST_BYTES: u64 = 1 << 20;

/// The audit of administrative changes and denials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditSettings {
    /// The time for which the records of a day are kept after it, from `1s` to `3650d`; `0s` keeps them for ever.
    /// Default `400d`.
    #[serde(with = "settings::DurationText")]
    pub retention: Duration,
    /// The largest size of its file, in bytes, from 1048576; 0 leaves it to the disk. Administrative changes are
    /// refused while there is no room. Default 0.
    pub max_bytes: u64,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(400 * 24 * 60 * 60),
            max_bytes: 0,
        }
    }
}

impl AuditSettings {
    /// Returns the time for which a day is kept; `None` for ever.
    pub(crate) fn kept(&self) -> Option<Duration> {
        Some(self.retention).filter(|period| !period.is_zero())
    }

    /// Adds the problems of these settings, with keys below `audit`.
    pub(crate) fn check(&self, problems: &mut Problems) {
        check_age("audit.retention", self.retention, problems);
        if self.max_bytes != 0 && self.max_bytes < LEAST_BYTES {
            let remedy = format!("give a number from {LEAST_BYTES}, or 0 to leave it to the disk");
            problems.add("audit.max_bytes", "is out of range", remedy);
        }
    }
}
