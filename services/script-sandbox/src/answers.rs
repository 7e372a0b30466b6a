//! Remembers the answers to request ids, so that a repeated request does not run twice.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::domain::outcome::Outcome;

/// The most bytes of output that are remembered, whatever the number of answers.
const REMEMBERED_BYTES: usize = 64 << 20;

/// What identifies the content of a request.
pub(crate) type Digest = [u8; 32];

/// An answer that is there or will be.
pub(crate) type Pending = watch::Receiver<Option<Arc<Outcome>>>;

/// The answers of one sandbox.
#[derive(Debug)]
pub(crate) struct Answers {
    /// How many answers are kept.
    most: usize,
    /// Held for a look or an entry only, never while anything is awaited.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    entries: HashMap<String, Entry>,
    /// The ids in the order of their first use.
    order: VecDeque<String>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    digest: Digest,
    pending: Pending,
    bytes: usize,
}

/// What is known about a request id.
pub(crate) enum Claim {
    /// Nothing: the caller is to run the request and to publish here.
    First(watch::Sender<Option<Arc<Outcome>>>, Pending),
    /// The same request runs or ran.
    Repeated(Pending),
    /// Another request has the id.
    Reused,
}

impl Answers {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most: most as usize,
            known: Mutex::default(),
        }
    }

    /// Looks an id up and, if it is new, takes it.
    pub(crate) fn claim(&self, request_id: &str, digest: Digest) -> Claim {
        let (publish, pending) = watch::channel(None);
        if request_id.is_empty() || self.most == 0 {
            return Claim::First(publish, pending);
        }
        let mut known = self.lock();
        match known.entries.get(request_id) {
            Some(entry) if entry.digest == digest => Claim::Repeated(entry.pending.clone()),
            Some(_) => Claim::Reused,
            None => {
                let entry = Entry {
                    digest,
                    pending: pending.clone(),
                    bytes: 0,
                };
                known.entries.insert(request_id.to_owned(), entry);
                known.order.push_back(request_id.to_owned());
                known.forget(self.most);
                Claim::First(publish, pending)
            }
        }
    }

    /// Notes how large an answer is.
    pub(crate) fn weigh(&self, request_id: &str, outcome: &Outcome) {
        let bytes = outcome.bytes();
        let mut known = self.lock();
        if let Some(entry) = known.entries.get_mut(request_id) {
            entry.bytes = bytes;
            known.bytes += bytes;
            known.forget(self.most);
        }
    }

    /// Gives an id back whose request was refused.
    pub(crate) fn release(&self, request_id: &str) {
        self.lock().remove(request_id);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change is complete before anything can panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn forget(&mut self, most: usize) {
        while self.entries.len() > most || self.bytes > REMEMBERED_BYTES {
            let Some(oldest) = self.order.front().cloned() else {
                return;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, request_id: &str) {
        if let Some(entry) = self.entries.remove(request_id) {
            self.bytes -= entry.bytes;
            self.order.retain(|other| other != request_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_first(claim: &Claim) -> bool {
        matches!(claim, Claim::First(..))
    }

    #[test]
    fn an_id_belongs_to_its_first_content() {
        let answers = Answers::new(2);
        let first = answers.claim("a", [1; 32]);
        assert!(is_first(&first));
        assert!(matches!(answers.claim("a", [1; 32]), Claim::Repeated(_)));
        assert!(matches!(answers.claim("a", [2; 32]), Claim::Reused));
        answers.release("a");
        assert!(is_first(&answers.claim("a", [2; 32])));
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let answers = Answers::new(2);
        for id in ["a", "b", "c"] {
            assert!(is_first(&answers.claim(id, [0; 32])));
        }
        assert!(matches!(answers.claim("c", [0; 32]), Claim::Repeated(_)));
        assert!(is_first(&answers.claim("a", [9; 32])));
    }

    #[test]
    fn no_id_is_never_repeated() {
        let answers = Answers::new(2);
        assert!(is_first(&answers.claim("", [0; 32])));
        assert!(is_first(&answers.claim("", [0; 32])));
    }
}
