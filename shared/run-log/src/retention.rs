//! Deletion of runs that ended long ago, in steps between which other runs append.
//!
//! A pass walks the finished runs from the oldest on. It deletes a few at a time and rests after each group for
//! as long as the group took, so that appends have at least half of the time; so it does after a page of runs
//! that all stay. The next pass, or the next start, deletes everything that an interrupted pass
//! left.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use core_types::Timestamp;
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};

use crate::{
    DeleteError, Order, RunCursor, RunFilter, RunLogs, RunState, RunSummary, StateFilter,
    StorageError,
};

/// The number of runs that are listed at a time.
const PAGE: usize = 256;
/// The number of runs that the guard checks at once.
const ASKED_TOGETHER: usize = 16;
/// The most runs that are deleted at once.
const GROUP_RUNS: usize = 64;
/// The number of events at which a group accepts no further run.
const GROUP_EVENTS: u64 = 1_024;
/// The number of runs that stay after which a pass ends; the next one continues there.
const MOST_KEPT: u64 = 20_000;
/// The bounds of the rest after a group.
const SHORTEST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(250);

/// Times for which runs are kept after their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPeriods {
    /// The owner's code of a run that succeeded.
    pub success: i32,
    /// The time for which a run that succeeded is kept; `None` for ever.
    pub succeeded: Option<Duration>,
    /// The time for which a run that ended otherwise is kept; `None` for ever.
    pub others: Option<Duration>,
}

impl RetentionPeriods {
    /// Returns the shorter of the two; `None` if all runs are kept for ever.
    pub fn shortest(&self) -> Option<Duration> {
        self.succeeded.into_iter().chain(self.others).min()
    }

    /// Returns the longer of the two; `None` if some runs are kept for ever.
    fn longest(&self) -> Option<Duration> {
        let both = self.succeeded.zip(self.others);
        both.map(|(succeeded, others)| succeeded.max(others))
    }

    /// Whether a run ended so long ago that it is not kept.
    fn have_passed_for(&self, run: &RunSummary, now: Timestamp) -> bool {
        let period = match run.state {
            RunState::Open => None,
            RunState::Finished(code) if code == self.success => self.succeeded,
            RunState::Finished(_) => self.others,
        };
        let end = period.zip(run.finished);
        end.is_some_and(|(period, finished)| finished.plus(period) <= now)
    }
}

/// The owner of a log, which decides about runs whose time has passed.
#[async_trait]
pub trait RetentionGuard: Send + Sync {
    /// Whether a finished run must stay although it is old.
    ///
    /// # Errors
    /// The reason that it is not known; the pass ends, and the run stays.
    async fn must_stay(
        &self,
        run: &RunSummary,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>>;

    /// Deletes the data of a run in other stores, before the run itself.
    ///
    /// # Errors
    /// The reason that it cannot be deleted; the pass ends, and the run stays.
    async fn before_deletion(
        &self,
        run: &RunSummary,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// A reason for which a pass ended early. The next pass tries again.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// The log cannot be read or written.
    #[error("the run log does not work")]
    Storage(#[from] StorageError),
    /// The guard does not know whether a run must stay, or cannot delete its other data.
    #[error("the owner of the runs cannot release them")]
    Guard(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The figures of the runs that a pass deleted and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassReport {
    /// The number of runs that were deleted.
    pub runs: u64,
    /// The number of runs that were looked at and stay.
    pub kept: u64,
    /// The number of request ids that were freed, of runs that had been deleted before.
    pub requests: u64,
    /// The number of bytes that went back to the file system.
    pub bytes: u64,
}

/// Deletes the runs of a log that ended long ago, pass by pass.
pub struct Retention {
    log: RunLogs,
    periods: RetentionPeriods,
    /// The place at which the next pass continues.
    after: Option<RunCursor>,
}

impl std::fmt::Debug for Retention {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Retention")
            .field("periods", &self.periods)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Retention {
    /// Takes a log, and the times for which its runs are kept.
    pub fn new(log: RunLogs, periods: RetentionPeriods) -> Self {
        Self {
            log,
            periods,
            after: None,
        }
    }

    /// Deletes the runs that are old at `now`, and returns their space to the file system.
    ///
    /// # Errors
    /// [`RetentionError`] when the pass ended early.
    pub async fn pass(
        &mut self,
        now: Timestamp,
        guard: &dyn RetentionGuard,
    ) -> Result<PassReport, RetentionError> {
        let mut report = PassReport::default();
        if let Some(shortest) = self.periods.shortest() {
            let filter = RunFilter {
                state: StateFilter::Finished,
                // No run ends before it is created.
                created_before: Some(now.minus(shortest)),
                ..RunFilter::default()
            };
            while report.kept < MOST_KEPT {
                let begun = Instant::now();
                let after = self.after.as_ref();
                let page = self.log.list(&filter, Order::OldestFirst, after, PAGE);
                let page = page.await?;
                let looked_at = page.runs.len() as u64;
                let deleted = self.delete_from(page.runs, now, guard).await?;
                report.runs += deleted;
                report.kept += looked_at - deleted;
                self.after = page.next;
                if self.after.is_none() {
                    break;
                }
                if deleted == 0 {
                    rest_since(begun).await;
                }
            }
        }
        if let Some(longest) = self.periods.longest() {
            let before = now.minus(longest);
            report.requests = in_steps(|| self.log.forget_requests(before)).await?;
        }
        report.bytes = in_steps(|| self.log.reclaim()).await?;
        Ok(report)
    }

    /// Deletes the runs that are old and need not stay. Returns their number.
    async fn delete_from(
        &self,
        mut runs: Vec<RunSummary>,
        now: Timestamp,
        guard: &dyn RetentionGuard,
    ) -> Result<u64, RetentionError> {
        runs.retain(|run| self.periods.have_passed_for(run, now));
        let judged = stream::iter(runs).map(|run| async move {
            let stays = self.log.has_dependents(run.id).await?
                || guard.must_stay(&run).await.map_err(RetentionError::Guard)?;
            Ok::<_, RetentionError>((!stays).then_some(run))
        });
        let leaving: Vec<_> = judged.buffered(ASKED_TOGETHER).try_collect().await?;
        let leaving: Vec<_> = leaving.into_iter().flatten().collect();
        for group in groups(&leaving) {
            let begun = Instant::now();
            try_join_all(group.iter().map(|run| self.delete(run, guard))).await?;
            rest_since(begun).await;
        }
        Ok(leaving.len() as u64)
    }

    async fn delete(
        &self,
        run: &RunSummary,
        guard: &dyn RetentionGuard,
    ) -> Result<(), RetentionError> {
        let before = guard.before_deletion(run).await;
        before.map_err(RetentionError::Guard)?;
        match self.log.forget(run.id).await {
            // Another deletion was faster. A run that has ended does not open again.
            Ok(()) | Err(DeleteError::NoSuchRun | DeleteError::Open) => Ok(()),
            Err(DeleteError::Storage(error)) => Err(error.into()),
        }
    }
}

/// Splits runs into groups that are small in number and in events.
fn groups(mut runs: &[RunSummary]) -> Vec<&[RunSummary]> {
    let mut groups = Vec::new();
    while !runs.is_empty() {
        let mut events = 0;
        let fits = |run: &&RunSummary| {
            events += run.last_sequence;
            events <= GROUP_EVENTS
        };
        let size = runs.iter().take(GROUP_RUNS).take_while(fits).count();
        let (group, rest) = runs.split_at(size.max(1));
        groups.push(group);
        runs = rest;
    }
    groups
}

/// Repeats a step until it returns zero, with rests. Returns the sum.
///
/// # Errors
/// The error of the step.
pub async fn in_steps<E, F>(step: impl Fn() -> F) -> Result<u64, E>
where
    F: Future<Output = Result<u64, E>>,
{
    let mut sum = 0;
    loop {
        let begun = Instant::now();
        match step().await? {
            0 => return Ok(sum),
            done => sum += done,
        }
        rest_since(begun).await;
    }
}

/// Rests for as long as the work took, within bounds.
pub async fn rest_since(begun: Instant) {
    let rest = begun.elapsed().clamp(SHORTEST_REST, LONGEST_REST);
    tokio::time::sleep(rest).await;
}
