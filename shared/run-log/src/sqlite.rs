//! The log in a SQLite file, one commit for all callers that wait at the same time.
//!
//! `batch` is the SQL of a group. The file belongs to the log alone: see [`sql_store`] for the reason.

use std::time::Duration;

use sql_store::{Migrations, OpenError, Reader, SqliteDatabase, SqliteOptions};
use sqlx::migrate::Migrator;
use tokio::sync::watch;

use crate::{engine::Engine, keys::Keys, storage::Storage};
use backend::SqliteBackend;

mod backend;
mod batch;

static MIGRATOR: Migrator = sqlx::migrate!("migrations/sqlite");

/// The migrations of the tables in a file.
pub const MIGRATIONS: Migrations = Migrations::new("run_log", &MIGRATOR);

/// Every size of group has a statement of its own, up to 256 rows, and there are some others.
const PREPARED_STATEMENTS: usize = 300;

/// Opens the log in the file that `options` name, creating it if it is missing. An event at
/// `Durability::Batched` waits up to `window` for its commit.
///
/// It must be called inside a tokio runtime, as [`Storage::start`] must.
///
/// # Errors
/// [`OpenError`] when the file cannot be used.
pub(crate) async fn open(
    mut options: SqliteOptions,
    window: Duration,
) -> Result<Engine, OpenError> {
    options.statement_cache = options.statement_cache.max(PREPARED_STATEMENTS);
    let database = SqliteDatabase::open(options, &[MIGRATIONS]).await?;
    let failed = |source| OpenError::Connect {
        path: database.path().to_owned(),
        source,
    };
    let connection = database.connect_writer().await.map_err(failed)?;
    let next_key: i64 = sqlx::query_scalar("SELECT coalesce(max(key), 0) + 1 FROM runs")
        .fetch_one(database.reader())
        .await
        .map_err(failed)?;

    let storage = Storage {
        reader: Reader::Sqlite(database.reader().clone()),
        name: None,
        owned: Some(database.clone()),
        keys: Keys::counted(next_key),
        window,
        closing: watch::Sender::new(false),
    };
    let started = storage.start(SqliteBackend::new(database.clone(), connection));
    started.await.map_err(failed)
}
