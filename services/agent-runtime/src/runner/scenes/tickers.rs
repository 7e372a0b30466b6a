//! When the agents of a scene think by themselves (rule G409).

use std::collections::HashMap;

use core_types::Timestamp;

/// The type of the event that a tick is.
pub(super) const TICK: &str = "instance.tick";

/// The ticks of the agents of a scene, by agent.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    pub(super) by_instance: HashMap<String, Ticker>,
}

/// The ticks of one agent.
#[derive(Debug)]
pub(super) struct Ticker {
    /// When the next is due.
    pub(super) due: Timestamp,
    /// What the agent had seen when it thought last; none after a start of the process.
    pub(super) seen: Option<Seen>,
}

/// What an agent thinks about: the versions of its state and goals, and how many events there were.
pub(super) type Seen = (u64, u64, u64);

impl Ticks {
    /// Returns when the next tick is due.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.by_instance.values().map(|ticker| ticker.due).min()
    }
}
