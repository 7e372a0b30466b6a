//! Files in a PostgreSQL database.
//!
//! A *place* is a set of files of a tenant under one name: the workspace of a conversation, the blobs of a caller. Its
//! files are rows that name their contents by digest; a content is stored once for each tenant, in pieces. A process
//! that works on a place has a copy of it: it stores new contents first ([`ServerFiles::store`]), and then changes the
//! rows in one transaction ([`ServerFiles::change`]), which fails if another process has changed the place meanwhile.
//!
//! Everything here blocks; an async caller goes through `spawn_blocking`.

mod contents;
mod places;

use std::{io, time::Duration};

use core_types::ContentDigest;
use sql_store::{Database, ErrorClass, Migrations, PostgresDatabase, classify};
use tokio::runtime::Handle;

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// The tables of files at a server.
pub const SERVER_MIGRATIONS: Migrations = Migrations::new("files", &MIGRATOR);

/// The time for which a content that no file has is kept: it may be about to become a file.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The time between two searches for contents without files.
const SWEEP: Duration = Duration::from_secs(3600);

/// A failure to read or change files at a server.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Another process has changed the place, or removed it.
    #[error("another process has changed the files; read them again")]
    Changed,
    /// The database failed.
    #[error("the database of the files failed")]
    Database(#[from] sqlx::Error),
    /// The content could not be read from its source, or written to its target.
    #[error("the content could not be copied")]
    Copy(#[from] io::Error),
}

impl From<FilesError> for io::Error {
    fn from(error: FilesError) -> Self {
        match error {
            FilesError::Copy(error) => error,
            FilesError::Database(error) if classify(&error) == ErrorClass::DiskFull => {
                Self::new(io::ErrorKind::StorageFull, error)
            }
            other => Self::other(other),
        }
    }
}

/// A file of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// The path within the place.
    pub path: String,
    /// The digest of the content.
    pub digest: ContentDigest,
    /// The size, in bytes.
    pub bytes: u64,
    /// The time of the last change, in nanoseconds since the Unix epoch.
    pub modified: i64,
}

/// A change of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// A file is there from now on, in the place of one with its path. Its content is stored.
    Put(StoredFile),
    /// The file of this path is gone.
    Remove(String),
    /// The file of this path is gone unless it was changed after a time, in nanoseconds since the Unix epoch.
    RemoveOlder(String, i64),
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPlace {
    /// Its owner, if it has one.
    pub owner: Option<String>,
    /// A number that grows with each change, and that no earlier place of the name had.
    pub version: i64,
}

/// The files of a database. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    database: Database,
    runtime: Handle,
}

impl ServerFiles {
    /// Takes a database with [`SERVER_MIGRATIONS`] applied. Must be called within a runtime with several threads, which
    /// does the work.
    pub fn new(database: PostgresDatabase) -> Self {
        Self {
            database: database.into(),
            runtime: Handle::current(),
        }
    }

    /// Removes contents without files, again and again, for as long as the runtime lasts.
    pub fn sweep_in_background(&self) {
        let database = self.database.clone();
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                if let Err(error) = contents::remove_unused(&database, KEPT).await {
                    tracing::warn!(%error, "contents without files could not be removed; they are looked for again");
                }
            }
        });
    }

    /// Removes the contents that no file has and that were not stored within a time.
    ///
    /// # Errors
    /// [`FilesError::Database`].
    pub fn remove_unused(&self, kept: Duration) -> Result<(), FilesError> {
        self.wait(contents::remove_unused(&self.database, kept))
    }

    /// Waits for work of the runtime.
    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::task::block_in_place(|| self.runtime.block_on(work))
    }
}
