//! The keys under which runs continue alone (rule W50).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use core_types::{Principal, RunId, Tenant};

/// The keys of all runs with one. A key of one tenant is no key of another.
#[derive(Clone, Debug, Default)]
pub struct RunKeys {
    /// The holder of each key and the runs queued for it, in order. Locked for a lookup or a
    /// change, never across an await.
    owners: Arc<Mutex<Owners>>,
}

/// A key in its tenant.
type Name = (Tenant, String);

#[derive(Debug, Default)]
struct Owners {
    by_key: HashMap<Name, Vec<Owner>>,
    came: u64,
}

#[derive(Debug)]
struct Owner {
    ticket: u64,
    shown: KeyOwner,
}

/// The key of a run, until it is dropped.
#[derive(Debug)]
pub struct RunKey {
    name: Name,
    ticket: u64,
    keys: RunKeys,
}

/// A run that has a key, and the principal that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The principal.
    pub principal: Principal,
    /// The id; `None` until the run is in the log.
    pub run: Option<RunId>,
}

/// Another run holds the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHeld(pub KeyOwner);

impl RunKeys {
    /// Enters a run of `principal` under a key of its tenant; returns the runs that came before it, the first one in
    /// front.
    pub fn enter(&self, principal: &Principal, key: &str) -> (RunKey, Vec<KeyOwner>) {
        let name = (principal.tenant(), key.to_owned());
        let mut owners = self.lock();
        let before = owners.by_key.get(&name).into_iter().flatten();
        let before = before.map(|owner| owner.shown.clone()).collect();
        (self.add(&mut owners, name, principal), before)
    }

    /// Enters a run of `principal` under a key of its tenant if it is the only one.
    ///
    /// # Errors
    /// [`KeyHeld`] with the first of the others.
    pub fn enter_alone(&self, principal: &Principal, key: &str) -> Result<RunKey, KeyHeld> {
        let name = (principal.tenant(), key.to_owned());
        let mut owners = self.lock();
        match owners.by_key.get(&name).and_then(|owners| owners.first()) {
            Some(owner) => Err(KeyHeld(owner.shown.clone())),
            None => Ok(self.add(&mut owners, name, principal)),
        }
    }

    fn add(&self, owners: &mut Owners, name: Name, principal: &Principal) -> RunKey {
        owners.came += 1;
        let ticket = owners.came;
        let of_key = owners.by_key.entry(name.clone()).or_default();
        of_key.push(Owner {
            ticket,
            shown: KeyOwner {
                principal: principal.clone(),
                run: None,
            },
        });
        RunKey {
            name,
            ticket,
            keys: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunKey {
    /// Returns the tenant and the key.
    pub fn name(&self) -> &(Tenant, String) {
        &self.name
    }

    /// Sets the run that holds it.
    pub fn set_run(&mut self, run: RunId) {
        let mut owners = self.keys.lock();
        let owners = owners.by_key.get_mut(&self.name).into_iter().flatten();
        for owner in owners.filter(|owner| owner.ticket == self.ticket) {
            owner.shown.run = Some(run);
        }
    }
}

impl Drop for RunKey {
    fn drop(&mut self) {
        let mut owners = self.keys.lock();
        if let Some(of_key) = owners.by_key.get_mut(&self.name) {
            of_key.retain(|owner| owner.ticket != self.ticket);
            if of_key.is_empty() {
                owners.by_key.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_one_tenant_is_no_key_of_another() {
        let keys = RunKeys::default();
        let principal = |text| Principal::new(text).unwrap();
        let (bob, eve) = (principal("acme/bob"), principal("acme/eve"));
        let _of_bob = keys.enter_alone(&bob, "press").unwrap();
        let others = keys.enter_alone(&principal("bob"), "press");
        assert!(others.is_ok(), "{others:?}");
        let KeyHeld(owner) = keys.enter_alone(&eve, "press").unwrap_err();
        assert_eq!((&owner.principal, owner.run), (&bob, None));
        let (_of_eve, before) = keys.enter(&eve, "press");
        assert_eq!(before, [owner]);
    }
}
