//! The list of blobs, and the choice of blobs to evict.
//!
//! This module touches no disk and reads no clock: the caller carries out its answers.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime},
};

use core_types::Tenant;

use crate::{
    BlobDigest,
    caller::Caller,
    error::BlobError,
    key::Key,
    settings::{BLOCK, BlobSettings},
};

/// Every blob in the store.
#[derive(Debug)]
pub(crate) struct Index {
    total: u64,
    per_caller: u64,
    largest: u64,
    time_to_live: Duration,
    entries: HashMap<Key, Entry>,
    /// All blobs by their last use, the oldest first.
    order: BTreeMap<u64, Key>,
    callers: HashMap<Caller, Account>,
    tenants: HashMap<Tenant, TenantAccount>,
    /// Bytes of all blobs, stored or being received.
    bytes: u64,
    /// The number of the next use.
    next: u64,
}

#[derive(Debug)]
struct Entry {
    size: u64,
    use_number: u64,
    used: SystemTime,
    pins: u32,
}

/// The blobs of one caller.
#[derive(Debug, Default)]
struct Account {
    bytes: u64,
    order: BTreeMap<u64, BlobDigest>,
}

/// The blobs of one tenant.
#[derive(Debug, Default)]
struct TenantAccount {
    bytes: u64,
    order: BTreeMap<u64, Key>,
}

/// Reservation for a blob that is being received. It must be returned by [`Index::release`] or
/// turned into a blob by [`Index::settle`].
#[derive(Debug)]
pub(crate) struct Reservation {
    caller: Caller,
    size: u64,
    /// Its charge to the budgets.
    charged: u64,
}

impl Reservation {
    pub(crate) fn none(caller: Caller) -> Self {
        Self {
            caller,
            size: 0,
            charged: 0,
        }
    }

    pub(crate) fn tenant(&self) -> Tenant {
        self.caller.tenant()
    }
}

/// The result of enlarging a reservation.
#[derive(Debug)]
pub(crate) struct Enlarged {
    /// Evicted blobs, with their sizes; their files must be removed.
    pub(crate) gone: Vec<(Key, u64)>,
    /// Whether there is room now, or the error.
    pub(crate) fits: Result<(), BlobError>,
}

/// The charge of a blob of `size` bytes.
fn charge(size: u64) -> u64 {
    size.div_ceil(BLOCK).max(1).saturating_mul(BLOCK)
}

impl Index {
    pub(crate) fn new(settings: &BlobSettings) -> Self {
        Self {
            total: settings.total as u64,
            per_caller: settings.per_caller as u64,
            largest: settings.largest as u64,
            time_to_live: settings.time_to_live,
            entries: HashMap::new(),
            order: BTreeMap::new(),
            callers: HashMap::new(),
            tenants: HashMap::new(),
            bytes: 0,
            next: 0,
        }
    }

    /// Adds a blob that was found on disk. Blobs must be added in the order of their last use.
    pub(crate) fn found(&mut self, key: Key, size: u64, used: SystemTime) {
        self.charge(&key.caller, charge(size));
        self.enter(key, size, used, 0);
    }

    /// Enlarges `room` by `bytes`. The oldest blobs are evicted for it, of the same caller if that
    /// caller's budget is used up, otherwise of the tenant that has most bytes; none that is in use.
    /// None is evicted for the bound of the tenant, `most`.
    pub(crate) fn enlarge(
        &mut self,
        room: &mut Reservation,
        bytes: u64,
        most: Option<u64>,
    ) -> Enlarged {
        let mut gone = Vec::new();
        let fits = self.try_enlarge(room, (bytes, most), &mut gone);
        Enlarged { gone, fits }
    }

    fn try_enlarge(
        &mut self,
        room: &mut Reservation,
        (bytes, most): (u64, Option<u64>),
        gone: &mut Vec<(Key, u64)>,
    ) -> Result<(), BlobError> {
        let size = room.size.saturating_add(bytes);
        if size > self.largest {
            return Err(BlobError::TooLarge {
                maximum: self.largest,
                observed: size,
            });
        }
        let more = charge(size) - room.charged;
        while self.of(&room.caller) + more > self.per_caller {
            let oldest = self.oldest_of(&room.caller);
            self.let_go(oldest, gone).ok_or(BlobError::NoRoom {
                maximum: self.per_caller,
                observed: self.of(&room.caller) + more,
            })?;
        }
        if let Some(maximum) = most
            && more > 0
            && self.of_tenant(room.caller.tenant()) + more > maximum
        {
            return Err(BlobError::TenantFull { maximum });
        }
        while self.bytes + more > self.total {
            let (oldest, maximum) = (self.oldest(), self.total);
            self.let_go(oldest, gone)
                .ok_or(BlobError::Full { maximum })?;
        }
        self.charge(&room.caller, more);
        room.charged += more;
        room.size = size;
        Ok(())
    }

    /// Evicts a blob. `None`: no blob could be evicted.
    fn let_go(&mut self, oldest: Option<Key>, gone: &mut Vec<(Key, u64)>) -> Option<()> {
        let key = oldest?;
        let size = self.remove(&key)?;
        gone.push((key, size));
        Some(())
    }

    /// Returns a reservation.
    pub(crate) fn release(&mut self, room: &mut Reservation) {
        self.discharge(&room.caller, room.charged);
        (room.size, room.charged) = (0, 0);
    }

    /// Turns a reservation into a blob of exactly that size, and pins it once.
    pub(crate) fn settle(&mut self, room: &mut Reservation, digest: BlobDigest, now: SystemTime) {
        let size = room.size;
        (room.size, room.charged) = (0, 0);
        self.enter(Key::new(&room.caller, digest), size, now, 1);
    }

    /// Pins a blob, which counts as a use; returns its size.
    pub(crate) fn pin(&mut self, key: &Key, now: SystemTime) -> Option<u64> {
        let size = self.touch(key, now)?;
        self.entries.get_mut(key)?.pins += 1;
        Some(size)
    }

    /// Removes a pin.
    pub(crate) fn unpin(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.pins = entry.pins.saturating_sub(1);
        }
    }

    /// Counts a use; returns the blob's size.
    pub(crate) fn touch(&mut self, key: &Key, now: SystemTime) -> Option<u64> {
        let entry = self.entries.get_mut(key)?;
        // An expired blob is gone, even before a sweep has removed it.
        if entry.pins == 0 && has_aged(entry.used, now, self.time_to_live) {
            return None;
        }
        let (before, size) = (entry.use_number, entry.size);
        entry.used = now;
        entry.use_number = self.next;
        self.leave_order(key, before);
        self.enter_order(key);
        Some(size)
    }

    /// Forgets a blob; returns its size.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<u64> {
        let entry = self.entries.remove(key)?;
        self.leave_order(key, entry.use_number);
        self.discharge(&key.caller, charge(entry.size));
        Some(entry.size)
    }

    /// Forgets blobs that have not been used for too long and are not in use.
    pub(crate) fn take_aged(&mut self, now: SystemTime) -> Vec<(Key, u64)> {
        let is_aged = |key: &&Key| {
            let entry = self.entries.get(*key);
            entry.is_some_and(|entry| has_aged(entry.used, now, self.time_to_live))
        };
        let aged = self.order.values().take_while(is_aged);
        let aged: Vec<Key> = aged.filter(|key| self.is_free(key)).cloned().collect();
        let mut remove = |key: Key| Some((key.clone(), self.remove(&key)?));
        aged.into_iter().filter_map(&mut remove).collect()
    }

    fn enter(&mut self, key: Key, size: u64, used: SystemTime, pins: u32) {
        let entry = Entry {
            size,
            use_number: self.next,
            used,
            pins,
        };
        self.enter_order(&key);
        self.entries.insert(key, entry);
    }

    /// Makes a blob the most recently used one, under the number of the next use.
    fn enter_order(&mut self, key: &Key) {
        self.order.insert(self.next, key.clone());
        let account = self.callers.entry(key.caller.clone()).or_default();
        account.order.insert(self.next, key.digest);
        let tenant = self.tenants.entry(key.caller.tenant()).or_default();
        tenant.order.insert(self.next, key.clone());
        self.next += 1;
    }

    fn leave_order(&mut self, key: &Key, use_number: u64) {
        self.order.remove(&use_number);
        if let Some(account) = self.callers.get_mut(&key.caller) {
            account.order.remove(&use_number);
        }
        if let Some(tenant) = self.tenants.get_mut(&key.caller.tenant()) {
            tenant.order.remove(&use_number);
        }
    }

    /// Returns the bytes of each tenant, stored or being received.
    pub(crate) fn bytes_by_tenant(&self) -> Vec<(Tenant, u64)> {
        let tenants = self.tenants.iter();
        tenants
            .map(|(tenant, account)| (*tenant, account.bytes))
            .collect()
    }

    /// Returns the first blobs of a tenant that are not in use, with their sizes.
    pub(crate) fn free_of(&self, tenant: Tenant, most: usize) -> Vec<(Key, u64)> {
        let keys = self
            .tenants
            .get(&tenant)
            .into_iter()
            .flat_map(|account| account.order.values());
        let free = keys.filter(|key| self.is_free(key));
        let sized = free.filter_map(|key| Some((key.clone(), self.entries.get(key)?.size)));
        sized.take(most).collect()
    }

    /// Returns the number of blobs of a tenant; one more while some are being received.
    pub(crate) fn count_of(&self, tenant: Tenant) -> u64 {
        let Some(account) = self.tenants.get(&tenant) else {
            return 0;
        };
        let sizes = account
            .order
            .values()
            .filter_map(|key| self.entries.get(key));
        let stored: u64 = sizes.map(|entry| charge(entry.size)).sum();
        account.order.len() as u64 + u64::from(account.bytes > stored)
    }

    fn of_tenant(&self, tenant: Tenant) -> u64 {
        let account = self.tenants.get(&tenant);
        account.map_or(0, |account| account.bytes)
    }

    fn of(&self, caller: &Caller) -> u64 {
        self.callers.get(caller).map_or(0, |account| account.bytes)
    }

    fn charge(&mut self, caller: &Caller, bytes: u64) {
        self.bytes += bytes;
        self.callers.entry(caller.clone()).or_default().bytes += bytes;
        self.tenants.entry(caller.tenant()).or_default().bytes += bytes;
    }

    fn discharge(&mut self, caller: &Caller, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(account) = self.callers.get_mut(caller) {
            account.bytes = account.bytes.saturating_sub(bytes);
            if account.bytes == 0 {
                self.callers.remove(caller);
            }
        }
        if let Some(tenant) = self.tenants.get_mut(&caller.tenant()) {
            tenant.bytes = tenant.bytes.saturating_sub(bytes);
            if tenant.bytes == 0 {
                self.tenants.remove(&caller.tenant());
            }
        }
    }

    fn is_free(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.pins == 0)
    }

    /// The blob that was not used for the longest time, of the tenant with most bytes that has one which is not in use.
    fn oldest(&self) -> Option<Key> {
        let mut tenants: Vec<&TenantAccount> = self.tenants.values().collect();
        tenants.sort_by_key(|tenant| std::cmp::Reverse(tenant.bytes));
        let mut oldest = tenants.into_iter().filter_map(|tenant| {
            let mut keys = tenant.order.values();
            keys.find(|key| self.is_free(key)).cloned()
        });
        oldest.next()
    }

    fn oldest_of(&self, caller: &Caller) -> Option<Key> {
        let order = self.callers.get(caller)?.order.values();
        let mut keys = order.map(|digest| Key::new(caller, *digest));
        keys.find(|key| self.is_free(key))
    }
}

/// Returns whether a blob has expired. A clock that was set back makes no blob older.
fn has_aged(used: SystemTime, now: SystemTime, time_to_live: Duration) -> bool {
    now.duration_since(used).is_ok_and(|age| age > time_to_live)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: fn(u64) -> usize = |blocks| (blocks * BLOCK) as usize;

    fn index(total: u64, per_caller: u64) -> Index {
        Index::new(&BlobSettings {
            total: BLOCKS(total),
            per_caller: BLOCKS(per_caller),
            largest: BLOCKS(per_caller),
            time_to_live: Duration::from_secs(100),
            ..BlobSettings::default()
        })
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Reads `tenant/name`, or a name of the default tenant.
    fn named(caller: &str) -> Caller {
        match caller.split_once('/') {
            None => Caller::named(Tenant::DEFAULT, caller),
            Some((tenant, name)) => Caller::named(Tenant::new(tenant).unwrap(), name),
        }
    }

    fn key(caller: &str, content: &str) -> Key {
        Key::new(&named(caller), BlobDigest::of(content.as_bytes()))
    }

    /// Stores a blob of some blocks and releases it; returns the blobs evicted for it.
    fn put(index: &mut Index, caller: &str, content: &str, blocks: u64, now: u64) -> Vec<Key> {
        let mut room = Reservation::none(named(caller));
        let enlarged = index.enlarge(&mut room, blocks * BLOCK, None);
        enlarged.fits.unwrap();
        let key = key(caller, content);
        index.settle(&mut room, key.digest, at(now));
        index.unpin(&key);
        enlarged.gone.into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut index = index(3, 3);
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            assert!(put(&mut index, "x", name, 1, number as u64).is_empty());
        }
        assert!(index.touch(&key("x", "a"), at(5)).is_some());
        assert_eq!(
            put(&mut index, "x", "d", 2, 6),
            [key("x", "b"), key("x", "c")]
        );
        assert!(index.touch(&key("x", "a"), at(7)).is_some());
        assert_eq!(index.bytes, 3 * BLOCK);
    }

    #[test]
    fn a_caller_pushes_its_own_out_before_it_touches_those_of_others() {
        let mut index = index(4, 2);
        put(&mut index, "x", "old", 1, 0);
        put(&mut index, "y", "a", 1, 1);
        put(&mut index, "y", "b", 1, 2);
        assert_eq!(put(&mut index, "y", "c", 1, 3), [key("y", "a")]);
        assert!(index.touch(&key("x", "old"), at(4)).is_some());
    }

    #[test]
    fn a_tenant_pushes_nothing_of_a_smaller_one_out() {
        let mut index = index(4, 4);
        put(&mut index, "a/x", "old", 1, 0);
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            put(&mut index, "b/x", name, 1, 1 + number as u64);
        }
        // Whatever names its callers have.
        assert_eq!(put(&mut index, "b/y", "d", 1, 5), [key("b/x", "a")]);
        assert!(index.touch(&key("a/x", "old"), at(6)).is_some());
        // The smaller one takes of the larger one.
        assert_eq!(put(&mut index, "a/x", "new", 1, 7), [key("b/x", "b")]);
        assert!(index.touch(&key("b/x", "old"), at(8)).is_none());
    }

    #[test]
    fn what_is_in_use_stays_and_the_reason_for_no_room_is_reported() {
        let mut index = index(4, 2);
        put(&mut index, "x", "a", 1, 0);
        put(&mut index, "x", "b", 1, 0);
        index.pin(&key("x", "a"), at(1)).unwrap();
        index.pin(&key("x", "b"), at(1)).unwrap();
        let mut room = Reservation::none(named("x"));
        let fits = index.enlarge(&mut room, 1, None).fits;
        assert!(matches!(
            fits,
            Err(BlobError::NoRoom {
                maximum: 8192,
                observed: 12288
            })
        ));
        assert!(index.take_aged(at(1000)).is_empty());
        index.unpin(&key("x", "b"));
        assert!(index.enlarge(&mut room, 1, None).fits.is_ok());
        index.release(&mut room);
        assert_eq!(index.bytes, BLOCK);
    }

    #[test]
    fn room_that_is_being_filled_counts_for_its_caller_and_for_all() {
        let mut index = index(3, 2);
        let mut rooms = [Reservation::none(named("x")), Reservation::none(named("y"))];
        for room in &mut rooms {
            index.enlarge(room, BLOCK, None).fits.unwrap();
            // The rest of an allocated block is free.
            index.enlarge(room, 0, None).fits.unwrap();
        }
        assert!(index.enlarge(&mut rooms[0], 1, None).fits.is_ok());
        let fits = index.enlarge(&mut rooms[1], 1, None).fits;
        assert!(matches!(fits, Err(BlobError::Full { maximum: 12288 })));
        let large = index.enlarge(&mut rooms[0], 2 * BLOCK, None).fits;
        assert!(matches!(
            large,
            Err(BlobError::TooLarge { maximum: 8192, .. })
        ));
        rooms.iter_mut().for_each(|room| index.release(room));
        assert_eq!((index.bytes, index.callers.len()), (0, 0));
    }

    #[test]
    fn the_bound_of_a_tenant_is_over_all_its_callers_and_evicts_nothing() {
        let mut index = index(9, 9);
        put(&mut index, "a/x", "old", 1, 0);
        put(&mut index, "b/x", "old", 4, 0);
        let mut room = Reservation::none(named("a/y"));
        let enlarged = index.enlarge(&mut room, BLOCK, Some(2 * BLOCK));
        assert!(enlarged.fits.is_ok() && enlarged.gone.is_empty());
        let enlarged = index.enlarge(&mut room, 1, Some(2 * BLOCK));
        let full = enlarged.fits.unwrap_err();
        assert!(matches!(full, BlobError::TenantFull { maximum: 8192 }));
        assert!(enlarged.gone.is_empty());
        // A bound below the present use refuses only more.
        assert!(index.enlarge(&mut room, 0, Some(0)).fits.is_ok());
        let acme = named("a/x").tenant();
        assert_eq!(index.count_of(acme), 2);
        index.release(&mut room);
        assert_eq!(index.count_of(acme), 1);
    }

    #[test]
    fn what_has_aged_is_gone_even_before_it_is_removed() {
        let mut index = index(9, 9);
        put(&mut index, "x", "a", 1, 0);
        put(&mut index, "x", "b", 1, 50);
        assert!(index.take_aged(at(100)).is_empty());
        assert!(index.touch(&key("x", "a"), at(101)).is_none());
        let gone: Vec<Key> = index
            .take_aged(at(101))
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(gone, [key("x", "a")]);
        assert!(index.touch(&key("x", "b"), at(101)).is_some());
        assert!(index.take_aged(at(0)).is_empty());
    }

    #[test]
    fn an_empty_blob_takes_a_block_once() {
        let mut index = index(2, 2);
        put(&mut index, "x", "", 0, 0);
        assert_eq!(index.bytes, BLOCK);
        assert_eq!(index.remove(&key("x", "")), Some(0));
        assert_eq!(index.bytes, 0);
    }
}
