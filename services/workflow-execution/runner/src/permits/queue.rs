//! The holders of permits, and the waiters.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::oneshot;

use super::{Bound, Limit, Permit, QueuePlace, limits};

/// The wait that counts as one step of priority, in nanoseconds.
const STEP: i64 = 30 * 1_000_000_000;

/// The rank of a waiter: the start of its wait, earlier by its priority, then the order of arrival.
pub(super) type Rank = (i64, u64);

/// Holders are counted; a waiter is stored under the first limit that had no room, so that the
/// release of a permit visits only the waiters that it may help.
#[derive(Debug, Default)]
pub(super) struct Queue {
    holders: HashMap<Limit, usize>,
    parked: HashMap<Limit, BTreeMap<Rank, Waiter>>,
    waiting: usize,
    came: u64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) bounds: Vec<Bound>,
    pub(super) sender: oneshot::Sender<Permit>,
}

/// A waiter whose turn has come and whose permits are counted.
pub(super) struct Granted {
    pub(super) limits: Vec<Limit>,
    pub(super) sender: oneshot::Sender<Permit>,
}

impl Queue {
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn next_rank(&mut self, place: QueuePlace) -> Rank {
        self.came += 1;
        let earlier = i64::from(place.priority).saturating_mul(STEP);
        let since = place.since.unix_nanos().saturating_sub(earlier);
        (since, self.came)
    }

    pub(super) fn is_held(&self, limit: &Limit) -> bool {
        self.holders.contains_key(limit)
    }

    /// Returns the first limit without room.
    pub(super) fn first_full(&self, bounds: &[Bound]) -> Option<Limit> {
        let full =
            |(limit, most): &&Bound| self.holders.get(limit).is_some_and(|held| held >= most);
        bounds.iter().find(full).map(|(limit, _)| limit.clone())
    }

    pub(super) fn hold(&mut self, limits: &[Limit]) {
        for limit in limits {
            *self.holders.entry(limit.clone()).or_default() += 1;
        }
    }

    pub(super) fn park(&mut self, under: Limit, rank: Rank, waiter: Waiter) {
        self.waiting += 1;
        self.parked.entry(under).or_default().insert(rank, waiter);
    }

    /// Removes a waiter, if it still waits.
    pub(super) fn leave(&mut self, rank: Rank, limits: &[Limit]) {
        for limit in limits {
            if self.unpark(limit, rank).is_some() {
                return;
            }
        }
    }

    /// Releases a permit and grants permits to the waiters that have room now.
    pub(super) fn release(&mut self, limits: &[Limit]) -> Vec<Granted> {
        for limit in limits {
            let held = self.holders.get_mut(limit).expect("a permit is counted");
            *held -= 1;
            if *held == 0 {
                self.holders.remove(limit);
            }
        }
        let mut open = limits.to_vec();
        let mut granted = Vec::new();
        while let Some((rank, limit)) = self.first_under(&open) {
            let waiter = self.unpark(&limit, rank).expect("it was found here");
            match self.first_full(&waiter.bounds) {
                Some(full) => {
                    open.retain(|limit| *limit != full);
                    self.park(full, rank, waiter);
                }
                None => granted.push(self.grant(waiter)),
            }
        }
        granted
    }

    fn grant(&mut self, waiter: Waiter) -> Granted {
        let limits = limits(&waiter.bounds);
        self.hold(&limits);
        Granted {
            limits,
            sender: waiter.sender,
        }
    }

    fn first_under(&self, open: &[Limit]) -> Option<(Rank, Limit)> {
        let first = |limit: &Limit| {
            let (rank, _) = self.parked.get(limit)?.first_key_value()?;
            Some((*rank, limit.clone()))
        };
        open.iter().filter_map(first).min_by_key(|(rank, _)| *rank)
    }

    fn unpark(&mut self, limit: &Limit, rank: Rank) -> Option<Waiter> {
        let parked = self.parked.get_mut(limit)?;
        let waiter = parked.remove(&rank)?;
        if parked.is_empty() {
            self.parked.remove(limit);
        }
        self.waiting -= 1;
        Some(waiter)
    }
}
