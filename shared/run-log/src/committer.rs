//! The task that commits, and the task that shows committed steps.

use std::{sync::Arc, time::Duration};

use sql_store::{ErrorClass, classify};
use tokio::{
    sync::{mpsc, watch},
    task,
};

use crate::{
    AppendError, StorageError,
    maintenance::{MaintenanceTask, Work},
    open_runs::Commits,
    step::{Step, StepError},
};

/// The most steps of one commit.
const GROUP_STEPS: usize = 1024;
/// The bytes of payload at which a group accepts no further steps.
const GROUP_BYTES: usize = 8 << 20;
/// The most committed groups that may wait to be shown to followers.
const QUEUED_GROUPS: usize = 64;
/// The times that the committing task yields to the runs that the last commit woke, before the next
/// one starts. It does not delay a lone run, and without it busy runs fall into halves that commit
/// in turn.
const YIELDS: usize = 4;

/// Steps that are stored, on their way to followers.
type Group = Vec<Step>;

/// The outcome of a step of a commit that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// It is stored.
    Stored,
    /// Its run exists already, or it follows such a creation.
    Duplicate,
    /// Another process holds the run that it takes over.
    HeldElsewhere,
    /// Events before it, acknowledged at [`Durability::Batched`](core_types::Durability::Batched), were lost.
    Behind,
}

/// The reason for which a commit did not succeed.
#[derive(Debug)]
pub(crate) enum StoreFailure {
    /// A row violates a constraint; no step is stored.
    Constraint(sqlx::Error),
    /// No step is stored.
    NotStored(StorageError),
    /// Whether a step is stored must be looked up.
    Doubtful(StorageError),
    /// Another process has taken over the runs of this one; no step is stored, and no later one will be.
    Fenced,
}

/// The connection that writes. One task owns it.
pub(crate) trait Backend: Send + 'static {
    /// Stores steps in one commit. Returns the outcome of each.
    fn store(
        &mut self,
        steps: &[Step],
    ) -> impl Future<Output = Result<Vec<StepOutcome>, StoreFailure>> + Send;

    /// Returns whether a step of a doubtful commit is stored, or `None` when that cannot be read.
    fn is_stored(&mut self, step: &Step) -> impl Future<Output = Option<bool>> + Send;

    /// Does a step of maintenance. Returns the number of request ids or bytes.
    fn maintain(&mut self, work: Work) -> impl Future<Output = Result<u64, StorageError>> + Send;

    /// Ends the connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Stores queued steps, group by group.
#[derive(Debug)]
struct Committer<B> {
    backend: B,
    committed: mpsc::Sender<Group>,
    /// The time that steps wait if they may.
    window: Duration,
    commits: Commits,
}

/// Shows committed steps to the followers of their runs.
///
/// A task of its own, because waking a thousand followers takes longer than a commit should.
async fn publish(mut groups: mpsc::Receiver<Group>) {
    while let Some(group) = groups.recv().await {
        for step in group {
            step.cell.publish(&step.events, step.place);
        }
    }
}

/// Starts the task that commits and the task that shows committed steps. They end when `queued` is closed and empty, or
/// once `closing` is true.
pub(crate) fn spawn<B: Backend>(
    backend: B,
    window: Duration,
    commits: Commits,
    queued: mpsc::Receiver<Step>,
    tasks: mpsc::Receiver<MaintenanceTask>,
    closing: watch::Receiver<bool>,
) -> Vec<task::JoinHandle<()>> {
    let (committed, groups) = mpsc::channel(QUEUED_GROUPS);
    let committer = Committer {
        backend,
        committed,
        window,
        commits,
    };
    let commit = tokio::spawn(committer.run(queued, tasks, closing));
    vec![commit, tokio::spawn(publish(groups))]
}

impl<B: Backend> Committer<B> {
    /// Commits queued steps, group by group, until the queue is closed and empty.
    async fn run(
        mut self,
        mut queued: mpsc::Receiver<Step>,
        mut tasks: mpsc::Receiver<MaintenanceTask>,
        mut closing: watch::Receiver<bool>,
    ) {
        let mut carried = None;
        loop {
            let first = match carried.take() {
                Some(step) => step,
                None => tokio::select! {
                    step = queued.recv() => match step {
                        Some(step) => step,
                        None => break,
                    },
                    Some(task) = tasks.recv() => {
                        self.maintain(task).await;
                        continue;
                    }
                    () = closed(&mut closing), if !queued.is_closed() => {
                        // Queued steps are still received; further steps are refused.
                        queued.close();
                        continue;
                    }
                },
            };
            let mut group = vec![first];
            wait(self.window, &mut group, &mut queued, &mut closing).await;
            carried = gather(&mut group, &mut queued).await;
            self.commit(group).await;
        }
        self.backend.close().await;
    }

    async fn commit(&mut self, group: Group) {
        let group = admitted(group);
        match self.store(&group).await {
            Ok(placed) => self.acknowledge(group, &placed).await,
            // One bad row fails the statement for all; alone, only its own step fails.
            Err(StoreFailure::Constraint(_)) if group.len() > 1 => {
                for step in group {
                    self.commit_alone(step).await;
                }
            }
            Err(failure) => self.settle_failure(group, failure).await,
        }
    }

    /// Stores steps, and counts the commit.
    async fn store(&mut self, group: &[Step]) -> Result<Vec<StepOutcome>, StoreFailure> {
        let stored = self.backend.store(group).await;
        // Also after a failure, as the commit may be stored.
        self.commits.count();
        stored
    }

    async fn commit_alone(&mut self, step: Step) {
        // The step before may have been of the same run, and failed.
        let group = admitted(vec![step]);
        match self.store(&group).await {
            Ok(placed) => self.acknowledge(group, &placed).await,
            Err(failure) => self.settle_failure(group, failure).await,
        }
    }

    /// Does a step of maintenance, between two groups.
    async fn maintain(&mut self, task: MaintenanceTask) {
        let done = self.backend.maintain(task.work).await;
        // A caller that is gone misses only the answer.
        let _ = task.reply.send(done);
    }

    async fn acknowledge(&mut self, mut group: Group, placed: &[StepOutcome]) {
        let mut outcomes = placed.iter();
        group.retain_mut(|step| {
            let placed = *outcomes.next().unwrap_or(&StepOutcome::Stored);
            settle(step, placed);
            step.room = None;
            placed == StepOutcome::Stored
        });
        // The publishing task ends after this one; it does bounded work and never waits.
        self.committed.send(group).await.unwrap_or_default();
    }

    /// Answers each step of a failed commit, after a look at the stored state where that is in doubt.
    ///
    /// A step that cannot be looked up has an unknown outcome, and the writer of its run stops until it is reopened.
    async fn settle_failure(&mut self, group: Group, failure: StoreFailure) {
        let (error, doubtful) = match failure {
            StoreFailure::Constraint(error) => return reject_constraint(group, &error),
            StoreFailure::Fenced => return reject_held_elsewhere(group),
            StoreFailure::NotStored(error) => (error, false),
            StoreFailure::Doubtful(error) => (error, true),
        };
        tracing::warn!(%error, steps = group.len(), "a commit of the run log failed");
        let failure = AppendError::Storage(error);
        for mut step in group {
            let cell = Arc::clone(&step.cell);
            // A step before it, of the same run, may just have been rejected.
            if let Err(error) = { cell.chain().admits(step.epoch) } {
                step.reject(&mut cell.chain(), error);
                continue;
            }
            let stored = match doubtful {
                true => self.backend.is_stored(&step).await,
                false => Some(false),
            };
            match stored {
                Some(true) => self.acknowledge(vec![step], &[StepOutcome::Stored]).await,
                Some(false) => step.reject(&mut cell.chain(), failure.clone()),
                None => step.reject(&mut cell.chain(), AppendError::Unknown),
            }
        }
    }
}

/// Answers a step of a commit that succeeded.
fn settle(step: &mut Step, placed: StepOutcome) {
    let cell = Arc::clone(&step.cell);
    match placed {
        StepOutcome::Stored => step.acknowledge(&mut cell.chain()),
        StepOutcome::Duplicate => {
            // A creation without a waiting caller has no answer, so the writer's next call
            // reports the loss.
            if step.reply.is_none() {
                step.reject(&mut cell.chain(), AppendError::Fenced);
            }
            step.answer(Err(StepError::Duplicate));
        }
        StepOutcome::HeldElsewhere => step.answer(Err(StepError::HeldElsewhere)),
        StepOutcome::Behind => {
            cell.lose();
            step.reject(&mut cell.chain(), AppendError::Unknown);
        }
    }
}

/// Rejects steps of runs to which another process has written: their writers have lost them.
fn reject_constraint(group: Group, error: &sqlx::Error) {
    for step in &group {
        tracing::error!(%error, run = %step.cell.id(), "the run has another writer");
    }
    reject_fenced(group);
}

/// Rejects steps whose writers have lost their runs.
fn reject_fenced(group: Group) {
    for mut step in group {
        let cell = Arc::clone(&step.cell);
        step.reject(&mut cell.chain(), AppendError::Fenced);
    }
}

/// Rejects steps of a process whose runs another one has taken over.
fn reject_held_elsewhere(mut group: Group) {
    for step in &mut group {
        step.answer(Err(StepError::HeldElsewhere));
    }
    reject_fenced(group);
}

/// Whether a row violates a constraint.
pub(crate) fn is_constraint(error: &sqlx::Error) -> bool {
    matches!(
        classify(error),
        ErrorClass::UniqueViolation | ErrorClass::Constraint
    )
}

/// Waits until the log is being closed.
pub(crate) async fn closed(closing: &mut watch::Receiver<bool>) {
    // A sender that is gone has dropped the log, whose queue then ends.
    if closing.wait_for(|closing| *closing).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Collects steps while all of them may wait: until one comes that may not, the window is over, or
/// enough have come.
async fn wait(
    window: Duration,
    group: &mut Group,
    queued: &mut mpsc::Receiver<Step>,
    closing: &mut watch::Receiver<bool>,
) {
    let over = tokio::time::sleep(window);
    tokio::pin!(over);
    let mut bytes = payload_bytes(&group[0]);
    while group.last().is_some_and(|step| step.may_wait)
        && group.len() < GROUP_STEPS
        && bytes < GROUP_BYTES
    {
        let step = tokio::select! {
            step = queued.recv() => step,
            () = &mut over => None,
            () = closed(closing), if !queued.is_closed() => None,
        };
        let Some(step) = step else { break };
        bytes += payload_bytes(&step);
        group.push(step);
    }
}

/// Fills `group` with queued steps. Returns a step that did not fit.
async fn gather(group: &mut Group, queued: &mut mpsc::Receiver<Step>) -> Option<Step> {
    let mut bytes = group.iter().map(payload_bytes).sum::<usize>();
    for round in 0..=YIELDS {
        let before = group.len();
        while group.len() < GROUP_STEPS {
            let Ok(step) = queued.try_recv() else { break };
            bytes += payload_bytes(&step);
            if bytes > GROUP_BYTES {
                return Some(step);
            }
            group.push(step);
        }
        let idle = group.len() == before;
        if group.len() == GROUP_STEPS || round == YIELDS || (idle && round > 0) {
            break;
        }
        task::yield_now().await;
    }
    None
}

fn payload_bytes(step: &Step) -> usize {
    let meta = step.create.as_ref().map_or(0, |run| run.meta.len());
    meta + step
        .events
        .iter()
        .map(|event| event.payload.len())
        .sum::<usize>()
}

/// Rejects the steps of a group that follow a step that was not stored.
fn admitted(group: Group) -> Group {
    let admit = |mut step: Step| {
        let cell = Arc::clone(&step.cell);
        let mut chain = cell.chain();
        match chain.admits(step.epoch) {
            Ok(()) => Some(step),
            Err(error) => {
                step.reject(&mut chain, error);
                None
            }
        }
    };
    group.into_iter().filter_map(admit).collect()
}
