//! One SQLite file: a writing connection, several reading ones, and the settings both need.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sqlx::{
    ConnectOptions, Sqlite, SqliteConnection, Transaction,
    migrate::MigrateError,
    sqlite::{
        SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
    },
};

use crate::{ErrorClass, Migrations, classify, vacuum, vacuum::PAGE_BYTES};

/// Files up to this size are checked for damage whenever they are opened.
const CHECKED_AT_OPEN_BYTES: u64 = 64 << 20;

/// The write-ahead log is cut back to this size after a long reader let it grow.
const JOURNAL_SIZE_LIMIT_BYTES: u64 = 64 << 20;

/// The options for opening a database file.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The file; it is created when missing.
    pub path: PathBuf,
    /// The number of reading connections. A reader that finds none free waits `busy_timeout`.
    pub readers: u32,
    /// The longest wait for another process that holds the file's lock, and for a free connection.
    pub busy_timeout: Duration,
    /// The number of pages of write-ahead log after which its content moves into the file.
    pub checkpoint_pages: u32,
    /// The largest size of the file; a write beyond it fails as [`ErrorClass::DiskFull`].
    /// `None` leaves the limit to the disk. The write-ahead log comes on top.
    pub max_bytes: Option<u64>,
    /// The number of prepared statements that each connection keeps.
    pub statement_cache: usize,
}

impl SqliteOptions {
    /// Returns the usual settings for `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            readers: 4,
            busy_timeout: Duration::from_secs(15),
            checkpoint_pages: 4000,
            max_bytes: None,
            statement_cache: 100,
        }
    }
}

/// The reason for which a database file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has the file open.
    #[error("{path} is in use; stop the other process or give this one another data directory")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The lock file next to the database cannot be created.
    #[error("cannot lock {path}")]
    Lock {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is damaged or is no database.
    #[error("{path} is damaged ({report}); restore it from a backup or move it away")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The report of the check.
        report: String,
    },
    /// The file's shape could not be brought up to date.
    #[error("cannot migrate the '{namespace}' tables in {path}")]
    Migrate {
        /// The file.
        path: PathBuf,
        /// The namespace of the migrations that failed.
        namespace: &'static str,
        /// The failure.
        source: MigrateError,
    },
    /// The database reported an error.
    #[error("cannot open {path}")]
    Connect {
        /// The file.
        path: PathBuf,
        /// The error of the database.
        source: sqlx::Error,
    },
}

/// An open database file. Clones are handles of the same file.
///
/// Every acknowledged transaction survives power loss: the journal is a write-ahead log and each
/// commit is synced (`synchronous=FULL`).
#[derive(Clone, Debug)]
pub struct SqliteDatabase {
    path: Arc<Path>,
    writer: SqlitePool,
    reader: SqlitePool,
    writer_options: Arc<SqliteConnectOptions>,
    /// Held as long as any handle lives, so that no second process writes to the file.
    lock: Arc<File>,
}

impl SqliteDatabase {
    /// Whether a process has the file at `path` open as a database. The file need not exist.
    ///
    /// # Errors
    /// A lock file that cannot be read.
    pub fn is_in_use(path: &Path) -> io::Result<bool> {
        match File::open(lock_file(path)) {
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => Ok(false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(error)) => Err(error),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Locks and opens the file, checks it for damage if it is small, and migrates it.
    ///
    /// # Errors
    /// [`OpenError`] names the file and the obstacle. A damaged file is refused.
    pub async fn open(
        options: SqliteOptions,
        migrations: &[Migrations],
    ) -> Result<Self, OpenError> {
        let lock = lock(&options.path)?;
        let existing_bytes = std::fs::metadata(&options.path).map_or(0, |metadata| metadata.len());
        let writer_options = writer_options(&options);
        let reader_options = writer_options
            .clone()
            .read_only(true)
            .create_if_missing(false);
        let pool = || {
            SqlitePoolOptions::new()
                .acquire_timeout(options.busy_timeout)
                .idle_timeout(None)
                .max_lifetime(None)
                // A local file does not close its connections.
                .test_before_acquire(false)
        };
        let database = Self {
            path: options.path.clone().into(),
            writer: pool()
                .max_connections(1)
                .connect_lazy_with(writer_options.clone()),
            reader: pool()
                .max_connections(options.readers.max(1))
                .connect_lazy_with(reader_options),
            writer_options: Arc::new(writer_options),
            lock: Arc::new(lock),
        };
        if existing_bytes > 0 && existing_bytes <= CHECKED_AT_OPEN_BYTES {
            database.check().await?;
        }
        if let Err(error) = vacuum::convert(&database.writer, &options.path, existing_bytes).await {
            // It is used as it is, and the next start tries again.
            tracing::warn!(path = %options.path.display(), %error, "the file keeps the space of what is deleted");
        }
        for component in migrations {
            component
                .run(&database.writer)
                .await
                .map_err(|source| OpenError::Migrate {
                    path: options.path.clone(),
                    namespace: component.namespace(),
                    source,
                })?;
        }
        Ok(database)
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the pool of the one writing connection.
    pub fn writer(&self) -> &SqlitePool {
        &self.writer
    }

    /// Returns the pool of reading connections; a statement that writes fails on them.
    pub fn reader(&self) -> &SqlitePool {
        &self.reader
    }

    /// Starts a transaction that holds the write lock from the beginning.
    ///
    /// A transaction that begins by reading and writes later can fail half-way with "busy"; this
    /// transaction waits first.
    ///
    /// # Errors
    /// The database's error; its class shows whether a retry can help.
    pub async fn begin_write(&self) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
        self.writer.begin_with("BEGIN IMMEDIATE").await
    }

    /// Opens a further writing connection that its caller owns.
    ///
    /// # Errors
    /// The database's error.
    pub async fn connect_writer(&self) -> Result<SqliteConnection, sqlx::Error> {
        self.writer_options.connect().await
    }

    /// Returns free pages to the file system in one short transaction, as [`vacuum::reclaim`] does.
    ///
    /// # Errors
    /// The database's error.
    pub async fn reclaim(&self) -> Result<u64, sqlx::Error> {
        vacuum::reclaim(&mut *self.writer.acquire().await?).await
    }

    /// Walks through the whole file and reports damage of its structure.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] with the report, or the database's error.
    pub async fn check(&self) -> Result<(), OpenError> {
        // The writing connection: it may have to recover the write-ahead log of a crash first.
        let rows: Result<Vec<String>, _> = sqlx::query_scalar("PRAGMA quick_check(5)")
            .fetch_all(&self.writer)
            .await;
        let path = self.path.to_path_buf();
        match rows {
            Ok(rows) if rows == ["ok"] => Ok(()),
            Ok(rows) => Err(OpenError::Damaged {
                path,
                report: rows.join("; "),
            }),
            Err(source) if classify(&source) == ErrorClass::Corrupt => Err(OpenError::Damaged {
                path,
                report: source.to_string(),
            }),
            Err(source) => Err(OpenError::Connect { path, source }),
        }
    }

    /// Closes every pooled connection and frees the file for another process.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(path = %self.path.display(), %error, "database file stays locked");
        }
    }
}

fn lock_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Lock {
        path: path.to_owned(),
        source,
    };
    let file = File::options()
        .create(true)
        .append(true)
        .open(lock_file(path))
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

fn writer_options(options: &SqliteOptions) -> SqliteConnectOptions {
    let connect = SqliteConnectOptions::new()
        .filename(&options.path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(options.busy_timeout)
        .statement_cache_capacity(options.statement_cache)
        .pragma("wal_autocheckpoint", options.checkpoint_pages.to_string())
        .pragma("journal_size_limit", JOURNAL_SIZE_LIMIT_BYTES.to_string())
        .disable_statement_logging();
    match options.max_bytes {
        Some(bytes) => connect.pragma("max_page_count", (bytes / PAGE_BYTES).max(1).to_string()),
        None => connect,
    }
}
