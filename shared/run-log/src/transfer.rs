//! Runs of one storage in another one, and their verification at rest.
//!
//! A run is copied with its events in one transaction, as they are: the hashes of its chain stay, which is recomputed on
//! the way. A run that is there already is passed over, so a copy that ended in between is repeated.

use std::collections::HashSet;

use core_types::RunId;
use sql_store::{Database, PostgresDatabase, Session, SqliteDatabase, Statement};

use crate::{
    Event, Hash, StorageError,
    event::Head,
    keys::Keys,
    rows::{EVENTS, RUNS, StoredEvent, StoredRun},
};

/// The number of runs that are looked up together.
const RUN_PAGE: usize = 100;
/// The number of events that are read and written together.
const EVENT_PAGE: usize = 500;
/// The number of events after which a transaction is committed at the end of a run.
const GROUP: u64 = 5_000;

/// The storage of a log that no service has open.
#[derive(Clone, Debug)]
pub struct LogAtRest {
    database: Database,
    /// The name of the log; `None` for a file, which has no other.
    name: Option<&'static str>,
}

/// The numbers of a copy or a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCount {
    /// Runs that were copied or verified.
    pub runs: u64,
    /// Their events.
    pub events: u64,
    /// Runs that were there already.
    pub present: u64,
}

/// The reason for which runs are not copied or not whole.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// An event is not as it was written, or one is missing.
    #[error("the run {run} is damaged at event {sequence}")]
    Damaged {
        /// The run.
        run: RunId,
        /// The first event that does not continue the chain.
        sequence: u64,
    },
    /// The storage failed, or holds a row that it cannot have written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<sqlx::Error> for TransferError {
    fn from(error: sqlx::Error) -> Self {
        Self::Storage(error.into())
    }
}

/// A run as it is stored, up to the last event that was read.
struct ReadRun {
    run: StoredRun,
    id: RunId,
    head: Head,
}

impl LogAtRest {
    /// Returns the log in a file.
    pub fn in_file(file: SqliteDatabase) -> Self {
        Self {
            database: file.into(),
            name: None,
        }
    }

    /// Returns a log at a server by its name.
    pub fn at_server(server: PostgresDatabase, name: &'static str) -> Self {
        Self {
            database: server.into(),
            name: Some(name),
        }
    }

    /// Copies all runs to another storage. `report` receives the numbers now and then.
    ///
    /// # Errors
    /// [`TransferError`]: the runs before the named one are copied.
    pub async fn copy_to(
        &self,
        to: &Self,
        mut report: impl FnMut(LogCount),
    ) -> Result<LogCount, TransferError> {
        let keys = to.keys().await?;
        let (mut count, mut last) = (LogCount::default(), i64::MIN);
        loop {
            let runs = self.runs_after(last).await?;
            let Some(end) = runs.last() else {
                return Ok(count);
            };
            last = end.key;
            let present = to.present(&runs).await?;
            let mut runs = runs.into_iter().peekable();
            while runs.peek().is_some() {
                let mut transaction = to.database.begin().await?;
                let begun = count.events;
                while count.events < begun + GROUP {
                    let Some(run) = runs.next() else {
                        break;
                    };
                    if present.contains(&run.id) {
                        count.present += 1;
                        continue;
                    }
                    count.events += self.copy_run(run, to, &keys, transaction.session()).await?;
                    count.runs += 1;
                }
                transaction.commit().await?;
                report(count);
            }
        }
    }

    /// Recomputes the chains of all runs. Returns their number.
    ///
    /// # Errors
    /// [`TransferError::Damaged`] names the first run that is not as it was written.
    pub async fn verify(&self) -> Result<LogCount, TransferError> {
        let (mut count, mut last) = (LogCount::default(), i64::MIN);
        loop {
            let runs = self.runs_after(last).await?;
            let Some(end) = runs.last() else {
                return Ok(count);
            };
            last = end.key;
            for run in runs {
                let mut chain = ReadRun::of(run)?;
                while !self.page_of(&mut chain).await?.is_empty() {}
                count.runs += 1;
                count.events += chain.head.sequence;
            }
        }
    }

    /// Returns the source of keys for new runs.
    async fn keys(&self) -> Result<Keys, sqlx::Error> {
        let reader = self.database.reader();
        match self.name {
            Some(_) => Ok(Keys::of_server(reader)),
            None => {
                let next = Statement::new("SELECT coalesce(max(key), 0) + 1 FROM runs");
                let (next,): (i64,) = reader.fetch_one(next).await?;
                Ok(Keys::counted(next))
            }
        }
    }

    async fn runs_after(&self, last: i64) -> Result<Vec<StoredRun>, sqlx::Error> {
        let mut runs = Statement::new(RUNS);
        runs.push(" WHERE key > ").push_bind(last);
        if let Some(name) = self.name {
            runs.push(" AND log = ").push_bind(name);
        }
        runs.push(" ORDER BY key LIMIT ").push_bind(RUN_PAGE);
        self.database.reader().fetch_all(runs).await
    }

    /// Returns the ids of runs that this storage has.
    async fn present(&self, runs: &[StoredRun]) -> Result<HashSet<String>, sqlx::Error> {
        let mut present = Statement::new("SELECT id FROM runs WHERE id IN (");
        present.push_list(runs.iter().map(|run| &run.id)).push(")");
        let present: Vec<(String,)> = self.database.reader().fetch_all(present).await?;
        Ok(present.into_iter().map(|(id,)| id).collect())
    }

    /// Copies a run and its events. Returns the number of events.
    async fn copy_run(
        &self,
        run: StoredRun,
        to: &Self,
        keys: &Keys,
        mut session: Session<'_>,
    ) -> Result<u64, TransferError> {
        let key = keys.next().await?;
        session.execute(to.insert_run(&run, key)).await?;
        let mut chain = ReadRun::of(run)?;
        loop {
            let events = self.page_of(&mut chain).await?;
            if events.is_empty() {
                return Ok(chain.head.sequence);
            }
            session.execute(insert_events(key, events)).await?;
        }
    }

    fn insert_run(&self, run: &StoredRun, key: i64) -> Statement {
        let mut insert = Statement::new(
            "INSERT INTO runs (key, id, tenant, principal, kind, subject, conversation, scope, request_id, body_hash, \
             parent, forks, state, phase, batched, deleted, created, finished, deadline, due, meta, end_sequence, \
             end_hash",
        );
        insert.push(if self.name.is_some() {
            ", log) VALUES ("
        } else {
            ") VALUES ("
        });
        insert.push_list(run.values(key));
        if let Some(name) = self.name {
            insert.push(", ").push_bind(name);
        }
        insert.push(")");
        insert
    }

    /// Reads the next events of a run, which must continue its chain; none after the last one, which must be its end.
    async fn page_of(&self, chain: &mut ReadRun) -> Result<Vec<StoredEvent>, TransferError> {
        let damaged = |sequence| TransferError::Damaged {
            run: chain.id,
            sequence,
        };
        if chain.run.deleted {
            return Ok(Vec::new());
        }
        let mut page = Statement::new(EVENTS);
        page.push(" WHERE run = ").push_bind(chain.run.key);
        let after = i64::try_from(chain.head.sequence).unwrap_or(i64::MAX);
        page.push(" AND sequence > ").push_bind(after);
        page.push(" ORDER BY sequence LIMIT ").push_bind(EVENT_PAGE);
        let events: Vec<StoredEvent> = self.database.reader().fetch_all(page).await?;
        for stored in &events {
            let next = chain.head.sequence + 1;
            let event = Event::try_from(stored.clone())?;
            if event.sequence != next || !event.continues(chain.head.hash, chain.id) {
                return Err(damaged(next));
            }
            chain.head = event.head();
        }
        match chain.run.end()? {
            Some(end) if events.is_empty() && end != chain.head => {
                Err(damaged(chain.head.sequence + 1))
            }
            _ => Ok(events),
        }
    }
}

impl ReadRun {
    fn of(run: StoredRun) -> Result<Self, StorageError> {
        let id = run.id.parse().map_err(|_| StorageError::Corrupt {
            table: "runs",
            column: "id",
            row: run.key.to_string(),
        })?;
        let head = Head {
            sequence: 0,
            hash: Hash::genesis(),
        };
        Ok(Self { run, id, head })
    }
}

fn insert_events(run: i64, events: Vec<StoredEvent>) -> Statement {
    let mut insert =
        Statement::new("INSERT INTO events (run, sequence, time, kind, payload, hash) VALUES ");
    for (number, event) in events.into_iter().enumerate() {
        insert.push(if number == 0 { "(" } else { ", (" });
        insert.push_list(event.values(run)).push(")");
    }
    insert
}
