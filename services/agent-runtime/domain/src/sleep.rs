//! Agents of scenes that sleep (rule G410).

use core_types::Timestamp;

use super::{
    event::{Event, Priority},
    subscription::matches,
};

/// What wakes an agent that sleeps, beside a user and what is for it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// When it wakes by itself.
    pub until: Option<Timestamp>,
    /// The types of events.
    pub wake_on: Vec<String>,
    /// The priority from which on any event wakes it.
    pub priority: Priority,
}

/// What woke an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// Its time came.
    Timer,
    /// An event.
    Event(String),
    /// A user said something.
    Message,
    /// A caller.
    Caller,
}

impl Sleep {
    /// Whether an event has a type that it waits for.
    pub(crate) fn listens_for(&self, event: &Event) -> bool {
        let mut patterns = self.wake_on.iter();
        patterns.any(|pattern| {
            matches(pattern, &event.event_type) || matches(pattern, &event.qualified_type)
        })
    }

    /// Whether an event that waits wakes the agent.
    pub fn ends_with(&self, event: &Event) -> bool {
        // What has a target waits only where it is one.
        !event.targets.is_empty() || event.priority >= self.priority || self.listens_for(event)
    }
}
