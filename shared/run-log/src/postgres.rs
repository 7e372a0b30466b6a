//! The log in a PostgreSQL database, which the services of all processes share: one statement for all callers that wait
//! at the same time, behind the fence of its connection.
//!
//! `batch` is the SQL of a group, `backend` the connection that writes, and its replacement after it was lost.

mod backend;
mod batch;

use std::time::Duration;

use membership::{FenceError, Membership};
use sql_store::{Migrations, Reader};
use sqlx::{PgConnection, migrate::Migrator};
use tokio::sync::watch;

use crate::{StorageError, engine::Engine, keys::Keys, storage::Storage};
use backend::PostgresBackend;

static MIGRATOR: Migrator = sqlx::migrate!("migrations/postgres");

/// The migrations of the tables in a PostgreSQL database. Those of the members come before.
pub const SERVER_MIGRATIONS: Migrations = Migrations::new("run_log", &MIGRATOR);

/// The largest number of runs of fenced members that are freed in one statement.
const FREED_TOGETHER: i64 = 500;

/// Opens a log by its name.
///
/// # Errors
/// The loss of the membership, or the database's error.
pub(crate) async fn open(
    membership: Membership,
    log: &'static str,
    window: Duration,
) -> Result<Engine, FenceError> {
    let mut connection = membership.connect().await?;
    let writer = membership.add_writer(&mut connection).await?;
    free_runs(&mut connection).await?;
    let reader = Reader::Postgres(membership.database().reader().clone());
    let storage = Storage {
        reader: reader.clone(),
        name: Some(log),
        owned: None,
        keys: Keys::of_server(reader),
        window,
        closing: watch::Sender::new(false),
    };
    let closing = storage.closing.subscribe();
    let backend = PostgresBackend::new(membership, log, (connection, writer), closing);
    Ok(storage.start(backend).await?)
}

/// Frees the runs of members that are fenced or have left, so that others take them over.
async fn free_runs(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    loop {
        let freed = sqlx::query(
            "UPDATE runs SET holder = NULL WHERE key IN (SELECT key FROM runs WHERE holder IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM members WHERE members.id = runs.holder AND NOT members.fenced) \
             LIMIT $1 FOR UPDATE SKIP LOCKED)",
        );
        let freed = freed.bind(FREED_TOGETHER).execute(&mut *connection).await?;
        if freed.rows_affected() == 0 {
            return Ok(());
        }
    }
}

impl From<FenceError> for StorageError {
    fn from(error: FenceError) -> Self {
        match error {
            FenceError::Lost(_) => Self::Closed,
            FenceError::Failed(error) => error.into(),
        }
    }
}
