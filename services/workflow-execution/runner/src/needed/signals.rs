//! The signals that waits consumed.

use std::collections::{HashMap, HashSet, VecDeque};

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{RunEvent, WakeCause};

/// The signals of a run that were consumed.
#[derive(Default)]
pub(super) struct Signals<'e> {
    /// The node that consumed each, by the sequence of the signal.
    consumers: HashMap<u64, &'e str>,
    /// The waits that consumed a signal with an id. Such a signal is kept for the life of the run,
    /// so that a repeat is recognised, and its wait with it, so that the signal is not mistaken for
    /// an unconsumed one.
    kept: HashSet<&'e str>,
}

impl<'e> Signals<'e> {
    pub(super) fn of(own: &[&'e RunEvent]) -> Self {
        let mut signals = Self::default();
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut queues: HashMap<&str, VecDeque<(u64, bool)>> = HashMap::new();
        for event in own {
            match &event.kind {
                Some(Kind::NodeWaiting(waiting)) => {
                    let wait = waiting.wait.as_ref();
                    names.extend(wait.map(|wait| (&*wait.wait_id, &*wait.name)));
                }
                Some(Kind::SignalReceived(signal)) => {
                    let entry = (event.sequence, !signal.signal_id.is_empty());
                    queues.entry(&signal.name).or_default().push_back(entry);
                }
                Some(Kind::NodeWoken(woken)) if woken.cause() == WakeCause::Signal => {
                    let queue = names
                        .get(&*woken.wait_id)
                        .and_then(|name| queues.get_mut(name));
                    let Some((sequence, has_id)) = queue.and_then(VecDeque::pop_front) else {
                        continue;
                    };
                    signals.consumers.insert(sequence, &woken.node_id);
                    if has_id {
                        signals.kept.insert(&woken.wait_id);
                    }
                }
                _ => {}
            }
        }
        signals
    }

    /// Returns the node that consumed a signal; none if it was not consumed.
    pub(super) fn consumer_of(&self, sequence: u64) -> Option<&str> {
        self.consumers.get(&sequence).copied()
    }

    /// Whether a wait consumed a signal that is kept.
    pub(super) fn is_kept_with(&self, wait_id: &str) -> bool {
        self.kept.contains(wait_id)
    }
}
