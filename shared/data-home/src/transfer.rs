//! The data of services that do not run, moved between files and a server.

use run_log::{LogAtRest, LogCount, TransferError};
use sql_store::{
    DataDirError, Database, Migrations, OpenError, PostgresDatabase, SqliteDatabase, SqliteOptions,
    TableShape,
};

use crate::{DataHome, LogOptions};

/// The number of events after which progress is reported.
const PROGRESS: u64 = 20_000;

/// The tables that all services share, whose rows belong to one of them each.
const OF_ALL: &str = "core";

/// The data that a service stores.
#[derive(Clone, Copy, Debug)]
pub struct ServiceData {
    /// The name of the service.
    pub service: &'static str,
    /// The file of its tables.
    pub file: &'static str,
    /// The migrations of that file.
    pub in_file: &'static [Migrations],
    /// The schema of its tables at a server.
    pub schema: &'static str,
    /// The kinds of its documents. Request ids, which are kept for a week, are in the files of all services.
    pub kinds: &'static [&'static str],
    /// Its logs.
    pub logs: &'static [LogOptions],
}

/// A part of the data of a service that was moved or verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The rows of a table that were not there.
    Rows {
        /// The table.
        table: String,
        /// Their number.
        rows: u64,
    },
    /// The runs of a log so far.
    Runs {
        /// The log.
        log: &'static str,
        /// Their numbers.
        count: LogCount,
        /// Whether the log is done.
        is_done: bool,
    },
}

/// The reason for which data are not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// A name in the data directory is wrong.
    #[error(transparent)]
    Directory(#[from] DataDirError),
    /// A file cannot be opened, as while a service has it.
    #[error(transparent)]
    File(#[from] OpenError),
    /// A run is damaged, or the storage of a log failed.
    #[error("the log {log} is not whole or cannot be used")]
    Log {
        /// The name of the log.
        log: &'static str,
        /// The reason.
        source: TransferError,
    },
    /// A database failed.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// Neither place is a server, or both are.
    #[error("data are moved between a directory and a database")]
    SamePlaces,
}

/// The tables and logs of a service in a directory.
struct Files {
    tables: SqliteDatabase,
    logs: Vec<(LogOptions, SqliteDatabase)>,
}

impl Files {
    /// Opens the files of a service. A missing one is made where they are written to, and empty where they are read.
    async fn open(home: &DataHome, data: &ServiceData) -> Result<Self, MoveError> {
        let file = |name| Ok::<_, MoveError>(SqliteOptions::new(home.directory.file(name)?));
        let tables = SqliteDatabase::open(file(data.file)?, data.in_file).await?;
        let mut logs = Vec::new();
        for log in data.logs {
            let opened = SqliteDatabase::open(file(log.file)?, &[run_log::MIGRATIONS]).await?;
            logs.push((*log, opened));
        }
        Ok(Self { tables, logs })
    }

    async fn close(&self) {
        for (_, log) in &self.logs {
            log.close().await;
        }
        self.tables.close().await;
    }
}

impl DataHome {
    /// Copies the data of a service, which does not run, to another home: from files to a server, or back. Rows and runs
    /// that are there already stay as they are. `report` receives each part.
    ///
    /// # Errors
    /// [`MoveError`]; repeat it once the cause is gone.
    pub async fn copy_to(
        &self,
        to: &Self,
        data: &ServiceData,
        mut report: impl FnMut(Moved),
    ) -> Result<(), MoveError> {
        let (files, server) = match (self.server(), to.server()) {
            (None, Some(server)) => (Files::open(self, data).await?, server),
            (Some(server), None) => (Files::open(to, data).await?, server),
            _ => return Err(MoveError::SamePlaces),
        };
        let tables = Database::from(files.tables.clone());
        let at_server = Database::from(server.clone());
        let (from, into) = match to.is_shared() {
            true => (&tables, &at_server),
            false => (&at_server, &tables),
        };
        for (table, condition) in shapes(&files.tables, server, data).await? {
            let rows = table.copy_where(from, into, &condition).await?;
            let table = table.name;
            report(Moved::Rows { table, rows });
        }
        for (log, file) in &files.logs {
            let file = LogAtRest::in_file(file.clone());
            let stored = LogAtRest::at_server(server.clone(), log.name);
            let (from, into) = match to.is_shared() {
                true => (file, stored),
                false => (stored, file),
            };
            let log = log.name;
            let mut reported = 0;
            let copied = from.copy_to(&into, |count| {
                if count.events >= reported + PROGRESS {
                    reported = count.events;
                    report(Moved::Runs {
                        log,
                        count,
                        is_done: false,
                    });
                }
            });
            let copied = copied.await;
            report(Moved::Runs {
                log,
                count: copied.map_err(|source| MoveError::Log { log, source })?,
                is_done: true,
            });
        }
        files.close().await;
        Ok(())
    }

    /// Recomputes the chains of the logs of a service that does not run. `report` receives each log.
    ///
    /// # Errors
    /// [`MoveError::Log`] names the first run that is not as it was written.
    pub async fn verify(
        &self,
        data: &ServiceData,
        mut report: impl FnMut(Moved),
    ) -> Result<(), MoveError> {
        let files = match self.is_shared() {
            true => None,
            false => Some(Files::open(self, data).await?),
        };
        for (place, options) in data.logs.iter().enumerate() {
            let log = options.name;
            let at_rest = match (&files, self.server()) {
                (Some(files), _) => LogAtRest::in_file(files.logs[place].1.clone()),
                (None, Some(server)) => LogAtRest::at_server(server.clone(), log),
                (None, None) => return Err(MoveError::SamePlaces),
            };
            let counted = at_rest.verify(|_| ()).await;
            let count = counted.map_err(|source| MoveError::Log { log, source })?;
            report(Moved::Runs {
                log,
                count,
                is_done: true,
            });
        }
        if let Some(files) = files {
            files.close().await;
        }
        Ok(())
    }
}

/// Returns the tables that are copied as they are, each with the condition of the service's rows.
async fn shapes(
    file: &SqliteDatabase,
    server: &PostgresDatabase,
    data: &ServiceData,
) -> Result<Vec<(TableShape, String)>, sqlx::Error> {
    let known = sql_store::copy::tables_of_file(file).await?;
    let mut shapes = Vec::new();
    for table in TableShape::of_schema(server, data.schema).await? {
        shapes.push((table, String::new()));
    }
    let kinds: Vec<String> = data.kinds.iter().map(|kind| format!("'{kind}'")).collect();
    for table in TableShape::of_schema(server, OF_ALL).await? {
        let condition = match table.name.as_str() {
            "document" | "document_revision" => format!("kind IN ({})", kinds.join(", ")),
            "request" => String::new(),
            _ => continue,
        };
        shapes.push((table, condition));
    }
    // Other tables are made of these, or have no counterpart in a file.
    shapes.retain(|(table, _)| known.contains(&table.name));
    Ok(shapes)
}
