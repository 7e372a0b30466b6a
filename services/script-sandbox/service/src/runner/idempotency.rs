//! Remembers the answers to request ids, so that a repeated request does not run twice.
//!
//! An id belongs to its caller: what one has asked is nothing to another who happens to use, or has
//! guessed, the same id. An id whose script waits or runs is never forgotten; there are no more of
//! those than scripts that wait or run. Of the answers that are there as many are kept as fit, the newest.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox_engine::domain::outcome::Outcome;
use tokio::sync::watch;

/// How many answers are remembered.
const REMEMBERED: usize = 256;

/// The most bytes of answers that are remembered, whatever their number.
const REMEMBERED_BYTES: usize = 64 << 20;

/// What identifies the content of a request.
pub(crate) type Digest = [u8; 32];

/// An answer that is there or will be. Its sender is gone without one if the request was refused.
pub(crate) type Pending = watch::Receiver<Option<Arc<Outcome>>>;

/// The answers of one sandbox.
#[derive(Debug)]
pub(crate) struct IdempotencyStore {
    /// How many answers are kept, and how many bytes of them.
    bounds: (usize, usize),
    /// Held for a look or an entry only, never while anything is awaited.
    known: Mutex<Known>,
}

/// Whose id it is, and the id.
type Key = (String, String);

#[derive(Debug, Default)]
struct Known {
    entries: HashMap<Key, Remembered>,
    /// The ids that are answered, the oldest first.
    answered: VecDeque<Key>,
    /// Bytes of all answers.
    bytes: usize,
}

#[derive(Debug)]
struct Remembered {
    digest: Digest,
    pending: Pending,
    /// How large the answer is, once it is there.
    bytes: usize,
}

impl Remembered {
    /// No answer is there, and the task that would give one is gone.
    fn is_lost(&self) -> bool {
        self.pending.has_changed().is_err() && self.pending.borrow().is_none()
    }
}

/// What is known about a request id.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// Nothing: the caller is to run the request.
    New(IdempotencyGuard),
    /// The same request runs or ran.
    InFlight(Pending),
    /// The same request ran, and its answer was lost with the task that ran it: to run it again could
    /// be to do again what it has done.
    Lost,
    /// Another request has the id.
    Conflict,
}

/// The right to answer for a request id. Dropping it without an answer gives the id back, unless the
/// script has begun.
#[derive(Debug)]
pub(crate) struct IdempotencyGuard {
    answers: Arc<IdempotencyStore>,
    /// `None` if nothing is to be remembered, or all is done.
    key: Option<Key>,
    publish: watch::Sender<Option<Arc<Outcome>>>,
    begun: bool,
}

impl IdempotencyGuard {
    /// The script begins: from here on the id is not given back.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    /// Waits for the answer that another task publishes.
    pub(crate) fn pending(&self) -> Pending {
        self.publish.subscribe()
    }

    /// Gives the answer to every caller that waits, and keeps it for later ones. The first caller may
    /// have gone.
    pub(crate) fn publish(mut self, outcome: Outcome) {
        let bytes = outcome.bytes();
        self.publish.send_replace(Some(Arc::new(outcome)));
        if let Some(key) = self.key.take() {
            self.answers.lock().settle(key, bytes, self.answers.bounds);
        }
    }
}

impl Drop for IdempotencyGuard {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else {
            return;
        };
        // Those who wait learn that no answer comes only after this, and then look again.
        let mut known = self.answers.lock();
        if self.begun {
            known.settle(key, 0, self.answers.bounds);
        } else {
            known.entries.remove(&key);
        }
    }
}

impl IdempotencyStore {
    pub(crate) fn new() -> Arc<Self> {
        Self::bounded(REMEMBERED, REMEMBERED_BYTES)
    }

    fn bounded(answers: usize, bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bounds: (answers, bytes),
            known: Mutex::default(),
        })
    }

    /// Looks an id of a caller up and, if it is new, takes it.
    pub(crate) fn look_up(
        self: &Arc<Self>,
        caller: &str,
        request_id: &str,
        digest: Digest,
    ) -> Lookup {
        let (publish, pending) = watch::channel(None);
        let guard = |key| IdempotencyGuard {
            answers: self.clone(),
            key,
            publish,
            begun: false,
        };
        if request_id.is_empty() {
            return Lookup::New(guard(None));
        }
        let key = (caller.to_owned(), request_id.to_owned());
        let mut known = self.lock();
        match known.entries.get(&key) {
            Some(entry) if entry.digest == digest && entry.is_lost() => Lookup::Lost,
            Some(entry) if entry.digest == digest => Lookup::InFlight(entry.pending.clone()),
            Some(_) => Lookup::Conflict,
            None => {
                let entry = Remembered {
                    digest,
                    pending,
                    bytes: 0,
                };
                known.entries.insert(key.clone(), entry);
                Lookup::New(guard(Some(key)))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change is complete before anything can panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Notes that an answer is there, and lets others go for it.
    fn settle(&mut self, key: Key, bytes: usize, (most, most_bytes): (usize, usize)) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.bytes = bytes;
        self.bytes += bytes;
        self.answered.push_back(key);
        while (self.answered.len() > most || self.bytes > most_bytes)
            && let Some(oldest) = self.answered.pop_front()
        {
            let forgotten = self.entries.remove(&oldest);
            self.bytes -= forgotten.map_or(0, |entry| entry.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
