//! Values of the tenants that were used last.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::Tenant;

/// A value for each of the tenants that were used last, at most a number of them beside those in use.
#[derive(Debug)]
pub struct PerTenant<T> {
    most: usize,
    /// Never held across an await.
    kept: Mutex<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    /// Counts uses, to find the value that was not used for the longest time.
    uses: u64,
    values: HashMap<Tenant, (u64, Arc<T>)>,
}

impl<T: Default> PerTenant<T> {
    /// Keeps at most `most` values that are not in use.
    pub fn new(most: usize) -> Self {
        let kept = Kept {
            uses: 0,
            values: HashMap::new(),
        };
        Self {
            most,
            kept: Mutex::new(kept),
        }
    }

    /// Returns the value of a tenant, or makes it. All holders of it have the same one.
    pub fn of(&self, tenant: Tenant) -> Arc<T> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let now = kept.uses;
        if let Some((used, value)) = kept.values.get_mut(&tenant) {
            *used = now;
            return Arc::clone(value);
        }
        while kept.values.len() >= self.most {
            let idle = kept.values.iter();
            // New holders come through this lock only.
            let idle = idle.filter(|(_, (_, value))| Arc::strong_count(value) == 1);
            let oldest = idle.min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(tenant, _)| *tenant) else {
                break;
            };
            kept.values.remove(&oldest);
        }
        let value = Arc::<T>::default();
        kept.values.insert(tenant, (now, Arc::clone(&value)));
        value
    }

    /// Drops the value of a tenant unless it is in use.
    pub fn forget(&self, tenant: Tenant) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |(_, value): &(u64, Arc<T>)| Arc::strong_count(value) == 1;
        if kept.values.get(&tenant).is_some_and(is_idle) {
            kept.values.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_not_used_for_the_longest_time_goes_unless_it_is_held() {
        let values = PerTenant::<Mutex<u32>>::new(2);
        let tenant = |name| Tenant::new(name).unwrap();
        let set = |name, number| *values.of(tenant(name)).lock().unwrap() = number;
        let get = |name| *values.of(tenant(name)).lock().unwrap();
        set("a", 1);
        set("b", 2);
        assert_eq!(get("a"), 1);
        set("c", 3);
        assert_eq!((get("a"), get("c")), (1, 3));
        let held = (values.of(tenant("a")), values.of(tenant("c")));
        set("d", 4);
        assert_eq!((get("a"), get("c"), get("d")), (1, 3, 4));
        values.forget(tenant("a"));
        values.forget(tenant("d"));
        assert_eq!((get("a"), get("d")), (1, 0));
        drop(held);
        values.forget(tenant("a"));
        assert_eq!((get("a"), get("b")), (0, 0));
    }
}
