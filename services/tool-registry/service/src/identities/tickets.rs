//! Tickets: credentials for one use within 30 s. They do not outlast the process.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use core_types::{Tenant, Timestamp};

use super::credential;
use super::proof::Proof;

/// The life of a ticket.
pub(crate) const LIFE: Duration = Duration::from_secs(30);

/// The most open tickets: of one prover, of one tenant, and of all, which are in memory.
const MAX_OPEN: [usize; 3] = [64, 8_192, 65_536];

/// A ticket that is open.
#[derive(Debug)]
struct OpenTicket {
    proof: Proof,
    tenant: Option<Tenant>,
    expires: Timestamp,
}

/// Open tickets.
#[derive(Debug)]
pub(crate) struct Tickets {
    /// The most that are open: of one prover, of one tenant, and of all.
    bounds: [usize; 3],
    /// By the digest of the ticket, so that the time of a look-up shows nothing of one. Locked for a pass over
    /// as many entries as there may be at the longest, and never across an await.
    open: Mutex<HashMap<String, OpenTicket>>,
}

impl Default for Tickets {
    fn default() -> Self {
        Self::within(MAX_OPEN)
    }
}

impl Tickets {
    fn within(bounds: [usize; 3]) -> Self {
        Self {
            bounds,
            open: Mutex::default(),
        }
    }

    /// Opens a ticket for a prover of a tenant and returns it with the time at which it expires. Fails
    /// with the number of tickets that are open where there may be no more.
    pub(crate) fn open(
        &self,
        proof: Proof,
        tenant: Option<Tenant>,
        now: Timestamp,
    ) -> Result<(String, Timestamp), usize> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, ticket| now < ticket.expires);
        let (mut of_prover, mut of_tenant) = (0, 0);
        for other in open.values().filter(|other| other.tenant == tenant) {
            of_tenant += 1;
            of_prover += usize::from(other.proof.by == proof.by);
        }
        let counts = [of_prover, of_tenant, open.len()];
        if let Some((_, maximum)) = counts
            .into_iter()
            .zip(self.bounds)
            .find(|(n, most)| n >= most)
        {
            return Err(maximum);
        }
        let (ticket, expires) = (credential::new_ticket(), now.plus(LIFE));
        let opened = OpenTicket {
            proof,
            tenant,
            expires,
        };
        open.insert(credential::digest(&ticket), opened);
        Ok((ticket, expires))
    }

    /// Uses a ticket up.
    pub(crate) fn take(&self, ticket: &str, now: Timestamp) -> Option<Proof> {
        let digest = credential::digest(ticket);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = open.remove(&digest)?;
        (now < ticket.expires).then_some(ticket.proof)
    }
}

#[cfg(test)]
mod tests {
    use super::super::proof::Prover;
    use super::*;

    const SYSTEM: Option<Tenant> = Some(Tenant::SYSTEM);

    fn proof(key_id: String) -> Proof {
        Proof {
            by: Prover::Key(key_id),
            expires: Timestamp::from_unix_nanos(i64::MAX),
        }
    }

    #[test]
    fn a_ticket_is_good_once_and_for_thirty_seconds() {
        let (tickets, now) = (Tickets::default(), Timestamp::default());
        let (ticket, expires) = tickets.open(proof("k".to_owned()), SYSTEM, now).unwrap();
        assert_eq!(tickets.take(&ticket, now), Some(proof("k".to_owned())));
        assert_eq!(tickets.take(&ticket, now), None);
        let (ticket, _) = tickets.open(proof("k".to_owned()), SYSTEM, now).unwrap();
        assert_eq!(tickets.take(&ticket, expires), None);
    }

    #[test]
    fn open_tickets_are_bounded_for_each_key_for_each_tenant_and_for_all() {
        let (tickets, now) = (Tickets::within([2, 3, 5]), Timestamp::default());
        let open = |key: &str, tenant, now| {
            let opened = tickets.open(proof(key.to_owned()), Some(tenant), now);
            opened.err()
        };
        let (acme, other) = (Tenant::SYSTEM, Tenant::DEFAULT);
        for (key, tenant, refused) in [
            ("a", acme, None),
            ("a", acme, None),
            ("a", acme, Some(2)),
            ("b", acme, None),
            ("c", acme, Some(3)),
            // The flood of a tenant takes nothing of another one.
            ("d", other, None),
            ("d", other, None),
            ("e", other, Some(5)),
        ] {
            assert_eq!(open(key, tenant, now), refused, "{key} {tenant}");
        }
        assert_eq!(open("a", acme, now.plus(LIFE)), None);
    }
}
