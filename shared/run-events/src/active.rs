//! The runs that this process is executing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use core_types::RunId;
use tokio::sync::watch;

use crate::control::RunControl;
use crate::recorder::Recorder;
use crate::waits::Waits;

/// The longest time between the entry of a run in the log and its execution. A start that was cut off in between, as by a
/// storage that does not work, leaves the run open.
const BEGINNING: Duration = Duration::from_secs(10);

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
    /// that none of them is taken for a run that the previous process left; each with the time of its start.
    begun: Mutex<HashMap<RunId, Instant>>,
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
        self.begun().insert(run, Instant::now());
    }

    /// Whether this process is starting the run, or executes it.
    pub(crate) fn owns(&self, run: RunId) -> bool {
        self.owns_at(run, Instant::now())
    }

    fn owns_at(&self, run: RunId, now: Instant) -> bool {
        let begun = self.begun().get(&run).copied();
        begun.is_some_and(|begun| now.duration_since(begun) < BEGINNING)
            || self.lock().contains_key(&run)
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

    fn begun(&self) -> MutexGuard<'_, HashMap<RunId, Instant>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Active>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use core_types::{IdSource, RunOwner, SystemIds};

    use super::*;

    #[test]
    fn a_run_whose_start_was_cut_off_is_owned_for_a_while_only() {
        let (runs, run) = (ActiveRuns::default(), SystemIds.next_run(RunOwner::Agent));
        let now = Instant::now();
        assert!(!runs.owns_at(run, now));
        runs.begin(run);
        assert!(runs.owns_at(run, now));
        assert!(!runs.owns_at(run, Instant::now() + BEGINNING));
        runs.remove(run);
        assert!(!runs.owns_at(run, now));
    }
}
