//! The data of services that do not run, moved between files and a server.

use run_log::{LogAtRest, LogCount, TransferError};
use sql_store::{
    DataDirError, Database, Migrations, OpenError, PostgresDatabase, SqliteDatabase, SqliteOptions,
    Statement, TableShape,
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
    /// A file has documents that this version does not move.
    #[error("{file} has documents of the kind {kind}, which this version does not know")]
    UnknownKind {
        /// The file.
        file: &'static str,
        /// The kind.
        kind: String,
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
        let options = SqliteOptions::new(home.directory.file(data.file)?);
        let tables = SqliteDatabase::open(options, data.in_file).await?;
        let mut logs = Vec::new();
        for log in data.logs {
            logs.push((*log, home.log_file(*log).await?));
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
        if to.is_shared() {
            refuse_other_kinds(&tables, data).await?;
        }
        let at_server = Database::from(server.clone());
        let (from, into) = match to.is_shared() {
            true => (&tables, &at_server),
            false => (&at_server, &tables),
        };
        for (table, condition) in shapes(&files.tables, server, data).await? {
            let rows = table.copy(from, into, &condition).await?;
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
        for options in data.logs {
            let log = options.name;
            let count = match self.server() {
                Some(server) => LogAtRest::at_server(server.clone(), log).verify().await,
                None => {
                    let file = self.log_file(*options).await?;
                    let count = LogAtRest::in_file(file.clone()).verify().await;
                    file.close().await;
                    count
                }
            };
            report(Moved::Runs {
                log,
                count: count.map_err(|source| MoveError::Log { log, source })?,
                is_done: true,
            });
        }
        Ok(())
    }

    /// Opens the file of a log as tables alone.
    async fn log_file(&self, log: LogOptions) -> Result<SqliteDatabase, MoveError> {
        let options = SqliteOptions::new(self.directory.file(log.file)?);
        Ok(SqliteDatabase::open(options, &[run_log::MIGRATIONS]).await?)
    }
}

/// Refuses a file with documents of kinds that are not the service's, since they would be left behind.
async fn refuse_other_kinds(tables: &Database, data: &ServiceData) -> Result<(), MoveError> {
    let mut other = Statement::new(
        "SELECT kind FROM (SELECT kind FROM document UNION SELECT kind FROM document_revision) AS kinds \
         WHERE kind NOT IN (",
    );
    other
        .push_list(data.kinds.iter().copied())
        .push(") LIMIT 1");
    let other: Option<(String,)> = tables.reader().fetch_optional(other).await?;
    match other {
        None => Ok(()),
        Some((kind,)) => Err(MoveError::UnknownKind {
            file: data.file,
            kind,
        }),
    }
}

/// Returns the tables that are copied as they are, each with the condition of the service's rows.
async fn shapes(
    file: &SqliteDatabase,
    server: &PostgresDatabase,
    data: &ServiceData,
) -> Result<Vec<(TableShape, String)>, sqlx::Error> {
    let known = sql_store::copy::columns_of_file(file).await?;
    let own = TableShape::of_schema(server, data.schema)
        .await?
        .into_iter();
    let mut shapes: Vec<_> = own.map(|table| (table, String::new())).collect();
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
    shapes.retain(|(table, _)| known.iter().any(|(name, _)| *name == table.name));
    Ok(shapes)
}
