//! Remembers the answers to request ids, so that a repeated request does not run twice.
//!
//! An id belongs to its caller: another caller who happens to use, or has guessed, the same id
//! learns nothing. An id whose script waits or runs is never forgotten; the number of these is the
//! number of scripts that wait or run. Of the answers the newest that fit are kept.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox_engine::domain::outcome::Outcome;
use tokio::sync::watch;

/// The most answers that are remembered.
const REMEMBERED: usize = 256;

/// The most bytes of answers that are remembered, whatever their number.
const REMEMBERED_BYTES: usize = 64 << 20;

/// The digest of the content of a request.
pub(crate) type Digest = [u8; 32];

/// An answer that is published or will be. Its sender is dropped without one if the request was
/// refused.
pub(crate) type Pending = watch::Receiver<Option<Arc<Outcome>>>;

/// The answers of one sandbox.
#[derive(Debug)]
pub(crate) struct IdempotencyStore {
    /// The most answers, and the most bytes of them.
    bounds: (usize, usize),
    /// Locked for a look-up or an insertion only, never across an await.
    known: Mutex<Known>,
}

/// The caller, and the id.
type Key = (String, String);

#[derive(Debug, Default)]
struct Known {
    entries: HashMap<Key, Remembered>,
    /// The answered ids, the oldest first.
    answered: VecDeque<Key>,
    /// Bytes of all answers.
    bytes: usize,
}

#[derive(Debug)]
struct Remembered {
    digest: Digest,
    pending: Pending,
    /// The size of the answer, once it is published.
    bytes: usize,
}

impl Remembered {
    /// Returns whether there is no answer, and the task that would publish it has died.
    fn is_lost(&self) -> bool {
        self.pending.has_changed().is_err() && self.pending.borrow().is_none()
    }
}

/// The result of looking up a request id.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The id is new: the caller must run the request.
    New(IdempotencyGuard),
    /// The same request runs or ran.
    InFlight(Pending),
    /// The same request ran, and its answer was lost with the task that ran it: running it again
    /// could repeat its effects.
    Lost,
    /// Another request has the id.
    Conflict,
}

/// The right to answer for a request id. Dropping it without an answer releases the id, unless the
/// script has begun.
#[derive(Debug)]
pub(crate) struct IdempotencyGuard {
    answers: Arc<IdempotencyStore>,
    /// `None` if no answer is to be remembered, or it was published.
    key: Option<Key>,
    publish: watch::Sender<Option<Arc<Outcome>>>,
    begun: bool,
}

impl IdempotencyGuard {
    /// Records that the script begins: from here on the id is not released.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    /// Waits for the answer that another task publishes.
    pub(crate) fn pending(&self) -> Pending {
        self.publish.subscribe()
    }

    /// Publishes the answer to every waiting caller, and keeps it for later ones. The first caller
    /// may have gone.
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
        // Waiting callers learn only after this that no answer comes, and then look again.
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

    /// Looks up the id of a caller and, if it is new, claims it.
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
    /// Records that an answer is published, and forgets the oldest ones beyond the bounds.
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
