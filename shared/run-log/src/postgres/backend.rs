//! The connection that writes to the server.

use std::time::Duration;

use membership::{FenceError, Membership, Writer};
use sql_store::{ErrorClass, Session, classify};
use sqlx::{Connection, PgConnection};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::batch;
use crate::{
    StorageError,
    committer::{self, Backend, StepOutcome, StoreFailure, is_constraint},
    maintenance::{self, Work},
    step::Step,
};

/// The first wait before a new attempt to connect; each later one is twice as long, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait for an answer; the server ends a statement earlier.
const LONGEST_ANSWER: Duration = Duration::from_secs(20);
/// The largest number of connections that one group may lose.
const MOST_LOSSES: u32 = 8;

/// Owns the connection that writes, and its fence.
#[derive(Debug)]
pub(super) struct PostgresBackend {
    membership: Membership,
    log: &'static str,
    writer: Writer,
    /// `None` after a failure, until a new one is made.
    connection: Option<PgConnection>,
    /// Whether the session waits for the disk at a commit.
    syncs: bool,
    /// The number of connections so far. The head of a run is compared once per connection.
    generation: u64,
    closing: watch::Receiver<bool>,
}

/// The reason for which a statement was not carried out, or may not have been.
enum Failed {
    /// Its answer is missing; the next connection shows whether it was carried out.
    Lost(sqlx::Error),
    /// The server refused it.
    Refused(sqlx::Error),
    /// The answer cannot be read.
    Unread(sqlx::Error),
    /// The process may not write any more.
    Fenced,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(_) if classify(&error) == ErrorClass::Disconnected => {
                Self::Lost(error)
            }
            // Values that cannot be encoded were not sent.
            sqlx::Error::Database(_) | sqlx::Error::Encode(_) => Self::Refused(error),
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Self::Lost(error)
            }
            _ => Self::Unread(error),
        }
    }
}

impl PostgresBackend {
    pub(super) fn new(
        membership: Membership,
        log: &'static str,
        (connection, writer): (PgConnection, Writer),
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self {
            membership,
            log,
            writer,
            connection: Some(connection),
            syncs: true,
            generation: 1,
            closing,
        }
    }

    /// Makes a new connection if there is none, and raises the epoch of the writer: then each statement of the earlier
    /// connection is carried out or never will be. Waits while the server cannot be reached.
    ///
    /// # Errors
    /// The process is no longer a member, or the log is being closed.
    async fn reconnect(&mut self) -> Result<(), StorageError> {
        let (mut wait, membership) = (FIRST_WAIT, self.membership.clone());
        while self.connection.is_none() {
            let mut closing = self.closing.clone();
            let connected = tokio::select! {
                connected = self.try_connect() => connected,
                _ = membership.lost() => return Err(StorageError::Closed),
                () = committer::closed(&mut closing) => {
                    // One attempt more, so that a log that is closed in order frees its runs.
                    self.try_connect().await
                }
            };
            match connected {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.syncs = true;
                    self.generation += 1;
                }
                Err(FenceError::Lost(_)) => return Err(StorageError::Closed),
                Err(FenceError::Failed(error)) if *self.closing.borrow() => {
                    return Err(error.into());
                }
                Err(FenceError::Failed(error)) => {
                    tracing::warn!(%error, "the run log waits for the database");
                    sleep(wait).await;
                    wait = LONGEST_WAIT.min(wait * 2);
                }
            }
        }
        Ok(())
    }

    async fn try_connect(&mut self) -> Result<PgConnection, FenceError> {
        let mut connection = self.membership.connect().await?;
        self.membership
            .raise(&mut connection, &mut self.writer)
            .await?;
        Ok(connection)
    }

    /// Returns the outcomes of steps whose answer was lost, or `None` if they are not stored.
    ///
    /// # Errors
    /// The process is no longer a member, the log is being closed, or the outcome cannot be read.
    async fn outcome(&mut self, steps: &[Step]) -> Result<Option<Vec<StepOutcome>>, StorageError> {
        for _ in 0..MOST_LOSSES {
            self.reconnect().await?;
            let Some(connection) = &mut self.connection else {
                return Err(StorageError::Closed);
            };
            let member = self.membership.id();
            match in_time(batch::outcome(connection, member, steps)).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => {
                    tracing::warn!(%error, "the outcome of a commit of the run log cannot be read");
                    self.connection = None;
                    sleep(FIRST_WAIT).await;
                }
            }
        }
        Err(StorageError::Busy)
    }

    /// Stores steps in one statement, unless the connection is lost.
    async fn try_store(&mut self, steps: &[Step]) -> Result<Vec<StepOutcome>, Failed> {
        let generation = self.generation;
        // A step with a waiting caller, or of a run that is synced, is on disk before it is acknowledged.
        let syncs = steps
            .iter()
            .any(|step| !step.may_wait || step.reply.is_some());
        let Some(connection) = &mut self.connection else {
            return Err(Failed::Lost(sqlx::Error::WorkerCrashed));
        };
        if self.syncs != syncs {
            let text = match syncs {
                true => "SET synchronous_commit = on",
                false => "SET synchronous_commit = off",
            };
            in_time(sqlx::query(text).execute(&mut *connection)).await?;
            self.syncs = syncs;
        }
        let behind = in_time(batch::behind(connection, steps, generation)).await?;
        let session = batch::Session {
            writer: self.writer,
            member: self.membership.id(),
            log: self.log,
        };
        let stored = in_time(batch::store(connection, &session, steps, &behind)).await?;
        let placed = stored.ok_or(Failed::Fenced)?;
        for (step, placed) in steps.iter().zip(&placed) {
            if *placed == StepOutcome::Stored && step.deletion.is_none() {
                step.cell.confirm(generation);
            }
        }
        Ok(placed)
    }

    /// Stores steps in one commit, on as many connections as it takes.
    async fn store_together(&mut self, steps: &[Step]) -> Result<Vec<StepOutcome>, StoreFailure> {
        for losses in 0..MOST_LOSSES {
            if let Err(error) = self.reconnect().await {
                return Err(match (losses, self.membership.loss()) {
                    (0, Some(_)) => StoreFailure::Fenced,
                    (0, None) => StoreFailure::NotStored(error),
                    _ => StoreFailure::Doubtful(error),
                });
            }
            if losses == 0 && self.membership.loss().is_some() {
                return Err(StoreFailure::Fenced);
            }
            let error = match self.try_store(steps).await {
                Ok(placed) => return Ok(placed),
                Err(Failed::Lost(error)) => error,
                Err(Failed::Unread(error)) => return Err(StoreFailure::Doubtful(error.into())),
                Err(Failed::Fenced) => {
                    drop(self.membership.fenced());
                    return Err(StoreFailure::Fenced);
                }
                Err(Failed::Refused(error)) => {
                    return Err(match is_constraint(&error) {
                        true => StoreFailure::Constraint(error),
                        false => StoreFailure::NotStored(error.into()),
                    });
                }
            };
            tracing::warn!(%error, steps = steps.len(), "the answer to a commit of the run log was lost");
            // Its server may not answer, so it is not closed in order.
            self.connection = None;
            match self.outcome(steps).await {
                Ok(Some(placed)) => return Ok(placed),
                Ok(None) => sleep(FIRST_WAIT * losses).await,
                Err(error) => return Err(StoreFailure::Doubtful(error)),
            }
        }
        // Such a group may end its session each time.
        Err(StoreFailure::Doubtful(StorageError::Busy))
    }
}

/// Waits for an answer of the server, which may have vanished without a word.
async fn in_time<T>(
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match timeout(LONGEST_ANSWER, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}

impl Backend for PostgresBackend {
    async fn store(&mut self, steps: &[Step]) -> Result<Vec<StepOutcome>, StoreFailure> {
        let mut all = Vec::with_capacity(steps.len());
        // A deletion is a statement of its own.
        let together =
            |before: &Step, after: &Step| before.deletion.is_none() && after.deletion.is_none();
        for steps in steps.chunk_by(together) {
            match self.store_together(steps).await {
                Ok(placed) => all.extend(placed),
                Err(failure) if all.is_empty() => return Err(failure),
                // The steps before are stored.
                Err(StoreFailure::Constraint(error)) => {
                    return Err(StoreFailure::Doubtful(error.into()));
                }
                Err(StoreFailure::NotStored(error) | StoreFailure::Doubtful(error)) => {
                    return Err(StoreFailure::Doubtful(error));
                }
                Err(StoreFailure::Fenced) => {
                    return Err(StoreFailure::Doubtful(StorageError::Closed));
                }
            }
        }
        Ok(all)
    }

    async fn is_stored(&mut self, step: &Step) -> Option<bool> {
        if step.events.is_empty() && step.create.is_none() && step.deletion.is_none() {
            // A phase, or a rest, leaves no trace by which this step is known.
            return None;
        }
        let connection = self.connection.as_mut()?;
        let member = self.membership.id();
        let outcome = batch::outcome(connection, member, std::slice::from_ref(step));
        Some(in_time(outcome).await.ok()?.is_some())
    }

    async fn maintain(&mut self, work: Work) -> Result<u64, StorageError> {
        let pool = self.membership.database().reader();
        match work {
            Work::ForgetRequests { before, tenant } => {
                let forget = maintenance::forget_requests(before, tenant, Some(self.log));
                let mut connection = pool.acquire().await?;
                Ok(Session::Postgres(&mut connection).execute(forget).await?)
            }
            // The server reuses the space of rows itself; a day whose runs have gone is dropped as a whole.
            Work::Reclaim => {
                let dropped: Option<String> = sqlx::query_scalar("SELECT drop_event_partition()")
                    .fetch_one(pool)
                    .await?;
                if let Some(partition) = dropped {
                    tracing::info!(partition, "the events of a day were dropped");
                }
                Ok(0)
            }
        }
    }

    async fn close(mut self) {
        if self.connection.is_none() {
            self.connection = self.try_connect().await.ok();
        }
        let Some(mut connection) = self.connection.take() else {
            // The runs are freed once the lease has ended.
            return;
        };
        let holder = (self.membership.id(), self.log);
        let released = in_time(batch::release(&mut connection, self.writer, holder)).await;
        if let Err(error) = released.and(in_time(connection.close()).await) {
            tracing::warn!(%error, "the run log's connection did not close cleanly");
        }
    }
}
