//! Start-time fair queueing: the order in which tenants have their turns (rule W51).

use std::collections::HashMap;

use core_types::Tenant;

/// The step of a tenant of weight one from a tag to its next.
const UNIT: u64 = 1 << 20;

/// The place of a turn in the order: the smallest is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u64);

/// Gives out tags for turns of one kind. A tenant's next tag is behind its last one by `1 / weight`, and never behind the
/// present turn: to idle earns nothing. The cost of rule W51 would only matter between turns of several kinds, which have
/// queues of their own.
#[derive(Debug, Default)]
pub struct Tags {
    /// The tag of the turn that was granted last.
    clock: u64,
    /// The end of the last tag of each tenant that is ahead of the clock.
    last: HashMap<Tenant, u64>,
}

impl Tags {
    /// Returns the tag of a turn of a tenant that has just become ready. `weight` is at least 1.
    pub fn next(&mut self, tenant: Tenant, weight: u32) -> Tag {
        let start = self.start(tenant);
        let step = UNIT / u64::from(weight.max(1));
        self.last.insert(tenant, start.saturating_add(step));
        Tag(start)
    }

    /// Returns the tag that [`Tags::next`] would return.
    pub fn peek(&self, tenant: Tenant) -> Tag {
        Tag(self.start(tenant))
    }

    /// Takes back the newest tag of a tenant whose turn was given up before it came.
    pub fn give_up(&mut self, tenant: Tenant, weight: u32) {
        let step = UNIT / u64::from(weight.max(1));
        if let Some(last) = self.last.get_mut(&tenant) {
            *last = last.saturating_sub(step);
        }
    }

    /// Advances the clock to a turn that is granted.
    pub fn granted(&mut self, tag: Tag) {
        self.clock = self.clock.max(tag.0);
        let clock = self.clock;
        self.last.retain(|_, last| *last > clock);
    }

    fn start(&self, tenant: Tenant) -> u64 {
        let last = self.last.get(&tenant).copied();
        last.map_or(self.clock, |last| last.max(self.clock))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn tenant(number: usize) -> Tenant {
        Tenant::new(&format!("t{number}")).unwrap()
    }

    /// Grants `turns` turns of tenants that always have work, and returns the number of each.
    fn shares(weights: &[u32], turns: usize) -> Vec<usize> {
        let mut tags = Tags::default();
        let mut queue = BTreeMap::new();
        for (number, weight) in weights.iter().enumerate() {
            let tag = tags.next(tenant(number), *weight);
            queue.insert((tag, number), ());
        }
        let mut shares = vec![0; weights.len()];
        for _ in 0..turns {
            let ((tag, number), ()) = queue.pop_first().unwrap();
            tags.granted(tag);
            shares[number] += 1;
            let tag = tags.next(tenant(number), weights[number]);
            queue.insert((tag, number), ());
        }
        shares
    }

    #[test]
    fn w51_tenants_share_by_weight() {
        assert_eq!(shares(&[1, 2, 4], 700), [100, 200, 400]);
    }

    #[test]
    fn w51_idling_earns_nothing_and_a_backlog_does_not_delay_another() {
        let mut tags = Tags::default();
        let [busy, other] = [0, 1].map(tenant);
        let backlog: Vec<Tag> = (0..1_000).map(|_| tags.next(busy, 1)).collect();
        tags.granted(backlog[500]);
        let late = tags.next(other, 1);
        // It is next, and has no credit from the time before.
        assert_eq!(late, backlog[500]);
        assert!(tags.next(other, 1) > late);
    }

    #[test]
    fn a_turn_that_is_given_up_costs_nothing() {
        let mut tags = Tags::default();
        let first = tags.next(tenant(0), 3);
        tags.give_up(tenant(0), 3);
        assert_eq!(tags.next(tenant(0), 3), first);
    }

    proptest! {
        #[test]
        fn w51_every_share_is_within_one_turn_of_its_weight(
            weights in proptest::collection::vec(1_u32..20, 1..6),
        ) {
            let total: u32 = weights.iter().sum();
            let turns = 200 * total as usize;
            for (share, weight) in shares(&weights, turns).into_iter().zip(&weights) {
                let due = 200 * *weight as usize;
                prop_assert!(share.abs_diff(due) <= weights.len() + 1, "{share} of {due}");
            }
        }
    }
}
