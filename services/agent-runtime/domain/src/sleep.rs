//! Agents of scenes that sleep (rule G410).

use core_types::Timestamp;

use super::{
    event::{Event, Priority},
    subscription::matches,
};

/// The conditions that wake a sleeping agent, in addition to users and events that target it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// The time at which it wakes by itself.
    pub until: Option<Timestamp>,
    /// The types of events.
    pub wake_on: Vec<String>,
    /// The priority from which on any event wakes it.
    pub priority: Priority,
}

/// The cause of an agent's waking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// The time at which it wakes.
    Timer,
    /// An event.
    Event(String),
    /// A message of a user.
    Message,
    /// A caller.
    Caller,
}

impl Sleep {
    /// Whether an event has a type that wakes it.
    pub(crate) fn listens_for(&self, event: &Event) -> bool {
        let mut patterns = self.wake_on.iter();
        patterns.any(|pattern| {
            matches(pattern, &event.event_type) || matches(pattern, &event.qualified_type)
        })
    }

    /// Whether an event that waits wakes the agent.
    pub fn ends_with(&self, event: &Event) -> bool {
        // An event with targets waits only in their queues.
        !event.targets.is_empty() || event.priority >= self.priority || self.listens_for(event)
    }
}
