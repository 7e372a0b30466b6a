//! The log in a SQLite file, one commit for all callers that wait at the same time.
//!
//! `committer` is the only task that writes; `batch` is the SQL of a group, `rows` the SQL of
//! reading. The file belongs to the log alone: see [`sql_store`] for the reason.

use std::sync::{Arc, Mutex, atomic::AtomicI64};
use std::time::Duration;

use async_trait::async_trait;
use core_types::{Durability, RequestId, RunId, Timestamp};
use sql_store::{Migrations, OpenError, SqliteDatabase, SqliteOptions};
use sqlx::migrate::Migrator;
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    task::JoinHandle,
};

use crate::{
    CreateError, Created, DeleteError, Event, Follower, NewEvent, NewRun, Order, ReadError,
    ReopenError, Reopened, RunCursor, RunFilter, RunLog, RunPage, RunSummary, RunWriter,
    StorageError, Verification,
    cell::lock,
    engine::Engine,
    sink::{Queue, Sink},
};
use committer::Committer;
use maintenance::MaintenanceTask;
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
/// The time that submitted events at [`Durability::Batched`] wait for their commit; a setting
/// overrides it.
pub const BATCH_WINDOW: Duration = Duration::from_millis(50);
/// Every size of group has a statement of its own, up to 256 rows, and there are some others.
const PREPARED_STATEMENTS: usize = 300;

/// A run log in a file of its own, for runs that declare [`Durability::Sync`] or
/// [`Durability::Batched`].
///
/// It must be created inside a tokio runtime: it keeps two tasks there, one commits and the other
/// shows committed events to followers. They end with [`RunLog::close`], or when the log and all
/// writers are dropped.
#[derive(Debug)]
pub struct SqliteRunLog {
    engine: Engine,
    database: SqliteDatabase,
    maintenance: mpsc::Sender<MaintenanceTask>,
    closing: Arc<Notify>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl SqliteRunLog {
    /// Opens the log in the file that `options` name, creating it if it is missing.
    ///
    /// # Errors
    /// [`OpenError`] when the file cannot be used.
    pub async fn open(options: SqliteOptions) -> Result<Self, OpenError> {
        Self::open_batching(options, BATCH_WINDOW).await
    }

    /// Opens the log; submitted events at [`Durability::Batched`] wait `window` for their commit.
    ///
    /// # Errors
    /// As [`SqliteRunLog::open`].
    pub async fn open_batching(
        mut options: SqliteOptions,
        window: Duration,
    ) -> Result<Self, OpenError> {
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
        let engine = Engine {
            durability: Durability::Sync,
            store: Arc::new(SqliteStore::new(database.clone())),
            sink: Sink::Queue(Queue { steps, room }),
            registry: Arc::default(),
            next_key: AtomicI64::new(next_key),
        };
        finish_deletions(&engine, &database).await.map_err(failed)?;
        let tasks = Mutex::new(vec![commit, publish]);
        Ok(Self {
            engine,
            database,
            maintenance,
            closing,
            tasks,
        })
    }
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

crate::log::delegate_to_engine!(SqliteRunLog, {
    async fn forget_requests(&self, before: Timestamp) -> Result<u64, StorageError> {
        maintenance::ask(
            &self.maintenance,
            maintenance::Work::ForgetRequests { before },
        )
        .await
    }

    async fn reclaim(&self) -> Result<u64, StorageError> {
        maintenance::ask(&self.maintenance, maintenance::Work::Reclaim).await
    }

    async fn close(&self) {
        self.closing.notify_one();
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the run log ended badly");
            }
        }
        self.engine.registry.close();
        self.database.close().await;
    }
});
