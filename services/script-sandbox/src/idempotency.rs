//! Remembers the answers to request ids, so that a repeated request does not run twice.
//!
//! An id belongs to its caller: what one has asked is nothing to another who happens to use, or has
//! guessed, the same id. An id whose script waits or runs is never forgotten; there are no more of
//! those than scripts that wait or run. Of the answers that are there as many are kept as fit, and
//! the caller that has most of them loses its oldest first, so that the many answers of one caller do
//! not push out the few of another.

use std::{
    cmp::Reverse,
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
    bounds: Bounds,
    /// Held for a look or an entry only, never while anything is awaited.
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    answers: usize,
    bytes: usize,
}

/// Whose id it is, and the id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    caller: String,
    request_id: String,
}

#[derive(Debug, Default)]
struct Known {
    entries: HashMap<Key, Remembered>,
    /// Callers who have answers here.
    accounts: HashMap<String, Account>,
    /// How many answers there are, and their bytes.
    answers: usize,
    bytes: usize,
    /// The number of the next answer.
    next: u64,
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

/// The answers of one caller.
#[derive(Debug, Default)]
struct Account {
    /// Numbers and request ids, the oldest first.
    order: VecDeque<(u64, String)>,
    bytes: usize,
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
        Self::bounded(Bounds {
            answers: REMEMBERED,
            bytes: REMEMBERED_BYTES,
        })
    }

    fn bounded(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
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
        let answers = self.clone();
        if request_id.is_empty() {
            return Lookup::New(IdempotencyGuard {
                answers,
                key: None,
                publish,
                begun: false,
            });
        }
        let key = Key {
            caller: caller.to_owned(),
            request_id: request_id.to_owned(),
        };
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
                Lookup::New(IdempotencyGuard {
                    answers,
                    key: Some(key),
                    publish,
                    begun: false,
                })
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
    fn settle(&mut self, key: Key, bytes: usize, bounds: Bounds) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.bytes = bytes;
        let account = self.accounts.entry(key.caller).or_default();
        account.order.push_back((self.next, key.request_id));
        account.bytes += bytes;
        self.next += 1;
        self.answers += 1;
        self.bytes += bytes;
        while self.answers > bounds.answers {
            self.forget_oldest_of_largest(|account| account.order.len());
        }
        while self.bytes > bounds.bytes {
            self.forget_oldest_of_largest(|account| account.bytes);
        }
    }

    /// Forgets the oldest answer of the caller who has most; of several, of the one whose is oldest.
    /// There are as many callers to look at as answers at most.
    fn forget_oldest_of_largest(&mut self, size: impl Fn(&Account) -> usize) {
        let oldest = |account: &Account| Reverse(account.order.front().map(|(number, _)| *number));
        let largest = self
            .accounts
            .iter()
            .max_by_key(|(_, account)| (size(account), oldest(account)));
        let Some(caller) = largest.map(|(caller, _)| caller.clone()) else {
            return;
        };
        let Some(account) = self.accounts.get_mut(&caller) else {
            return;
        };
        if let Some((_, request_id)) = account.order.pop_front() {
            let key = Key {
                caller: caller.clone(),
                request_id,
            };
            let bytes = self.entries.remove(&key).map_or(0, |entry| entry.bytes);
            account.bytes -= bytes;
            self.bytes -= bytes;
            self.answers -= 1;
        }
        if account.order.is_empty() {
            self.accounts.remove(&caller);
        }
    }
}

#[cfg(test)]
mod tests;
