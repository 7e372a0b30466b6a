//! How much a run's acknowledgement survives.

use serde::{Deserialize, Serialize};

/// What an acknowledged event of a run survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Nothing is written to disk; the run is gone when its process ends.
    Memory,
    /// What no one waits for is synced to disk within a short time, and may be lost with the process
    /// until then. What is awaited is synced first.
    Batched,
    /// The event is synced to disk before it is acknowledged, and survives power loss.
    #[default]
    Sync,
}

impl Durability {
    /// Returns the lower-case name that settings and timelines use.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Batched => "batched",
            Durability::Sync => "sync",
        }
    }
}
