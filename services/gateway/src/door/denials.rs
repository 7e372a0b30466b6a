//! Refusals in the log: once a minute for each principal, method and reason, with their number.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::Code;

/// The time of which one line reports the refusals.
const WINDOW: Duration = Duration::from_secs(60);

/// The most kinds of refusals that are counted apart; all further ones are one kind.
const MAX_KINDS: usize = 1_000;

/// The refusals of the present minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Denials(Arc<Mutex<HashMap<Kind, u64>>>);

/// Refusals that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    /// The name of the principal; empty where it is unknown.
    principal: Box<str>,
    method: Box<str>,
    reason: Code,
}

impl Kind {
    /// The kind of all refusals beyond the bound.
    fn other() -> Self {
        Self {
            principal: Box::default(),
            method: "other methods".into(),
            reason: Code::Unknown,
        }
    }

    fn log(&self, count: u64, peer: Option<IpAddr>) {
        let peer = peer.map(tracing::field::display);
        tracing::warn!(
            principal = &*self.principal,
            method = &*self.method,
            reason = ?self.reason,
            count,
            peer,
            "calls were refused at the door"
        );
    }
}

impl Denials {
    /// Records a refusal. The first of its kind is logged at once, with the address of its client; the
    /// others of each minute at its end.
    pub(super) fn record(&self, principal: &str, method: &str, reason: Code, peer: Option<IpAddr>) {
        let kind = Kind {
            principal: principal.into(),
            method: method.into(),
            reason,
        };
        if let Some(kind) = self.count(kind) {
            kind.log(1, peer);
            let denials = self.clone();
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(WINDOW).await;
                    match denials.end_of_window(&kind) {
                        0 => return,
                        count => kind.log(count, None),
                    }
                }
            });
        }
    }

    /// Counts a refusal, and returns its kind if it is the first.
    fn count(&self, kind: Kind) -> Option<Kind> {
        let mut kinds = self.kinds();
        let is_full = kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind);
        let kind = if is_full { Kind::other() } else { kind };
        match kinds.entry(kind) {
            Entry::Occupied(mut counted) => {
                *counted.get_mut() += 1;
                None
            }
            Entry::Vacant(place) => {
                let kind = place.key().clone();
                place.insert(0);
                Some(kind)
            }
        }
    }

    /// Returns the number of refusals since the last line, and forgets a kind without any.
    fn end_of_window(&self, kind: &Kind) -> u64 {
        let mut kinds = self.kinds();
        let count = kinds.get_mut(kind).map_or(0, std::mem::take);
        if count == 0 {
            kinds.remove(kind);
        }
        count
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<Kind, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(principal: &str) -> Kind {
        Kind {
            principal: principal.into(),
            method: "a.S/M".into(),
            reason: Code::Unauthenticated,
        }
    }

    #[test]
    fn the_first_refusal_of_a_kind_is_a_line_and_the_others_are_a_number() {
        let denials = Denials::default();
        assert_eq!(denials.count(kind("")), Some(kind("")));
        for _ in 0..1_000 {
            assert_eq!(denials.count(kind("")), None);
        }
        assert_eq!(denials.count(kind("ada")), Some(kind("ada")));
        assert_eq!(denials.end_of_window(&kind("")), 1_000);
        assert_eq!(denials.count(kind("")), None);
        assert_eq!(denials.end_of_window(&kind("")), 1);
        assert_eq!(denials.end_of_window(&kind("")), 0);
        assert_eq!(denials.count(kind("")), Some(kind("")));
    }

    #[test]
    fn kinds_beyond_the_bound_are_one() {
        let denials = Denials::default();
        for number in 0..MAX_KINDS {
            assert!(denials.count(kind(&number.to_string())).is_some());
        }
        assert_eq!(denials.count(kind("more")), Some(Kind::other()));
        assert_eq!(denials.count(kind("yet more")), None);
        assert_eq!(denials.count(kind("0")), None);
        assert_eq!(denials.end_of_window(&Kind::other()), 1);
    }
}
