//! Processor time of a tree whose members come and go.
//!
//! The kernel adds a process's time to its parent's when the parent waits for it. A parent that waits
//! for nobody, which it may, lets the time of its children vanish. So the time of everybody who was
//! ever seen is kept here, and of what parents got by waiting only the part that is of nobody who was
//! seen is added.

use std::{collections::HashMap, mem, time::Duration};

use super::process::Process;

/// The processor time of a tree.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Whoever was in the tree at the last look.
    present: HashMap<Key, Account>,
    /// Whoever was not, for the first time. A tree changes while it is looked at, and who seems to be
    /// gone may have only moved.
    missing: HashMap<Key, Account>,
    /// What everybody who was seen has used.
    own: Duration,
    /// What was waited for and is of nobody who was seen.
    unseen: Duration,
    /// What nobody waited for.
    lost: Duration,
}

/// Tells processes apart: the number and the start.
type Key = (u32, u64);

/// How many looks at most lie between the one that finds a process's time with its parent and the one
/// that is sure of the process's end.
const DELAY: usize = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    parent: u32,
    own: Duration,
    waited: Duration,
    /// By how much the above grew at the last looks, the present one last, without somebody known
    /// whose time it was.
    unclaimed: [Duration; DELAY + 1],
}

impl Ledger {
    /// Takes note of everybody in the tree; who has lost its parent is adopted by one of `adopters`,
    /// the beginning of the list.
    pub(super) fn note(&mut self, everybody: &[Process], adopters: usize) {
        let mut before = mem::take(&mut self.present);
        let mut missed = mem::take(&mut self.missing);
        for process in everybody {
            let key = (process.pid, process.started);
            let known = before.remove(&key).or_else(|| missed.remove(&key));
            let mut account = known.unwrap_or_default();
            account.parent = process.parent;
            self.own += account.update(process);
            self.present.insert(key, account);
        }
        self.missing = before;
        let first = everybody.get(..adopters).unwrap_or_default();
        let adopters: Vec<u32> = first.iter().map(|process| process.pid).collect();
        self.settle(&missed, &adopters);
        for account in self.present.values_mut().chain(self.missing.values_mut()) {
            self.unseen += account.unclaimed[0];
            account.unclaimed.rotate_left(1);
            account.unclaimed[DELAY] = Duration::ZERO;
        }
    }

    /// All the processor time that is known of.
    pub(super) fn total(&self) -> Duration {
        self.own + self.unseen
    }

    /// The part of it that nobody waited for.
    pub(super) fn lost(&self) -> Duration {
        self.lost
    }

    /// Holds the time of those who have gone against what those above them have got. Nobody else can
    /// have got it, and what others got is of somebody else.
    fn settle(&mut self, gone: &HashMap<Key, Account>, adopters: &[u32]) {
        let parents: HashMap<u32, u32> = gone
            .iter()
            .map(|((pid, _), account)| (*pid, account.parent))
            .collect();
        let mut left: HashMap<u32, &mut Account> = HashMap::new();
        for ((pid, _), account) in self.missing.iter_mut().chain(&mut self.present) {
            left.insert(*pid, account);
        }
        for account in gone.values() {
            let mut owed = account.own + account.waited;
            let mut above = account.parent;
            // Every step goes up, but numbers that were used again may lead astray.
            for _ in 0..=left.len() + parents.len() {
                let next = match left.get_mut(&above) {
                    Some(heir) => {
                        heir.give(&mut owed);
                        heir.parent
                    }
                    None => match parents.get(&above) {
                        Some(parent) => *parent,
                        None => break,
                    },
                };
                above = next;
            }
            for adopter in adopters {
                if let Some(heir) = left.get_mut(adopter) {
                    heir.give(&mut owed);
                }
            }
            self.lost += owed;
            // Whose it is will not be known any more.
            self.unseen += account.unclaimed.iter().sum::<Duration>();
        }
    }
}

impl Account {
    /// Enters new times; tells by how much its own has grown. The kernel never counts backwards, and
    /// a time that seems to is kept as it was.
    fn update(&mut self, process: &Process) -> Duration {
        let (own, waited) = (self.own, self.waited);
        self.own = process.own.max(own);
        self.waited = process.waited.max(waited);
        self.unclaimed[DELAY] = self.waited - waited;
        self.own - own
    }

    /// Takes from what is owed what was got, the oldest first.
    fn give(&mut self, owed: &mut Duration) {
        for got in &mut self.unclaimed {
            let claimed = (*got).min(*owed);
            *owed -= claimed;
            *got -= claimed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::process, *};

    /// One look: who is there, of whom, with their own time and what they waited for, in milliseconds.
    /// The first adopts.
    type Look<'a> = &'a [(u32, u32, u64, u64)];

    /// What was used and what of it was lost after some looks, in milliseconds. As many looks at
    /// nothing new follow as it takes until everything is known.
    fn check(looks: &[Look<'_>], total: u128, lost: u128) {
        let mut ledger = Ledger::default();
        let last = looks.iter().rev().take(1).cycle().take(DELAY + 1);
        for look in looks.iter().chain(last) {
            let everybody: Vec<_> = look
                .iter()
                .map(|&(pid, parent, own, waited)| process::with_times(pid, parent, own, waited))
                .collect();
            ledger.note(&everybody, 1);
        }
        let found = (ledger.total().as_millis(), ledger.lost().as_millis());
        assert_eq!(found, (total, lost), "{looks:?}");
    }

    #[test]
    fn what_is_waited_for_counts_once() {
        check(
            &[&[(1, 0, 10, 0), (2, 1, 90, 0)], &[(1, 0, 10, 100)]],
            110,
            0,
        );
        // Never seen, and seen only at its start.
        check(&[&[(1, 0, 10, 0)], &[(1, 0, 10, 70)]], 80, 0);
        check(&[&[(1, 0, 10, 0), (2, 1, 0, 0)], &[(1, 0, 10, 70)]], 80, 0);
        // It was there already at the first look.
        check(&[&[(1, 0, 10, 70)]], 80, 0);
    }

    #[test]
    fn who_ends_with_its_parent_counts_once() {
        let family: Look<'_> = &[(1, 0, 0, 0), (2, 1, 50, 0), (3, 2, 90, 0)];
        check(&[family, &[(1, 0, 0, 140)]], 140, 0);
        // The child is adopted, and its adopter waits for it.
        check(
            &[family, &[(1, 0, 0, 50), (3, 1, 95, 0)], &[(1, 0, 0, 145)]],
            145,
            0,
        );
        let older: Look<'_> = &[(1, 0, 0, 0), (2, 1, 50, 90)];
        check(&[family, older, &[(1, 0, 0, 140)]], 140, 0);
    }

    #[test]
    fn what_nobody_waits_for_is_kept() {
        check(
            &[&[(1, 0, 10, 0), (2, 1, 90, 0)], &[(1, 0, 10, 0)]],
            100,
            90,
        );
        let bomb: &[Look<'_>] = &[
            &[(1, 0, 0, 0), (2, 1, 40, 0)],
            &[(1, 0, 0, 0), (3, 1, 40, 0)],
            &[(1, 0, 0, 0), (4, 1, 40, 0)],
            &[(1, 0, 0, 0)],
        ];
        check(bomb, 120, 120);
    }

    #[test]
    fn what_a_lost_child_had_waited_for_is_kept_too() {
        check(&[&[(1, 0, 0, 0), (2, 1, 5, 50)], &[(1, 0, 0, 0)]], 55, 55);
        // Nobody takes it for the time of a sister.
        let chain: &[Look<'_>] = &[
            &[(1, 0, 0, 0), (2, 1, 5, 50)],
            &[(1, 0, 0, 0), (3, 1, 5, 50)],
            &[(1, 0, 0, 0), (4, 1, 5, 50)],
            &[(1, 0, 0, 0)],
        ];
        check(chain, 165, 165);
    }

    #[test]
    fn a_look_while_a_parent_waits_counts_nothing_twice() {
        // The parent was read before it waited, or its child after.
        let child = (2, 1, 90, 0);
        let late: &[Look<'_>] = &[&[(1, 0, 0, 0), child], &[(1, 0, 0, 0)], &[(1, 0, 0, 90)]];
        check(late, 90, 0);
        check(&[&[(1, 0, 0, 90), child], &[(1, 0, 0, 90)]], 90, 0);
        // The child was missed once, as its parent had just gone.
        let back = &[(1, 0, 0, 0), (2, 1, 95, 0)];
        check(&[&[(1, 0, 0, 0), child], &[(1, 0, 0, 0)], back], 95, 0);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut ledger = Ledger::default();
        for started in [1, 2, 3] {
            let mut process = process::with_times(7, 1, 30, 0);
            process.started = started;
            ledger.note(&[process], 1);
        }
        assert_eq!(ledger.total().as_millis(), 90);
    }

    #[test]
    fn times_that_run_backwards_change_nothing() {
        let looks: &[Look<'_>] = &[&[(1, 0, 50, 40)], &[(1, 0, 20, 10)], &[(1, 0, 60, 40)]];
        check(looks, 100, 0);
    }
}
