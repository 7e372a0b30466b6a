//! Tickets: credentials for one use within 30 s. They do not outlast the process.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use core_types::Timestamp;

use super::credential;

/// The life of a ticket.
pub(crate) const LIFE: Duration = Duration::from_secs(30);

/// The most open tickets, of all keys and of one key.
const MAX_OPEN: usize = 8_192;
const MAX_OPEN_OF_KEY: usize = 64;

/// The key for which a credential stands, and the time until which it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) key_id: String,
    pub(crate) expires: Timestamp,
}

/// Open tickets.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// By the digest of the ticket, so that the time of a look-up shows nothing of one. Locked for a pass over
    /// [`MAX_OPEN`] entries at the longest, and never across an await.
    open: Mutex<HashMap<String, (Proof, Timestamp)>>,
}

impl Tickets {
    /// Opens a ticket and returns it with the time at which it expires. Fails
    /// with the number of tickets that are open where there may be no more.
    pub(crate) fn open(&self, proof: Proof, now: Timestamp) -> Result<(String, Timestamp), usize> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, (_, expires)| now < *expires);
        let of_key = open
            .values()
            .filter(|(other, _)| other.key_id == proof.key_id);
        for (maximum, count) in [(MAX_OPEN_OF_KEY, of_key.count()), (MAX_OPEN, open.len())] {
            if count >= maximum {
                return Err(maximum);
            }
        }
        let (ticket, expires) = (credential::new_ticket(), now.plus(LIFE));
        open.insert(credential::digest(&ticket), (proof, expires));
        Ok((ticket, expires))
    }

    /// Uses a ticket up.
    pub(crate) fn take(&self, ticket: &str, now: Timestamp) -> Option<Proof> {
        let digest = credential::digest(ticket);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (proof, expires) = open.remove(&digest)?;
        (now < expires).then_some(proof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(key_id: String) -> Proof {
        Proof {
            key_id,
            expires: Timestamp::from_unix_nanos(i64::MAX),
        }
    }

    #[test]
    fn a_ticket_is_good_once_and_for_thirty_seconds() {
        let (tickets, now) = (Tickets::default(), Timestamp::default());
        let (ticket, expires) = tickets.open(proof("k".to_owned()), now).unwrap();
        assert_eq!(tickets.take(&ticket, now), Some(proof("k".to_owned())));
        assert_eq!(tickets.take(&ticket, now), None);
        let (ticket, _) = tickets.open(proof("k".to_owned()), now).unwrap();
        assert_eq!(tickets.take(&ticket, expires), None);
    }

    #[test]
    fn open_tickets_are_bounded_for_each_key_and_for_all() {
        let (tickets, now) = (Tickets::default(), Timestamp::default());
        let mut opened = 0;
        for key in 0.. {
            let of_key = || tickets.open(proof(key.to_string()), now).ok();
            let count = std::iter::from_fn(of_key).count();
            opened += count;
            if count < MAX_OPEN_OF_KEY {
                break;
            }
        }
        assert_eq!(opened, MAX_OPEN);
        let later = now.plus(LIFE);
        assert!(tickets.open(proof("k".to_owned()), later).is_ok());
    }
}
