//! The log in a SQLite file, one commit for all callers that wait at the same time.
//!
//! `committer` is the only task that writes; `batch` is the SQL of a group, `rows` the SQL of
//! reading. The file belongs to the log alone: see [`sql_store`] for the reason.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sql_store::{Migrations, OpenError, SqliteDatabase, SqliteOptions};
use sqlx::migrate::Migrator;
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::{
    engine::Engine,
    sink::{Queue, Sink},
};
use committer::Committer;
use rows::SqliteStore;

mod batch;
mod committer;
mod maintenance;
mod rows;

static MIGRATOR: Migrator = sqlx::migrate!("migrations/sqlite");

/// The most steps that may wait for a commit; the next caller waits for room.
const QUEUED_STEPS: usize = 4096;
/// The most bytes of payload that may wait.
const QUEUED_BYTES: usize = 64 << 20;
/// The most committed groups that may wait to be shown to followers.
const QUEUED_GROUPS: usize = 64;
/// The time that an event may wait for its commit at `Durability::Batched`, unless settings state another.
pub(crate) const BATCH_WINDOW: Duration = Duration::from_millis(50);
/// Every size of group has a statement of its own, up to 256 rows, and there are some others.
const PREPARED_STATEMENTS: usize = 300;

/// Opens the log in the file that `options` name, creating it if it is missing. An event at
/// `Durability::Batched` waits up to `window` for its commit.
///
/// It must be called inside a tokio runtime: the log keeps two tasks there, one that commits and one that
/// shows committed events to followers. They end with [`Engine::close`], or when the log and all writers
/// are dropped.
///
/// # Errors
/// [`OpenError`] when the file cannot be used.
pub(crate) async fn open(
    mut options: SqliteOptions,
    window: Duration,
) -> Result<Engine, OpenError> {
    options.statement_cache = options.statement_cache.max(PREPARED_STATEMENTS);
    let migrations = [Migrations::new("run_log", &MIGRATOR)];
    let database = SqliteDatabase::open(options, &migrations).await?;
    let failed = |source| OpenError::Connect {
        path: database.path().to_owned(),
        source,
    };
    let connection = database.connect_writer().await.map_err(failed)?;
    let next_key: i64 = sqlx::query_scalar("SELECT coalesce(max(key), 0) + 1 FROM runs")
        .fetch_one(database.reader())
        .await
        .map_err(failed)?;

    let (steps, queued) = mpsc::channel(QUEUED_STEPS);
    let (maintenance, asked) = mpsc::channel(1);
    let (committed, groups) = mpsc::channel(QUEUED_GROUPS);
    let closing = Arc::new(Notify::new());
    let committer = Committer::new(database.clone(), connection, committed, window);
    let commit = tokio::spawn(committer.run(queued, asked, Arc::clone(&closing)));
    let publish = tokio::spawn(committer::publish(groups));

    let room = Arc::new(Semaphore::new(QUEUED_BYTES));
    let store = SqliteStore {
        database: database.clone(),
        maintenance,
        closing,
        tasks: Mutex::new(vec![commit, publish]),
    };
    let sink = Sink::Queue(Queue { steps, room });
    let engine = Engine::new(Arc::new(store), sink, next_key);
    finish_deletions(&engine, &database).await.map_err(failed)?;
    Ok(engine)
}

/// Deletes the rest of runs whose deletion the previous process did not finish.
async fn finish_deletions(engine: &Engine, database: &SqliteDatabase) -> Result<(), sqlx::Error> {
    for run in rows::hidden(database).await? {
        let deleted = match run.id.parse() {
            Ok(id) => {
                let last = u64::try_from(run.end_sequence).unwrap_or_default();
                let cell = engine.registry.cell(id);
                engine.delete_hidden(&cell, run.key, last).await
            }
            Err(_) => continue,
        };
        if let Err(error) = deleted {
            // No reader sees these events; the next start tries again.
            tracing::warn!(run = run.id, %error, "a deleted run still takes room");
        }
    }
    Ok(())
}
