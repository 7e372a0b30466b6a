//! The keys under which runs continue alone (rule W50).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use core_types::RunId;

/// The keys of all runs with one.
#[derive(Clone, Debug, Default)]
pub struct RunKeys {
    /// The holder of each key and the runs queued for it, in order. Locked for a lookup or a
    /// change, never across an await.
    owners: Arc<Mutex<Owners>>,
}

#[derive(Debug, Default)]
struct Owners {
    by_key: HashMap<String, Vec<Owner>>,
    came: u64,
}

#[derive(Debug)]
struct Owner {
    ticket: u64,
    /// None until the run is in the log.
    run: Option<RunId>,
}

/// The key of a run, until it is dropped.
#[derive(Debug)]
pub struct RunKey {
    name: String,
    ticket: u64,
    keys: RunKeys,
}

/// Another run holds the key. Its id is missing while it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHeld(pub Option<RunId>);

impl RunKeys {
    /// Enters a run under a key; returns the runs that came before it, the first one in front.
    pub fn enter(&self, name: &str) -> (RunKey, Vec<RunId>) {
        let mut owners = self.lock();
        let before = owners.by_key.get(name).into_iter().flatten();
        let before = before.filter_map(|owner| owner.run).collect();
        (self.add(&mut owners, name), before)
    }

    /// Enters a run under a key if it is the only one.
    ///
    /// # Errors
    /// [`KeyHeld`] with the first of the others.
    pub fn enter_alone(&self, name: &str) -> Result<RunKey, KeyHeld> {
        let mut owners = self.lock();
        match owners.by_key.get(name).and_then(|owners| owners.first()) {
            Some(owner) => Err(KeyHeld(owner.run)),
            None => Ok(self.add(&mut owners, name)),
        }
    }

    fn add(&self, owners: &mut Owners, name: &str) -> RunKey {
        owners.came += 1;
        let ticket = owners.came;
        let of_key = owners.by_key.entry(name.to_owned()).or_default();
        of_key.push(Owner { ticket, run: None });
        RunKey {
            name: name.to_owned(),
            ticket,
            keys: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunKey {
    /// Returns the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the run that holds it.
    pub fn set_run(&mut self, run: RunId) {
        let mut owners = self.keys.lock();
        let owners = owners.by_key.get_mut(&self.name).into_iter().flatten();
        for owner in owners.filter(|owner| owner.ticket == self.ticket) {
            owner.run = Some(run);
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
