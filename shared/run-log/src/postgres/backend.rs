//! The connection that writes to the server.

use std::time::Duration;

use core_types::RunOwner;
use membership::{FenceError, Membership, Writer};
use sql_store::{ErrorClass, classify};
use sqlx::{Connection, PgConnection};
use tokio::{sync::watch, time::sleep};

use super::batch;
use crate::{
    StorageError,
    committer::{Backend, Placed, StoreFailure},
    maintenance::{REQUESTS, Work},
    step::Step,
};

/// The first wait before a new attempt to connect; each later one is twice as long, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Owns the connection that writes, and its fence.
#[derive(Debug)]
pub(super) struct PostgresBackend {
    membership: Membership,
    service: RunOwner,
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
    /// Its answer is missing.
    Lost(sqlx::Error),
    /// The server refused it.
    Refused(sqlx::Error),
    /// The process may not write any more.
    Fenced,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        match (&error, classify(&error)) {
            (sqlx::Error::Database(_), ErrorClass::Disconnected) => Self::Lost(error),
            // Values that cannot be encoded were not sent.
            (sqlx::Error::Database(_) | sqlx::Error::Encode(_), _) => Self::Refused(error),
            _ => Self::Lost(error),
        }
    }
}

impl PostgresBackend {
    pub(super) fn new(
        membership: Membership,
        service: RunOwner,
        (connection, writer): (PgConnection, Writer),
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self {
            membership,
            service,
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
    /// The process is no longer a member, or the log is being closed; then it is not known which steps are stored.
    async fn reconnect(&mut self) -> Result<(), StoreFailure> {
        let mut wait = FIRST_WAIT;
        while self.connection.is_none() {
            match self.try_connect().await {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.syncs = true;
                    self.generation += 1;
                }
                Err(FenceError::Lost(_)) => return Err(StoreFailure::Fenced),
                Err(FenceError::Failed(error)) if *self.closing.borrow() => {
                    return Err(StoreFailure::Doubtful(error.into()));
                }
                Err(FenceError::Failed(error)) => {
                    tracing::warn!(%error, "the run log waits for the database");
                    tokio::select! {
                        () = sleep(wait) => {}
                        _ = self.membership.lost() => return Err(StoreFailure::Fenced),
                    }
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

    /// Stores steps in one statement, unless the connection is lost.
    async fn try_store(&mut self, steps: &[Step]) -> Result<Vec<Placed>, Failed> {
        let generation = self.generation;
        let syncs = !steps.iter().all(|step| step.may_wait);
        let Some(connection) = &mut self.connection else {
            return Err(Failed::Lost(sqlx::Error::WorkerCrashed));
        };
        if self.syncs != syncs {
            let text = match syncs {
                true => "SET synchronous_commit = on",
                false => "SET synchronous_commit = off",
            };
            sqlx::query(text).execute(&mut *connection).await?;
            self.syncs = syncs;
        }
        let behind = batch::behind(connection, steps, generation).await?;
        let session = batch::Session {
            writer: self.writer,
            member: self.membership.id(),
            service: self.service,
        };
        let Some(placed) = batch::store(connection, &session, steps, &behind).await? else {
            return Err(Failed::Fenced);
        };
        for (step, _) in steps
            .iter()
            .zip(&placed)
            .filter(|(_, placed)| **placed == Placed::Stored)
        {
            step.cell.confirm(generation);
        }
        Ok(placed)
    }
}

impl PostgresBackend {
    /// Stores steps in one commit, on as many connections as it takes.
    async fn store_together(&mut self, steps: &[Step]) -> Result<Vec<Placed>, StoreFailure> {
        loop {
            let error = match self.try_store(steps).await {
                Ok(placed) => return Ok(placed),
                Err(Failed::Lost(error)) => error,
                Err(Failed::Fenced) => {
                    drop(self.membership.fenced());
                    return Err(StoreFailure::Fenced);
                }
                Err(Failed::Refused(error)) => {
                    return Err(match classify(&error) {
                        ErrorClass::UniqueViolation | ErrorClass::Constraint => {
                            StoreFailure::Constraint(error)
                        }
                        _ => StoreFailure::NotStored(error.into()),
                    });
                }
            };
            tracing::warn!(%error, steps = steps.len(), "the answer to a commit of the run log was lost");
            // Its server may not answer, so it is not closed in order.
            self.connection = None;
            self.reconnect().await?;
            // Since the raise, the statement was carried out or never will be. If that cannot be read, or if nothing was
            // stored, it is repeated, on the next connection if need be.
            if let Some(connection) = &mut self.connection
                && let Ok(Some(placed)) =
                    batch::outcome(connection, self.membership.id(), steps).await
            {
                return Ok(placed);
            }
        }
    }
}

impl Backend for PostgresBackend {
    async fn store(&mut self, steps: &[Step]) -> Result<Vec<Placed>, StoreFailure> {
        let mut all = Vec::with_capacity(steps.len());
        // A deletion is a statement of its own.
        let together =
            |before: &Step, after: &Step| before.deletion.is_none() && after.deletion.is_none();
        for steps in steps.chunk_by(together) {
            match self.store_together(steps).await {
                Ok(placed) => all.extend(placed),
                // The steps before are stored.
                Err(StoreFailure::Constraint(error)) if !all.is_empty() => {
                    return Err(StoreFailure::Doubtful(error.into()));
                }
                Err(StoreFailure::NotStored(error)) if !all.is_empty() => {
                    return Err(StoreFailure::Doubtful(error));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(all)
    }

    async fn is_stored(&mut self, step: &Step) -> Option<bool> {
        let connection = self.connection.as_mut()?;
        let member = self.membership.id();
        let outcome = batch::outcome(connection, member, std::slice::from_ref(step)).await;
        Some(outcome.ok()?.is_some())
    }

    async fn maintain(&mut self, work: Work) -> Result<u64, StorageError> {
        let pool = self.membership.database().reader();
        match work {
            Work::ForgetRequests { before, tenant } => {
                let sql = "DELETE FROM runs WHERE key IN (SELECT key FROM runs \
                           WHERE deleted AND NOT hidden AND finished < $1 AND service = $2 \
                           AND ($3::text IS NULL OR tenant = $3) LIMIT $4)";
                let deleted = sqlx::query(sql)
                    .bind(before.unix_nanos())
                    .bind(self.service.prefix())
                    .bind(tenant.map(|tenant| tenant.to_string()))
                    .bind(REQUESTS);
                Ok(deleted.execute(pool).await?.rows_affected())
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
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        let member = self.membership.id();
        let closed = batch::release(&mut connection, self.writer, (member, self.service)).await;
        if let Err(error) = closed.and(connection.close().await) {
            tracing::warn!(%error, "the run log's connection did not close cleanly");
        }
    }
}
