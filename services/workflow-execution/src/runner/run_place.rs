//! The place of a run among those that continue at once.

use std::sync::{Mutex, PoisonError};

use core_types::Timestamp;
use run_events::{Recorder, RunControl};
use run_log::AppendError;

use super::permits::{Admission, Limit, Permit, Permits, QueueFull};

/// How many runs may be in each state at once.
#[derive(Clone, Copy, Debug)]
pub struct RunBounds {
    /// Runs of the same depth of nesting that continue.
    pub active: usize,
    /// Runs that are queued.
    pub queued: usize,
    /// Runs that only wait.
    pub waiting: usize,
}

/// The places of runs.
#[derive(Clone, Debug)]
pub struct RunPlaces {
    permits: Permits,
    bounds: RunBounds,
}

impl RunPlaces {
    /// Takes the bounds.
    pub fn new(bounds: RunBounds) -> Self {
        Self {
            permits: Permits::default(),
            bounds,
        }
    }

    /// Takes a place for a new run, or one in the queue.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn enter(&self, depth: usize, now: Timestamp) -> Result<RunPlace, QueueFull> {
        self.ask(depth, now, self.bounds.queued)
    }

    /// Takes the place in the queue that a run had before a restart.
    pub fn enter_again(&self, depth: usize, since: Timestamp) -> RunPlace {
        let entered = self.ask(depth, since, usize::MAX);
        entered.expect("the queue has no bound here")
    }

    /// Takes a place for a run that had one before a restart, even where there are too many.
    pub fn resume(&self, depth: usize) -> RunPlace {
        let permit = self.permits.take(vec![Limit::Runs(depth)]);
        RunPlace::new(self.clone(), Admission::Now(permit))
    }

    fn ask(&self, depth: usize, since: Timestamp, queued: usize) -> Result<RunPlace, QueueFull> {
        let bounds = vec![(Limit::Runs(depth), self.bounds.active)];
        let admission = self.permits.ask(bounds, since, queued)?;
        Ok(RunPlace::new(self.clone(), admission))
    }
}

/// The place of a run: in the queue, then among those that continue, until it only waits.
#[derive(Debug)]
pub struct RunPlace {
    /// What the run waits for, until its turn came.
    queued: Option<super::permits::Turn>,
    /// Locked for a change, never across an await.
    held: Mutex<Option<Permit>>,
    places: RunPlaces,
}

impl RunPlace {
    fn new(places: RunPlaces, admission: Admission) -> Self {
        let (held, queued) = match admission {
            Admission::Now(permit) => (Some(permit), None),
            Admission::Later(turn) => (None, Some(turn)),
        };
        Self {
            queued,
            held: Mutex::new(held),
            places,
        }
    }

    /// Returns whether the run has to wait for its turn.
    pub fn is_queued(&self) -> bool {
        self.queued.is_some()
    }

    /// Waits for the run's turn and records that it came. Returns early when the run shall end. The turn
    /// of a paused run comes when it is resumed.
    ///
    /// # Errors
    /// [`AppendError`] when it was not stored.
    pub(super) async fn turn(
        &mut self,
        recorder: &Recorder,
        control: &RunControl,
    ) -> Result<(), AppendError> {
        if let Some(turn) = self.queued.take() {
            let permit = tokio::select! {
                permit = turn => permit,
                () = control.cancelled() => return Ok(()),
            };
            self.held = Mutex::new(Some(permit));
        }
        while recorder.is_queued() {
            tokio::select! {
                () = control.until_resumed() => {}
                () = control.cancelled() => return Ok(()),
            }
            if let Some(not_paused) = control.admit_start().await {
                recorder.dequeue(not_paused).await?;
            }
        }
        Ok(())
    }

    /// Changes the place for one among the runs that only wait, if one is free. The run keeps that when
    /// it continues, so that it never waits for a place.
    pub(super) fn rest(&self) {
        let places = &self.places;
        let bounds = vec![(Limit::WaitingRuns, places.bounds.waiting)];
        let resting = places.permits.ask(bounds, Timestamp::from_unix_nanos(0), 0);
        if let Ok(Admission::Now(place)) = resting {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            *held = Some(place);
        }
    }
}
