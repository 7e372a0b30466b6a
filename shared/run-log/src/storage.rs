//! The assembly of a log over a database: the tasks that write, and the reads.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sql_store::{Reader, SqliteDatabase};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::{
    committer::{self, Backend},
    engine::Engine,
    keys::Keys,
    open_runs::OpenRuns,
    rows::{HiddenRun, StoredRuns},
    sink::{Queue, Sink},
};

/// The most steps that may wait for a commit; the next caller waits for room.
const QUEUED_STEPS: usize = 4096;
/// The most bytes of payload that may wait.
const QUEUED_BYTES: usize = 64 << 20;
/// The time that an event may wait for its commit at `Durability::Batched`, unless options state another.
pub const BATCH_WINDOW: Duration = Duration::from_millis(50);

/// The parts of a log that depend on its database.
pub(crate) struct Storage {
    pub(crate) reader: Reader,
    /// The name of the log; `None` where the database holds no other.
    pub(crate) name: Option<&'static str>,
    /// The file, which is closed with the log; a database of a server is the process's.
    pub(crate) owned: Option<SqliteDatabase>,
    pub(crate) keys: Keys,
    /// The time that an event at `Durability::Batched` waits for its commit.
    pub(crate) window: Duration,
    /// Asks the committing task to end.
    pub(crate) closing: watch::Sender<bool>,
}

impl Storage {
    /// Starts a log.
    ///
    /// It must be called inside a tokio runtime: the log keeps two tasks there, one that commits and one that
    /// shows committed events to followers. They end with [`Engine::close`], or when the log and all writers
    /// are dropped.
    ///
    /// # Errors
    /// The database's error.
    pub(crate) async fn start(self, backend: impl Backend) -> Result<Engine, sqlx::Error> {
        let (steps, queued) = mpsc::channel(QUEUED_STEPS);
        let (maintenance, asked) = mpsc::channel(1);
        let closing = self.closing.subscribe();
        let open = OpenRuns::default();
        let tasks = committer::spawn(backend, self.window, open.commits(), queued, asked, closing);
        let store = Arc::new(StoredRuns {
            reader: self.reader,
            log: self.name,
            owned: self.owned,
            open,
            maintenance,
            closing: self.closing,
            tasks: Mutex::new(tasks),
        });
        let room = Arc::new(Semaphore::new(QUEUED_BYTES));
        let sink = Sink::Queue(Queue { steps, room });
        let hidden = store.hidden().await?;
        let engine = Engine::new(store, sink, self.keys);
        finish_deletions(&engine, hidden).await;
        Ok(engine)
    }
}

/// Deletes the rest of runs whose deletion the previous process did not finish.
async fn finish_deletions(engine: &Engine, hidden: Vec<HiddenRun>) {
    for run in hidden {
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
}
