//! Events and the hash chain that ties them together.

use std::fmt;

use bytes::Bytes;
use core_types::{Principal, RunId, Timestamp};
use sha2::{Digest, Sha256};

/// An event that is about to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The time of the event, by the clock of the run's owner.
    pub time: Timestamp,
    /// The kind of the event, in the owner's numbering.
    pub kind: i32,
    /// Its content; the log never looks inside.
    pub payload: Bytes,
}

impl NewEvent {
    /// Puts the parts of an event together.
    pub fn new(time: Timestamp, kind: i32, payload: impl Into<Bytes>) -> Self {
        Self {
            time,
            kind,
            payload: payload.into(),
        }
    }
}

/// An event of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the run, from 1 and without gaps.
    pub sequence: u64,
    /// The time of the event, by the clock of the run's owner.
    pub time: Timestamp,
    /// The kind of the event, in the owner's numbering.
    pub kind: i32,
    /// Its content.
    pub payload: Bytes,
    /// The chain's value after this event; see [`Hash`].
    pub hash: Hash,
}

impl Event {
    /// Places `new` after `head` in the chain of `run`.
    pub(crate) fn after(head: Head, run: RunId, new: NewEvent) -> Self {
        let NewEvent {
            time,
            kind,
            payload,
        } = new;
        let sequence = head.sequence + 1;
        let hash = chain(head.hash, run, sequence, time, kind, &payload);
        Self {
            sequence,
            time,
            kind,
            payload,
            hash,
        }
    }

    /// Returns whether the event's own hash follows from `previous` and its content.
    pub(crate) fn continues(&self, previous: Hash, run: RunId) -> bool {
        self.hash
            == chain(
                previous,
                run,
                self.sequence,
                self.time,
                self.kind,
                &self.payload,
            )
    }

    /// Returns the head of a chain that ends here.
    pub(crate) fn head(&self) -> Head {
        Head {
            sequence: self.sequence,
            hash: self.hash,
        }
    }
}

/// A SHA-256 value.
///
/// An event's hash covers the hash before it, the run's id, and the event's sequence, time, kind
/// and payload. The last hash of a run proves every event before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Returns the digest of `bytes`, for the body of a request above all.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the digest of a request that a principal made, from the digest of the request alone, so that the
    /// same request of another principal is another one. That of [`Principal::LOCAL`] is the same digest.
    #[must_use]
    pub fn by(self, principal: &Principal) -> Self {
        match principal.is_local() {
            true => self,
            false => Self::of(&[&self.0, principal.as_str().as_bytes()].concat()),
        }
    }

    /// Returns the value before the first event. It names the format of the chain.
    pub(crate) fn genesis() -> Self {
        Self::of(b"run log, chain format 1")
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The last event of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) sequence: u64,
    pub(crate) hash: Hash,
}

impl Head {
    pub(crate) fn empty() -> Self {
        Self {
            sequence: 0,
            hash: Hash::genesis(),
        }
    }
}

fn chain(
    previous: Hash,
    run: RunId,
    sequence: u64,
    time: Timestamp,
    kind: i32,
    payload: &[u8],
) -> Hash {
    // Every part but the last has a fixed length, so no two events share an encoding.
    let mut hasher = Sha256::new();
    hasher.update(previous.0);
    hasher.update(run.owner().prefix().as_bytes());
    hasher.update(run.uuid().as_bytes());
    hasher.update(sequence.to_be_bytes());
    hasher.update(time.unix_nanos().to_be_bytes());
    hasher.update(kind.to_be_bytes());
    hasher.update(payload);
    Hash(hasher.finalize().into())
}

/// Returns the first events whose payloads together have no more than `max_bytes`, and at least one.
pub(crate) fn up_to<'a>(
    max_bytes: usize,
    events: impl Iterator<Item = &'a Event>,
) -> impl Iterator<Item = &'a Event> {
    let mut bytes = 0;
    let mut any = false;
    events.take_while(move |event| {
        bytes += event.payload.len();
        !std::mem::replace(&mut any, true) || bytes <= max_bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core_types::RunOwner;

    fn event(time: i64, kind: i32, payload: &'static [u8]) -> NewEvent {
        NewEvent::new(Timestamp::from_unix_nanos(time), kind, payload)
    }

    fn run(owner: RunOwner, number: u128) -> RunId {
        RunId::new(owner, uuid::Uuid::from_u128(number))
    }

    #[test]
    fn the_same_request_of_another_principal_is_another_one_and_that_of_local_is_as_before() {
        let [ada, bob] = ["ada", "bob"].map(|name| Principal::new(name).unwrap());
        let request = Hash::of(b"request");
        assert_eq!(request.by(&Principal::LOCAL), request);
        assert_eq!(request.by(&ada), request.by(&ada));
        assert_ne!(request.by(&ada), request);
        assert_ne!(request.by(&ada), request.by(&bob));
    }

    #[test]
    fn every_part_of_an_event_changes_its_hash() {
        let here = run(RunOwner::Agent, 1);
        let head = Head::empty();
        let first = Event::after(head, here, event(1, 1, b"a"));
        let others = [
            Event::after(head, here, event(2, 1, b"a")),
            Event::after(head, here, event(1, 2, b"a")),
            Event::after(head, here, event(1, 1, b"b")),
            Event::after(head, run(RunOwner::Agent, 2), event(1, 1, b"a")),
            Event::after(head, run(RunOwner::Workflow, 1), event(1, 1, b"a")),
            Event::after(first.head(), here, event(1, 1, b"a")),
            Event::after(
                Head {
                    sequence: 1,
                    ..head
                },
                here,
                event(1, 1, b"a"),
            ),
        ];
        for other in others {
            assert_ne!(other.hash, first.hash, "{other:?}");
        }
        assert!(first.continues(Hash::genesis(), here));
    }
}
