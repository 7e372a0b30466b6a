//! The connection that writes to the file.

use sql_store::{Session, SqliteDatabase};
use sqlx::{Connection, SqliteConnection};

use super::batch::{self, InsertTexts};
use crate::{
    StorageError,
    committer::{Backend, StepOutcome, StoreFailure, is_constraint},
    maintenance::{self, Work},
    step::Step,
};

/// Owns the connection that writes.
#[derive(Debug)]
pub(super) struct SqliteBackend {
    database: SqliteDatabase,
    /// `None` after a failure that left no new connection behind.
    connection: Option<SqliteConnection>,
    texts: InsertTexts,
}

impl SqliteBackend {
    pub(super) fn new(database: SqliteDatabase, connection: SqliteConnection) -> Self {
        Self {
            database,
            connection: Some(connection),
            texts: InsertTexts::new(),
        }
    }

    /// Drops the connection, whose state cannot be trusted after a failure.
    async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            // That it may not close cleanly is expected.
            connection.close().await.unwrap_or_default();
        }
    }
}

impl Backend for SqliteBackend {
    async fn store(&mut self, steps: &[Step]) -> Result<Vec<StepOutcome>, StoreFailure> {
        let connection = connected(&mut self.connection, &self.database).await;
        let connection = connection.map_err(|error| StoreFailure::NotStored(error.into()))?;
        match batch::store(connection, &mut self.texts, steps).await {
            Ok(duplicates) => {
                let mut placed = vec![StepOutcome::Stored; steps.len()];
                for index in duplicates {
                    placed[index] = StepOutcome::Duplicate;
                }
                Ok(placed)
            }
            Err(error) if is_constraint(&error) => Err(StoreFailure::Constraint(error)),
            Err(error) => {
                // After a failed sync this connection cannot be trusted, so the truth is read through a new one.
                self.disconnect().await;
                Err(StoreFailure::Doubtful(error.into()))
            }
        }
    }

    async fn is_stored(&mut self, step: &Step) -> Option<bool> {
        let connection = connected(&mut self.connection, &self.database).await;
        batch::is_stored(connection.ok()?, step).await.ok()
    }

    async fn maintain(&mut self, work: Work) -> Result<u64, StorageError> {
        let done = match connected(&mut self.connection, &self.database).await {
            Ok(connection) => carry_out(connection, work).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            self.disconnect().await;
        }
        done.map_err(StorageError::from)
    }

    async fn close(self) {
        if let Some(connection) = self.connection
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the run log's connection did not close cleanly");
        }
    }
}

/// Does a step of maintenance. Returns the number of request ids or bytes.
async fn carry_out(connection: &mut SqliteConnection, work: Work) -> Result<u64, sqlx::Error> {
    match work {
        Work::ForgetRequests { before, tenant } => {
            let forget = maintenance::forget_requests(before, tenant, None);
            Session::from(connection).execute(forget).await
        }
        Work::Reclaim => sql_store::vacuum::reclaim(connection).await,
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
