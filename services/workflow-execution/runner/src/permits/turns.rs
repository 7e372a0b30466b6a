//! The turns of tenants at a limit.

use std::collections::{HashMap, VecDeque};

use core_types::Tenant;
use tenancy::{Tag, Tags};

/// The order in which tenants have turns at a limit. A tag belongs to a tenant, not to one of its entries.
#[derive(Debug, Default)]
pub(super) struct Turns {
    tags: Tags,
    /// The tags of the entries that wait, the first one in front, each with the weight by which it was made.
    waiting: HashMap<Tenant, VecDeque<(Tag, u32)>>,
}

impl Turns {
    /// Adds an entry of a tenant that waits.
    pub(super) fn join(&mut self, tenant: Tenant, weight: u32) {
        let tag = self.tags.next(tenant, weight);
        self.waiting
            .entry(tenant)
            .or_default()
            .push_back((tag, weight));
    }

    /// Removes an entry of a tenant that has waited.
    pub(super) fn leave(&mut self, tenant: Tenant) {
        let newest = self.waiting.get_mut(&tenant).and_then(VecDeque::pop_back);
        if let Some((_, weight)) = newest {
            self.tags.give_up(tenant, weight);
        }
        self.forget_if_empty(tenant);
    }

    /// Gives an entry of a tenant that does not wait the first turn of the tenant.
    pub(super) fn take(&mut self, tenant: Tenant, weight: u32) {
        self.join(tenant, weight);
        let first = self.waiting.get_mut(&tenant).and_then(VecDeque::pop_front);
        if let Some((tag, _)) = first {
            self.tags.granted(tag);
        }
        self.forget_if_empty(tenant);
    }

    /// Returns the tag of the first turn of a tenant.
    pub(super) fn first(&self, tenant: Tenant) -> Tag {
        let first = self.waiting.get(&tenant).and_then(VecDeque::front);
        first.map_or_else(|| self.tags.peek(tenant), |(tag, _)| *tag)
    }

    fn forget_if_empty(&mut self, tenant: Tenant) {
        if self.waiting.get(&tenant).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(&tenant);
        }
    }
}
