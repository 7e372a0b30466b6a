//! The place of a run among those that continue at once.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The place of a run among those that continue at once, until it only waits.
#[derive(Debug)]
pub struct RunPlace {
    /// Nothing for a run that was resumed where there were too many already. Locked for a change,
    /// never across an await.
    held: Mutex<Option<OwnedSemaphorePermit>>,
    /// The places of runs that only wait.
    waiting: Arc<Semaphore>,
}

impl RunPlace {
    /// Takes the place that the run has, and those of runs that only wait.
    pub fn new(held: Option<OwnedSemaphorePermit>, waiting: Arc<Semaphore>) -> Self {
        Self {
            held: Mutex::new(held),
            waiting,
        }
    }

    /// Changes the place for one among the runs that only wait, if one is free. The run keeps that when
    /// it continues, so that it never waits for a place.
    pub(super) fn rest(&self) {
        if let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            *held = Some(place);
        }
    }
}
