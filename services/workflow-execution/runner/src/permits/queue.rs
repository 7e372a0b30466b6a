//! The holders of permits, and the waiters.

use std::collections::{BTreeMap, HashMap};

use core_types::Tenant;
use tenancy::Tag;
use tokio::sync::oneshot;

use super::turns::Turns;
use super::{Bound, Limit, Permit, QueuePlace, limits};

/// The wait that counts as one step of priority, in nanoseconds.
const STEP: i64 = 30 * 1_000_000_000;

/// The rank of a waiter among those of its tenant: the start of its wait, earlier by its priority, then the order of
/// arrival.
type Rank = (i64, u64);

/// The tenant and the rank of a waiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    tenant: Tenant,
    rank: Rank,
}

/// The waiters under a limit, by tenant.
type Parked = HashMap<Tenant, BTreeMap<Rank, Waiter>>;

/// Holders are counted; a waiter is stored under the first limit that had no room, so that the
/// release of a permit visits only the waiters that it may help.
#[derive(Debug, Default)]
pub(super) struct Queue {
    holders: HashMap<Limit, usize>,
    parked: HashMap<Limit, Parked>,
    /// The turns at each limit that tenants share. Their number is bounded by depths and settings.
    turns: HashMap<Limit, Turns>,
    waiting: HashMap<Tenant, usize>,
    came: u64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) bounds: Vec<Bound>,
    pub(super) weight: u32,
    pub(super) sender: oneshot::Sender<Permit>,
}

/// A waiter whose turn has come and whose permits are counted.
pub(super) struct Granted {
    pub(super) limits: Vec<Limit>,
    pub(super) sender: oneshot::Sender<Permit>,
}

impl Queue {
    /// Returns the number of waiters of a tenant.
    pub(super) fn waiting(&self, tenant: Tenant) -> usize {
        self.waiting.get(&tenant).copied().unwrap_or_default()
    }

    pub(super) fn waiting_by_tenant(&self) -> Vec<(Tenant, usize)> {
        let waiting = self.waiting.iter();
        waiting.map(|(tenant, count)| (*tenant, *count)).collect()
    }

    pub(super) fn next_ticket(&mut self, place: QueuePlace) -> Ticket {
        self.came += 1;
        let earlier = i64::from(place.priority).saturating_mul(STEP);
        let since = place.since.unix_nanos().saturating_sub(earlier);
        Ticket {
            tenant: place.tenant,
            rank: (since, self.came),
        }
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

    /// Holds limits in a turn of a tenant.
    pub(super) fn begin(&mut self, limits: &[Limit], tenant: Tenant, weight: u32) {
        self.hold(limits);
        for limit in limits.iter().filter(|limit| limit.is_shared()) {
            let turns = self.turns.entry(limit.clone()).or_default();
            turns.take(tenant, weight);
        }
    }

    pub(super) fn park(&mut self, under: Limit, ticket: Ticket, waiter: Waiter) {
        let Ticket { tenant, rank } = ticket;
        *self.waiting.entry(tenant).or_default() += 1;
        if under.is_shared() {
            let turns = self.turns.entry(under.clone()).or_default();
            turns.join(tenant, waiter.weight);
        }
        let parked = self.parked.entry(under).or_default();
        parked.entry(tenant).or_default().insert(rank, waiter);
    }

    /// Removes a waiter, if it still waits.
    pub(super) fn leave(&mut self, ticket: Ticket, limits: &[Limit]) {
        for limit in limits {
            if self.unpark(limit, ticket).is_some() {
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
        while let Some((ticket, limit)) = self.first_under(&open) {
            let waiter = self.unpark(&limit, ticket).expect("it was found here");
            match self.first_full(&waiter.bounds) {
                Some(full) => {
                    open.retain(|limit| *limit != full);
                    self.park(full, ticket, waiter);
                }
                None => granted.push(self.grant(ticket.tenant, waiter)),
            }
        }
        granted
    }

    fn grant(&mut self, tenant: Tenant, waiter: Waiter) -> Granted {
        let limits = limits(&waiter.bounds);
        self.begin(&limits, tenant, waiter.weight);
        Granted {
            limits,
            sender: waiter.sender,
        }
    }

    /// Returns the waiter that is next, and the limit under which it is. Waiters under different limits compete for
    /// the last one of their bounds, so the turns there decide between them; waiters with different last ones do not
    /// compete.
    fn first_under<'a>(&'a self, open: &'a [Limit]) -> Option<(Ticket, Limit)> {
        let mut firsts: HashMap<Option<&Limit>, (Tag, Rank, Tenant, &Limit)> = HashMap::new();
        for limit in open {
            let Some((Ticket { tenant, rank }, waiter)) = self.first_of(limit) else {
                continue;
            };
            let last = waiter.bounds.last().map(|(limit, _)| limit);
            let tag = last.map_or_else(Tag::default, |last| self.tag(last, tenant));
            let found = (tag, rank, tenant, limit);
            let first = firsts.entry(last).or_insert(found);
            if (tag, rank) < (first.0, first.1) {
                *first = found;
            }
        }
        let first = firsts.into_values().min_by_key(|(_, rank, ..)| *rank);
        first.map(|(_, rank, tenant, limit)| (Ticket { tenant, rank }, limit.clone()))
    }

    /// Returns the waiter under a limit whose tenant's turn comes first there.
    fn first_of(&self, limit: &Limit) -> Option<(Ticket, &Waiter)> {
        let parked = self.parked.get(limit)?.iter();
        let firsts = parked.filter_map(|(tenant, waiters)| {
            let (rank, waiter) = waiters.first_key_value()?;
            let (tenant, rank) = (*tenant, *rank);
            Some((Ticket { tenant, rank }, waiter))
        });
        firsts.min_by_key(|(ticket, _)| (self.tag(limit, ticket.tenant), ticket.rank))
    }

    /// Returns the tag of a tenant's first turn at a limit; of no meaning at one that tenants do not share.
    fn tag(&self, limit: &Limit, tenant: Tenant) -> Tag {
        let turns = self.turns.get(limit);
        turns.map_or_else(Tag::default, |turns| turns.first(tenant))
    }

    fn unpark(&mut self, limit: &Limit, Ticket { tenant, rank }: Ticket) -> Option<Waiter> {
        let parked = self.parked.get_mut(limit)?;
        let waiters = parked.get_mut(&tenant)?;
        let waiter = waiters.remove(&rank)?;
        if waiters.is_empty() {
            parked.remove(&tenant);
        }
        if parked.is_empty() {
            self.parked.remove(limit);
        }
        if let Some(turns) = self.turns.get_mut(limit) {
            turns.leave(tenant);
        }
        if let Some(waiting) = self.waiting.get_mut(&tenant) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&tenant);
            }
        }
        Some(waiter)
    }
}
