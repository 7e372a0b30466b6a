//! The durability of a run's acknowledged events.

use serde::{Deserialize, Serialize};

/// The faults that an acknowledged event of a run survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// No event is written to disk; the run is gone when its process ends.
    Memory,
    /// Events without a waiting caller are synced to disk within a short time, and may be lost with
    /// the process until then. Awaited events are synced first.
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
