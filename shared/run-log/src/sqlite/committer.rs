//! The task that commits, and the task that shows committed steps.

use std::sync::Arc;
use std::time::Duration;

use sql_store::{ErrorClass, SqliteDatabase, classify};
use sqlx::{Connection, SqliteConnection};
use tokio::{
    sync::{Notify, mpsc},
    task,
};

use super::batch::{self, InsertTexts};
use super::maintenance::{self, MaintenanceTask};
use crate::{
    AppendError, StorageError,
    step::{Step, StepError},
};

/// The most steps of one commit.
const GROUP_STEPS: usize = 1024;
/// The bytes of payload at which a group accepts no further steps.
const GROUP_BYTES: usize = 8 << 20;
/// The times that the committing task yields to the runs that the last commit woke, before the next
/// one starts. It does not delay a lone run, and without it busy runs fall into halves that commit
/// in turn.
const YIELDS: usize = 4;

/// Steps that are stored, on their way to followers.
pub(super) type Group = Vec<Step>;

/// Owns the connection that writes.
#[derive(Debug)]
pub(super) struct Committer {
    database: SqliteDatabase,
    /// `None` after a failure that left no new connection behind.
    connection: Option<SqliteConnection>,
    texts: InsertTexts,
    committed: mpsc::Sender<Group>,
    /// The time that steps wait if they may.
    window: Duration,
}

/// Shows committed steps to the followers of their runs.
///
/// A task of its own, because waking a thousand followers takes longer than a commit should.
pub(super) async fn publish(mut groups: mpsc::Receiver<Group>) {
    while let Some(group) = groups.recv().await {
        for step in group {
            step.cell.publish(&step.events, step.place);
        }
    }
}

impl Committer {
    pub(super) fn new(
        database: SqliteDatabase,
        connection: SqliteConnection,
        committed: mpsc::Sender<Group>,
        window: Duration,
    ) -> Self {
        Self {
            database,
            connection: Some(connection),
            texts: InsertTexts::new(),
            committed,
            window,
        }
    }

    /// Commits queued steps, group by group, until the queue is closed and empty.
    pub(super) async fn run(
        mut self,
        mut queued: mpsc::Receiver<Step>,
        mut tasks: mpsc::Receiver<MaintenanceTask>,
        closing: Arc<Notify>,
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
                    () = closing.notified() => {
                        // Queued steps are still received; further steps are refused.
                        queued.close();
                        continue;
                    }
                },
            };
            let mut group = vec![first];
            self.wait(&mut group, &mut queued, &closing).await;
            carried = gather(&mut group, &mut queued).await;
            self.commit(group).await;
        }
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the run log's connection did not close cleanly");
        }
    }

    /// Collects steps while all of them may wait: until one comes that may not, the window is over, or
    /// enough have come.
    async fn wait(&self, group: &mut Group, queued: &mut mpsc::Receiver<Step>, closing: &Notify) {
        let over = tokio::time::sleep(self.window);
        tokio::pin!(over);
        let mut bytes = payload_bytes(&group[0]);
        while group.last().is_some_and(|step| step.may_wait)
            && group.len() < GROUP_STEPS
            && bytes < GROUP_BYTES
        {
            let step = tokio::select! {
                step = queued.recv() => step,
                () = &mut over => None,
                () = closing.notified() => {
                    queued.close();
                    None
                }
            };
            let Some(step) = step else { break };
            bytes += payload_bytes(&step);
            group.push(step);
        }
    }

    async fn commit(&mut self, group: Group) {
        let group = admitted(group);
        match self.try_store(&group).await {
            Ok(duplicates) => self.acknowledge(group, &duplicates).await,
            // One bad row fails the statement for all; alone, only its own step fails.
            Err(error) if is_constraint(&error) && group.len() > 1 => {
                for step in group {
                    self.commit_alone(step).await;
                }
            }
            Err(error) => self.settle_failure(group, error).await,
        }
    }

    async fn commit_alone(&mut self, step: Step) {
        // The step before may have been of the same run, and failed.
        let group = admitted(vec![step]);
        match self.try_store(&group).await {
            Ok(duplicates) => self.acknowledge(group, &duplicates).await,
            Err(error) => self.settle_failure(group, error).await,
        }
    }

    /// Does a step of maintenance, between two groups.
    async fn maintain(&mut self, task: MaintenanceTask) {
        let done = match connected(&mut self.connection, &self.database).await {
            Ok(connection) => maintenance::carry_out(connection, task.work).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            self.disconnect().await;
        }
        // A caller that is gone misses only the answer.
        let _ = task.reply.send(done.map_err(StorageError::from));
    }

    /// Drops the connection, whose state cannot be trusted after a failure.
    async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            // That it may not close cleanly is expected.
            connection.close().await.unwrap_or_default();
        }
    }

    async fn try_store(&mut self, group: &[Step]) -> Result<Vec<usize>, sqlx::Error> {
        let connection = connected(&mut self.connection, &self.database).await?;
        batch::store(connection, &mut self.texts, group).await
    }

    async fn acknowledge(&mut self, mut group: Group, duplicates: &[usize]) {
        for (index, step) in group.iter_mut().enumerate() {
            let cell = Arc::clone(&step.cell);
            if duplicates.contains(&index) {
                // A creation without a waiting caller has no answer, so the writer's next call
                // reports the loss.
                if step.reply.is_none() {
                    step.reject(&mut cell.chain(), AppendError::Fenced);
                }
                step.answer(Err(StepError::Duplicate));
            } else {
                step.acknowledge(&mut cell.chain());
            }
            step.room = None;
        }
        let mut index = 0;
        group.retain(|_| {
            index += 1;
            !duplicates.contains(&(index - 1))
        });
        // The publishing task ends after this one; it does bounded work and never waits.
        self.committed.send(group).await.unwrap_or_default();
    }

    /// Reads the stored state after a failed commit, and answers each step.
    ///
    /// After a failed sync the old connection cannot be trusted, so the truth is read
    /// through a new one. When even that fails the outcome is unknown, and the writers of these
    /// runs stop until they are reopened.
    async fn settle_failure(&mut self, group: Group, error: sqlx::Error) {
        if is_constraint(&error) {
            return self.reject_constraint(group, &error);
        }
        tracing::warn!(%error, steps = group.len(), "a commit of the run log failed");
        let attempted = self.connection.is_some();
        self.disconnect().await;
        let failure = AppendError::Storage(StorageError::from(error));
        for mut step in group {
            let cell = Arc::clone(&step.cell);
            // A step before it, of the same run, may just have been rejected.
            if let Err(error) = { cell.chain().admits(step.epoch) } {
                step.reject(&mut cell.chain(), error);
                continue;
            }
            let stored = if attempted {
                self.look_up(&step).await
            } else {
                Some(false)
            };
            match stored {
                Some(true) => self.acknowledge(vec![step], &[]).await,
                Some(false) => step.reject(&mut cell.chain(), failure.clone()),
                None => step.reject(&mut cell.chain(), AppendError::Unknown),
            }
        }
    }

    /// Returns whether a step is stored, or `None` when that cannot be read.
    async fn look_up(&mut self, step: &Step) -> Option<bool> {
        let connection = connected(&mut self.connection, &self.database).await;
        batch::is_stored(connection.ok()?, step).await.ok()
    }

    /// Rejects steps of runs to which another process has written: their writers have lost them.
    fn reject_constraint(&self, group: Group, error: &sqlx::Error) {
        for mut step in group {
            tracing::error!(%error, run = %step.cell.id(), "the run has another writer");
            let cell = Arc::clone(&step.cell);
            step.reject(&mut cell.chain(), AppendError::Fenced);
        }
    }
}

/// Returns the connection that writes, a new one if there is none.
async fn connected<'a>(
    connection: &'a mut Option<SqliteConnection>,
    database: &SqliteDatabase,
) -> Result<&'a mut SqliteConnection, sqlx::Error> {
    match connection {
        Some(connection) => Ok(connection),
        none => Ok(none.insert(database.connect_writer().await?)),
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

fn is_constraint(error: &sqlx::Error) -> bool {
    matches!(
        classify(error),
        ErrorClass::UniqueViolation | ErrorClass::Constraint
    )
}
