//! Waking runs that rest.

use std::collections::HashSet;
use std::time::Duration;

use core_types::{RunId, Timestamp};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use grpc_kit::{CallContext, Failure};
use run_log::{RunState, RunSummary};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use crate::active::Active;
use crate::checkpoint::ToContinue;
use crate::control::Presence;
use crate::damage::{DamagedLog, Unreadable, beginning};
use crate::executor::End;
use crate::failure::{append_failure, no_such_run, not_resumed, storage_failure};
use crate::meta::{RunMeta, Starter};
use crate::outcome;
use crate::recorder::Recorder;
use crate::runs::{OpenRun, Runs};
use crate::store::{PAGE, decode_all};

/// The number of due runs that are woken at once, and looked up at once.
const AT_ONCE: usize = 256;

/// The longest time until the next look for due runs: the clock may be moved meanwhile.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// The time until runs that could not be woken are tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The least and the most time until runs that were left open resume.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(15);

/// The longest time between two looks for runs that were left open.
const SCAVENGE: Duration = Duration::from_secs(30);

/// The state in which a run is found when a request arrives for it.
pub(crate) enum RunPresence {
    /// A task executes it, and it does not leave memory while the second value lives.
    Present(Active, Presence),
    /// It has not ended, and its service has not resumed it.
    NotResumed(Box<RunSummary>),
    /// It has ended.
    Ended,
}

impl Runs {
    /// Executes runs that rest with `resume` when they are woken. To be called once, before any run is
    /// reached.
    pub fn resume_with(
        &self,
        resume: impl Fn(OpenRun) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        // It fails if it was called before; the first way to resume is as good.
        let _ = self.resumption().set(Box::new(resume));
    }

    /// Begins to wake runs when they are due, until the service ends.
    pub fn wake_when_due(&self) {
        let runs = self.clone();
        self.executor().spawn(async move {
            loop {
                let rest = match runs.wake_due().await {
                    Ok(rest) => rest,
                    Err(failure) => {
                        tracing::error!(?failure, "runs that are due cannot be looked up");
                        RETRY
                    }
                };
                tokio::select! {
                    () = tokio::time::sleep(rest) => {}
                    () = runs.executor().alarm().earlier() => {}
                }
            }
        });
    }

    /// Resumes runs that were left open, as when the disk was full, until the service ends. `resume` continues the runs
    /// of [`Runs::open_runs`]. They are looked for after a run was left open, and from time to time.
    pub fn resume_left_open<R>(&self, resume: impl Fn() -> R + Send + 'static)
    where
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let runs = self.clone();
        self.executor().spawn(async move {
            let (mut wait, mut last) = (SOONEST, Instant::now());
            loop {
                let noted = tokio::time::timeout(SCAVENGE, runs.executor().left_open()).await;
                if noted.is_ok() {
                    // Runs that are left open as soon as they resume wait longer each time.
                    wait = match last.elapsed() < wait * 2 {
                        true => (wait * 2).min(LATEST),
                        false => SOONEST,
                    };
                    tokio::time::sleep(wait).await;
                }
                if let Err(failure) = resume().await {
                    tracing::error!(?failure, "runs that were left open do not resume yet");
                    runs.leave_open();
                }
                last = Instant::now();
            }
        });
    }

    /// Notes that a run could not be resumed and is left open, for [`Runs::resume_left_open`].
    pub fn leave_open(&self) {
        self.executor().leave_open();
    }

    /// Leaves a run that was woken and cannot continue now until a later time.
    ///
    /// # Errors
    /// A storage that does not work: the run continues at the next start.
    pub async fn rest_until(&self, run: &Recorder, due: Timestamp) -> Result<(), Failure> {
        let rested = run.rest(due, None).await;
        rested.map_err(|error| append_failure(&error))?;
        self.executor().alarm().set(due);
        Ok(())
    }

    /// Finds a run for a request, and wakes it if it rests.
    pub(crate) async fn reach(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<RunPresence, Failure> {
        let run = self.store().find(context, run_id).await?.id;
        loop {
            if let Some(reached) = self.present(run).await {
                return Ok(reached);
            }
            let runs = self.clone();
            let found = to_its_end(async move { runs.find_and_wake(run).await });
            if let Some(reached) = found.await? {
                return Ok(reached);
            }
        }
    }

    /// Wakes a run that was found for its caller, if it rests; returns none once a task executes it.
    async fn find_and_wake(&self, run: RunId) -> Result<Option<RunPresence>, Failure> {
        // While another task takes the run over, it neither rests nor is it executed.
        let _alone = self.wakers().lock(run).await;
        if self.present(run).await.is_some() {
            return Ok(None);
        }
        let summary = self.store().logs.summary(run).await;
        let summary = summary
            .map_err(|error| storage_failure(&error))?
            .ok_or_else(|| no_such_run(&run.to_string()))?;
        match (summary.state, summary.due) {
            (RunState::Finished(_), _) => Ok(Some(RunPresence::Ended)),
            (RunState::Open, None) => Ok(Some(RunPresence::NotResumed(Box::new(summary)))),
            (RunState::Open, Some(_)) => self.resume_resting(summary).await.map(|()| None),
        }
    }

    pub(crate) async fn present(&self, run: RunId) -> Option<RunPresence> {
        let active = self.executor().active().get(run)?;
        let presence = active.control.stay().await?;
        Some(RunPresence::Present(active, presence))
    }

    /// Takes a run over that was due when it was looked up, unless another task did.
    async fn wake(&self, summary: RunSummary) -> Result<(), Failure> {
        let _alone = self.wakers().lock(summary.id).await;
        match self.present(summary.id).await {
            Some(_) => Ok(()),
            // A run that was woken and rests again is woken once more, which does no harm.
            None => self.resume_resting(summary).await,
        }
    }

    /// Takes a run over and executes it.
    async fn resume_resting(&self, summary: RunSummary) -> Result<(), Failure> {
        let resume = self.resumption().get().ok_or_else(not_resumed)?;
        match self.take_over(summary).await? {
            Some(run) => resume(run).await,
            None => tracing::debug!("a run that rested has ended"),
        }
        Ok(())
    }

    /// Takes a run over with its events; returns none if it has ended. A run whose log is damaged
    /// ends as failed, which is all that can be recorded of it.
    pub(crate) async fn take_over(&self, summary: RunSummary) -> Result<Option<OpenRun>, Failure> {
        let (run, kind) = (summary.id, summary.kind.clone());
        let (created, due) = (summary.created, summary.due);
        let meta = RunMeta::read(&summary);
        let starter = match &meta {
            Ok(meta) => meta.starter(),
            Err(_) => Starter::of(&summary),
        };
        let reopened = self.reopen(summary, starter, PAGE).await;
        let (recorder, tail) = match reopened {
            Ok(Some(reopened)) => reopened,
            Ok(None) => return Ok(None),
            Err(Unreadable::Failed(failure)) => return Err(failure),
            Err(Unreadable::Damaged(error)) => {
                let error = grpc_kit::failure::chain(&error);
                tracing::error!(%run, error, "a run stays open and is not resumed");
                return Ok(None);
            }
        };
        let read = async {
            let meta = meta?;
            let tail = decode_all(&tail)?;
            let last = recorder.last_sequence();
            let read = self.store().to_continue(run, last, tail).await?;
            let started = beginning(run, &read.events)?.clone();
            Ok((meta, started, read))
        };
        match read.await {
            Ok((meta, started, read)) => {
                let ToContinue {
                    events,
                    checkpointed,
                } = read;
                recorder.learn(&events);
                recorder.note_checkpoint(checkpointed);
                Ok(Some(OpenRun {
                    recorder,
                    meta,
                    kind,
                    created,
                    started,
                    events,
                }))
            }
            Err(Unreadable::Damaged(error)) => {
                self.end_damaged(recorder, &error);
                Ok(None)
            }
            Err(Unreadable::Failed(failure)) => {
                // It is tried again while the service runs.
                if let Some(due) = due {
                    let rested = recorder.rest(due, None).await;
                    rested.map_err(|error| append_failure(&error))?;
                }
                Err(failure)
            }
        }
    }

    /// Ends a run as failed whose log is damaged.
    pub fn end_damaged(&self, recorder: Recorder, damage: &DamagedLog) {
        let run = recorder.run_id();
        let error = damage.error_of(run);
        tracing::error!(%run, error = error.message, "a run ends as its log is damaged");
        let ended = |_| async { End::Finished(outcome::failed(error)) };
        self.execute(recorder, ended);
    }

    /// Wakes the runs that are due; returns the time until the next look.
    async fn wake_due(&self) -> Result<Duration, Failure> {
        let mut waking = Waking::default();
        loop {
            self.executor().alarm().look();
            let now = self.clock().now();
            let due = self.store().logs.due(now, AT_ONCE).await;
            let due = due.map_err(|error| storage_failure(&error))?;
            let mut found = false;
            for summary in due {
                found |= waking.begin(self, summary);
            }
            // The next ones begin while half of these are in progress.
            waking.wait(if found { AT_ONCE / 2 } else { 0 }).await;
            if !found {
                return match waking.begun.is_empty() {
                    true => self.until_next(now).await,
                    false => Ok(RETRY),
                };
            }
        }
    }

    async fn until_next(&self, now: Timestamp) -> Result<Duration, Failure> {
        let next = self.store().logs.next_due().await;
        let next = next.map_err(|error| storage_failure(&error))?;
        let latest = now.plus(LONGEST_REST);
        let next = next.map_or(latest, |next| next.min(latest));
        self.executor().alarm().rest_until(next);
        Ok(next.since(now))
    }
}

/// Runs that are being woken. If this is dropped, they are woken all the same.
#[derive(Default)]
struct Waking {
    tasks: FuturesUnordered<JoinHandle<(RunId, Result<(), Failure>)>>,
    /// Runs whose waking is in progress, and runs that could not be woken.
    begun: HashSet<RunId>,
}

impl Waking {
    /// Begins to wake a run; returns false if that has begun before.
    fn begin(&mut self, runs: &Runs, summary: RunSummary) -> bool {
        let run = summary.id;
        if !self.begun.insert(run) {
            return false;
        }
        let runs = runs.clone();
        let wake = async move { (run, runs.wake(summary).await) };
        self.tasks.push(tokio::spawn(wake.in_current_span()));
        true
    }

    /// Waits until no more than `most` are in progress.
    async fn wait(&mut self, most: usize) {
        while self.tasks.len() > most
            && let Some(woken) = self.tasks.next().await
        {
            match woken {
                Ok((run, Ok(()))) => drop(self.begun.remove(&run)),
                Ok((run, Err(failure))) => {
                    tracing::error!(%run, ?failure, "a run that is due cannot be woken");
                }
                // The panic hook has logged the place.
                Err(_) => tracing::error!("a run that is due was not woken"),
            }
        }
    }
}

/// Carries work out although its caller may leave: recorded events are to take effect.
///
/// # Errors
/// The error of the work, or UNAVAILABLE when the process ends.
pub async fn to_its_end<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Failure> + Send + 'static,
{
    match tokio::spawn(work.in_current_span()).await {
        Ok(ended) => ended,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(not_resumed().into()),
        },
    }
}
