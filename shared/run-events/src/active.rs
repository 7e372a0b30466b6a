//! The runs that this process is executing.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use core_types::RunId;
use tokio::sync::watch;

use crate::control::RunControl;
use crate::recorder::Recorder;
use crate::waits::Waits;

/// A run that this process is executing.
#[derive(Clone)]
pub(crate) struct Active {
    pub(crate) control: RunControl,
    pub(crate) recorder: Recorder,
    pub(crate) waits: Waits,
    /// Turns true, or closes, when the run's task has ended.
    pub(crate) ended: watch::Receiver<bool>,
}

/// The runs that this process is executing, by id.
///
/// Locked for a look-up or a change, never across an await.
#[derive(Default)]
pub(crate) struct ActiveRuns {
    by_id: Mutex<HashMap<RunId, Active>>,
    /// Runs that this process started, from before they are in the log until they have ended, so
    /// that none of them is taken for a run that the previous process left.
    begun: Mutex<HashSet<RunId>>,
}

impl ActiveRuns {
    /// Adds a run, unless it is there already.
    pub(crate) fn insert(&self, run: RunId, active: Active) -> bool {
        match self.lock().entry(run) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(active);
                true
            }
        }
    }

    pub(crate) fn begin(&self, run: RunId) {
        self.begun().insert(run);
    }

    /// Returns true if this process has started the run, or executes it.
    pub(crate) fn owns(&self, run: RunId) -> bool {
        self.begun().contains(&run) || self.lock().contains_key(&run)
    }

    pub(crate) fn remove(&self, run: RunId) {
        self.lock().remove(&run);
        self.begun().remove(&run);
    }

    pub(crate) fn get(&self, run: RunId) -> Option<Active> {
        self.lock().get(&run).cloned()
    }

    /// Returns every run.
    pub(crate) fn all(&self) -> Vec<Active> {
        self.lock().values().cloned().collect()
    }

    /// Returns how many runs there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn begun(&self) -> MutexGuard<'_, HashSet<RunId>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Active>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
