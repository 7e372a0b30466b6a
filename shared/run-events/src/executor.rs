//! Executing the work of a run, to an end that is always recorded.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1::{self as common, PendingWork, WorkKind};
use futures::FutureExt;
use run_log::AppendError;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::active::{Active, ActiveRuns};
use crate::codec::durability_to_proto;
use crate::control::{CancelReason, RunControl};
use crate::outcome;
use crate::recorder::Recorder;
use crate::rest::{Alarm, Departure};
use crate::waits::Waits;

/// The time that the work may take to end by itself after a cancel. Then it is dropped, which ends
/// every request that it waits for.
const GRACE: Duration = Duration::from_millis(1_500);

/// The number of attempts to store the last event while the storage does not work.
const FINISH_TRIES: u32 = 8;

/// The end of the work of a run.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per run, and it is moved once"
)]
pub enum End {
    /// The run has ended with this outcome.
    Finished(common::RunOutcome),
    /// Only waits of the run are in progress, and it has left memory until it is woken.
    Rests(Departure),
    /// The run cannot continue now and is not over: it resumes later, at the latest when the service starts again.
    LeaveOpen,
}

/// Executes the work of runs as tasks.
#[derive(Clone)]
pub(crate) struct Executor {
    inner: Arc<Inner>,
}

struct Inner {
    active: ActiveRuns,
    tasks: TaskTracker,
    drain: CancellationToken,
    alarm: Alarm,
    /// Notified when a run was left open while the service works.
    left_open: Notify,
}

impl Executor {
    pub(crate) fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                active: ActiveRuns::default(),
                tasks: TaskTracker::new(),
                drain: CancellationToken::new(),
                alarm: Alarm::default(),
                left_open: Notify::new(),
            }),
        }
    }

    /// Returns the runs that this process executes.
    pub(crate) fn active(&self) -> &ActiveRuns {
        &self.inner.active
    }

    /// Returns the alarm of the task that looks for runs that are due.
    pub(crate) fn alarm(&self) -> &Alarm {
        &self.inner.alarm
    }

    /// Notes that a run was left open.
    pub(crate) fn leave_open(&self) {
        self.inner.left_open.notify_one();
    }

    /// Waits until a run was left open, once for all that were since the last wait.
    pub(crate) async fn left_open(&self) {
        self.inner.left_open.notified().await;
    }

    /// Runs a task of the service until the service ends.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let drain = self.inner.drain.clone();
        let task = async move { drain.run_until_cancelled(work).await.unwrap_or_default() };
        self.inner.tasks.spawn(task);
    }

    /// Executes `work` as a task that outlives the caller, and records its outcome. `beside` is
    /// polled for as long, and never ends.
    pub(crate) fn execute<F, Fut, B>(
        &self,
        recorder: Recorder,
        waits: Waits,
        work: F,
        beside: impl FnOnce(RunControl) -> B,
    ) where
        B: Future<Output = ()> + Send + 'static,
        F: FnOnce(RunControl) -> Fut + Send + 'static,
        Fut: Future<Output = End> + Send + 'static,
    {
        let run = recorder.run_id();
        let control = RunControl::new(
            recorder.context_below(),
            recorder.remaining(),
            recorder.was_paused(),
        );
        let (ended_sender, ended) = watch::channel(false);
        let active = Active {
            control: control.clone(),
            recorder: recorder.clone(),
            waits,
            ended,
        };
        if !self.inner.active.insert(run, active) {
            return;
        }
        let inner = Arc::clone(&self.inner);
        let beside = beside(control.clone());
        let task = async move {
            let end = tokio::select! {
                biased;
                // First, so that no queued run takes the place of one that is left open.
                () = inner.drain.cancelled() => End::LeaveOpen,
                end = supervise(&control, recorder.remaining(), work) => end,
                () = beside => End::LeaveOpen,
            };
            let mut is_left_open = false;
            let departure = match end {
                End::Finished(outcome) => {
                    let mut outcome = match recorder.call_waits().undecided() {
                        Some((effects, why)) => outcome::with_undecided(outcome, effects, why),
                        None => outcome,
                    };
                    outcome.durability = durability_to_proto(recorder.durability()).into();
                    outcome::mark(&tracing::Span::current(), &outcome);
                    match finish(&recorder, &outcome).await {
                        Ok(()) => recorder.finished(&outcome),
                        Err(error) => {
                            tracing::error!(%run, %error, "the end of a run was not stored");
                            is_left_open = !matches!(error, AppendError::Invalid(_));
                        }
                    }
                    None
                }
                End::Rests(departure) => Some(departure),
                End::LeaveOpen => {
                    is_left_open = true;
                    None
                }
            };
            inner.active.remove(run);
            if is_left_open {
                inner.left_open.notify_one();
            }
            if let Some(departure) = departure {
                inner.alarm.set(departure.due());
            }
            // It fails if no caller waits for the end.
            let _ = ended_sender.send(true);
        };
        // Boxed, because the task is moved several times until it runs, and is large.
        let task = task.boxed();
        let task = task.instrument(tracing::Span::current());
        self.inner.tasks.spawn(task);
    }

    /// Ends all tasks without ending their runs.
    pub(crate) async fn shutdown(&self) {
        self.inner.drain.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

/// Runs the work until it ends, its time is over, or it ignores a cancel.
async fn supervise<F, Fut>(control: &RunControl, remaining: Duration, work: F) -> End
where
    F: FnOnce(RunControl) -> Fut + Send + 'static,
    Fut: Future<Output = End> + Send + 'static,
{
    let guarded = async { AssertUnwindSafe(work(control.clone())).catch_unwind().await };
    tokio::pin!(guarded);
    let ended = tokio::select! {
        ended = &mut guarded => Some(ended),
        () = control.cancelled() => None,
        () = tokio::time::sleep(remaining) => {
            control.cancel(CancelReason::Deadline);
            None
        }
    };
    let ended = match ended {
        Some(ended) => ended,
        None => match tokio::time::timeout(GRACE, &mut guarded).await {
            Ok(ended) => ended,
            Err(_) => return dropped(control),
        },
    };
    ended.unwrap_or_else(|_| {
        // The panic hook has logged the place; the caller gets the trace id.
        End::Finished(outcome::internal(&telemetry::context::current_trace_id()))
    })
}

fn dropped(control: &RunControl) -> End {
    let in_flight = control.in_flight();
    tracing::warn!(
        ?in_flight,
        "the work of a run ignored its cancel and was dropped"
    );
    let reason = control.why().unwrap_or(CancelReason::Deadline);
    let is_call = |work: &PendingWork| work.kind() == WorkKind::Call;
    let calls = in_flight.into_iter().filter(is_call).map(|work| work.id);
    End::Finished(outcome::stopped(&reason, calls.collect()))
}

/// Records the end of a run.
async fn finish(recorder: &Recorder, outcome: &common::RunOutcome) -> Result<(), AppendError> {
    let mut wait = Duration::from_millis(50);
    for _ in 1..FINISH_TRIES {
        match recorder.finish(outcome.clone()).await {
            Err(AppendError::Storage(error)) => {
                tracing::warn!(error = %error, "the end of a run could not be stored yet");
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            Ok(_) | Err(AppendError::Finished) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    recorder.finish(outcome.clone()).await.map(drop)
}
