//! Runs without work in progress but waits leave memory (rule W37).

use std::pin::pin;
use std::time::Duration;

use core_types::Durability;
use run_events::{Departure, Waits};
use run_log::AppendError;

use workflow_domain::plan_waits;

use super::super::{Prepared, RunPlace, Runner};
use super::{Drive, DriveStop};
use run_events::Recorder;

/// The reason for which driving the nodes of a run stopped.
pub(super) enum DriveEnd {
    /// No node is left to run, or the nodes were ended from outside.
    To(DriveStop),
    /// The nodes wait, and the run has left memory.
    ToRest(Departure),
}

/// Returns the time that a run waits in memory before it leaves; none if it may not, as its key
/// would be free, or its log or the time of a zone lost.
pub(super) fn rests_after(
    runner: &Runner,
    prepared: &Prepared,
    place: &RunPlace,
    recorder: &Recorder,
) -> Option<Duration> {
    let stays = recorder.durability() == Durability::Memory
        || place.has_key()
        || plan_waits::has_timed_zones(prepared.state.engine().plan());
    (!stays).then_some(runner.rest_after)
}

impl Drive {
    /// Runs the nodes of a run to their end, or until it leaves memory.
    pub(super) async fn reach_end_or_rest(
        &mut self,
        waits: &Waits,
        rests_after: Option<Duration>,
    ) -> Result<DriveEnd, AppendError> {
        let Some(rests_after) = rests_after else {
            return self.reach_end().await.map(DriveEnd::To);
        };
        let (control, activity) = (self.control.clone(), self.of_run.activity.clone());
        let asking = self.of_run.asking.clone();
        let mut end = pin!(self.reach_end());
        loop {
            let may_leave = async {
                activity.quiet_for(rests_after).await;
                asking.until_quiet().await;
                control.leaving().await
            };
            let leaving = tokio::select! {
                // First, so that the run has handled all earlier events.
                biased;
                reached = &mut end => return reached.map(DriveEnd::To),
                leaving = may_leave => leaving,
            };
            // No work of the run continues here: all of it is polled above.
            if activity.is_quiet()
                && asking.is_quiet()
                && let Some(departure) = waits.leave(leaving, &control, rests_after).await?
            {
                return Ok(DriveEnd::ToRest(departure));
            }
        }
    }
}
