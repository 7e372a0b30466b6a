//! The times at which the agents of a scene think by themselves (rule G409).

use std::collections::HashMap;

use core_types::Timestamp;

/// The type of the event of a tick.
pub(super) const TICK: &str = "instance.tick";

/// The ticks of the agents of a scene, by agent.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    pub(super) by_instance: HashMap<String, Ticker>,
}

/// The ticks of one agent.
#[derive(Debug)]
pub(super) struct Ticker {
    /// The time of the next tick.
    pub(super) due: Timestamp,
    /// The agent's view when it thought last; none after a start of the process.
    pub(super) seen: Option<Seen>,
}

/// The state, goals and events that an agent thinks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The versions of its state and of its goals; none if the storage did not answer.
    pub(super) versions: Option<(u64, u64)>,
    /// The number of events so far.
    pub(super) published: u64,
}

impl Ticker {
    /// Stores the present view of an agent, and returns whether it changed. Versions that cannot be
    /// read are no change: the versions known before count until they can be read.
    pub(super) fn take(&mut self, now: Seen) -> bool {
        let Some(before) = self.seen else {
            self.seen = now.versions.map(|_| now);
            return self.seen.is_some();
        };
        let versions = now.versions.or(before.versions);
        self.seen = Some(Seen { versions, ..now });
        let has_new_version = before.versions.is_some() && before.versions != versions;
        has_new_version || before.published != now.published
    }
}

impl Ticks {
    /// Returns the time of the next tick.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.by_instance.values().map(|ticker| ticker.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g409_only_what_was_read_and_differs_is_a_change() {
        let seen = |versions, published| Seen {
            versions,
            published,
        };
        for (name, looks) in [
            (
                "at first, once the storage answers",
                vec![
                    (seen(None, 0), false),
                    (seen(Some((1, 1)), 0), true),
                    (seen(Some((1, 1)), 0), false),
                ],
            ),
            (
                "not while the storage does not answer, nor when it does again",
                vec![
                    (seen(Some((1, 1)), 0), true),
                    (seen(None, 0), false),
                    (seen(Some((1, 1)), 0), false),
                ],
            ),
            (
                "a version that was written meanwhile",
                vec![
                    (seen(Some((1, 1)), 0), true),
                    (seen(None, 0), false),
                    (seen(Some((1, 2)), 0), true),
                ],
            ),
            (
                "an event, whatever the storage does",
                vec![(seen(Some((1, 1)), 0), true), (seen(None, 1), true)],
            ),
        ] {
            let mut ticker = Ticker {
                due: Timestamp::default(),
                seen: None,
            };
            for (look, changed) in looks {
                assert_eq!(ticker.take(look), changed, "{name}: {look:?}");
            }
        }
        let mut unread = Ticker {
            due: Timestamp::default(),
            seen: Some(seen(None, 3)),
        };
        assert!(!unread.take(seen(Some((2, 1)), 3)), "after a turn");
    }
}
