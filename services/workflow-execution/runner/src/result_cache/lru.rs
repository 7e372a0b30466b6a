//! A map that drops its least recently used entries.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Entries with weights, dropped in the order of their last use.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    entries: HashMap<K, Entry<V>>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
    weight: usize,
    max_weight: usize,
    max_entries: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<K: Copy + Eq + Hash, V> Lru<K, V> {
    pub(super) fn new(max_weight: usize, max_entries: usize) -> Self {
        Self {
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            weight: 0,
            max_weight,
            max_entries,
        }
    }

    /// Returns an entry, which becomes the most recently used.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        self.by_use.remove(&entry.used);
        self.by_use.insert(self.uses, *key);
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// Inserts an entry, and returns the keys of the dropped ones.
    pub(super) fn put(&mut self, key: K, value: V, weight: usize) -> Vec<K> {
        self.remove(&key);
        self.uses += 1;
        let used = self.uses;
        self.by_use.insert(used, key);
        self.entries.insert(
            key,
            Entry {
                value,
                weight,
                used,
            },
        );
        self.weight += weight;
        let mut gone = Vec::new();
        while self.weight > self.max_weight || self.entries.len() > self.max_entries {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            self.remove(&oldest);
            gone.push(oldest);
        }
        gone
    }

    /// Removes every entry whose key `is_gone` names.
    pub(super) fn remove_all(&mut self, is_gone: impl Fn(&K) -> bool) {
        let gone: Vec<K> = self
            .entries
            .keys()
            .copied()
            .filter(|key| is_gone(key))
            .collect();
        for key in gone {
            self.remove(&key);
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_use.remove(&entry.used);
            self.weight -= entry.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_gives_way_to_weight_and_number() {
        let mut lru = Lru::new(10, 3);
        assert!(lru.put(1, "a", 4).is_empty());
        assert!(lru.put(2, "b", 4).is_empty());
        assert_eq!(lru.get(&1), Some(&mut "a"));
        assert_eq!(lru.put(3, "c", 4), [2]);
        assert!(lru.put(1, "d", 1).is_empty());
        assert!(lru.put(4, "e", 1).is_empty());
        assert_eq!(lru.put(5, "f", 1), [3]);
        assert_eq!(lru.get(&1), Some(&mut "d"));
        assert_eq!(lru.get(&3), None);
        assert_eq!(lru.put(6, "g", 11), [4, 5, 1, 6]);
        assert_eq!((lru.weight, lru.by_use.len()), (0, 0));
    }

    #[test]
    fn entries_are_removed_by_their_keys() {
        let mut lru = Lru::new(10, 5);
        for key in 1..=4 {
            assert!(lru.put(key, "a", 2).is_empty());
        }
        lru.remove_all(|key| key % 2 == 0);
        assert_eq!((lru.weight, lru.by_use.len()), (4, 2));
        assert_eq!(lru.get(&2), None);
        assert_eq!(lru.get(&3), Some(&mut "a"));
    }
}
