//! The home of the tables and logs of services: files in a directory of one process, or a PostgreSQL database that
//! processes share.
//!
//! A process opens one [`DataHome`] for all its services. At a server it is a member from then on, and each log writes
//! behind the fence of the membership; a directory is needed there too, for files that belong to the process.

mod address;
mod log;
mod settings;
mod transfer;

use std::{fmt, path::PathBuf};

use grpc_kit::program::Misplaced;
use membership::{FenceError, JoinError, Loss, MemberSettings, Membership};
use server_files::ServerFiles;
use sql_store::{
    DataDir, DataDirError, Database, Migrations, OpenError, PostgresDatabase, PostgresError,
    PostgresOptions, ServerFault, SqliteDatabase, SqliteOptions,
};

pub use address::DatabaseAddress;
pub use log::LogOptions;
pub use settings::DatabaseSettings;
pub use transfer::{MoveError, Moved, ServiceData};

/// The largest number of reading connections of a process, which has one more for its lease and for each log.
const READERS: u32 = 6;

/// The largest number of connections of a process: one for its lease and five for the logs of all services besides.
const CONNECTIONS: u32 = READERS + 6;

/// The tables at a server that all services share: members, runs, documents and files.
pub const SHARED_MIGRATIONS: [Migrations; 4] = [
    membership::MIGRATIONS,
    run_log::SERVER_MIGRATIONS,
    documents::SERVER_MIGRATIONS,
    server_files::SERVER_MIGRATIONS,
];

/// The reason for which the home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The data directory cannot be used.
    #[error("the data directory cannot be used")]
    Directory(#[from] DataDirError),
    /// A database file cannot be opened.
    #[error("a database file cannot be opened")]
    File(#[from] OpenError),
    /// The database of the settings cannot be used.
    #[error(transparent)]
    Server(#[from] PostgresError),
    /// Another process has one of the services.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The membership was lost, or the database failed.
    #[error(transparent)]
    Fence(#[from] FenceError),
}

impl HomeError {
    /// Returns the error of a program that does not start: [`Misplaced`] if it fails again until an operator has acted.
    pub fn of_program(self) -> anyhow::Error {
        let is_lasting = match &self {
            Self::Server(error) => !matches!(
                error,
                PostgresError::Unreachable(_)
                    | PostgresError::Failed(_)
                    | PostgresError::Server(ServerFault::NoRoom { .. })
            ),
            Self::Join(error) => matches!(error, JoinError::Clock { .. }),
            _ => false,
        };
        match is_lasting {
            true => Misplaced(self.into()).into(),
            false => self.into(),
        }
    }
}

/// The places at which a process keeps its data.
#[derive(Clone, Debug)]
pub struct HomeSettings {
    /// The data directory.
    pub directory: PathBuf,
    /// The database, if it has an address; files in the directory otherwise.
    pub database: DatabaseSettings,
    /// The services of the process, separated by commas.
    pub services: String,
    /// The address at which other processes reach them.
    pub address: String,
    /// The tables of the services at a server, beside [`SHARED_MIGRATIONS`].
    pub migrations: Vec<Migrations>,
}

/// The home of the tables and logs of a process. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct DataHome {
    directory: DataDir,
    membership: Option<Membership>,
}

impl fmt::Display for DataHome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_shared() {
            true => formatter.write_str("the database"),
            false => write!(
                formatter,
                "the directory {}",
                self.directory.path().display()
            ),
        }
    }
}

impl DataHome {
    /// Opens the directory and, if the settings name a database, becomes a member there.
    ///
    /// # Errors
    /// [`HomeError`] names the obstacle and the remedy.
    pub async fn open(settings: HomeSettings) -> Result<Self, HomeError> {
        let files = Self::of_files(&settings.directory)?;
        if settings.database.address.is_empty() {
            return Ok(files);
        }
        let options = PostgresOptions {
            readers: READERS,
            connections: CONNECTIONS,
            ..settings.database.address.options()
        };
        let migrations = [SHARED_MIGRATIONS.as_slice(), &settings.migrations].concat();
        let database = PostgresDatabase::open(options, &migrations).await?;
        let member = MemberSettings {
            lease: settings.database.lease,
            ..MemberSettings::new(settings.services, settings.address)
        };
        let home = Self {
            membership: Some(Membership::join(database, member).await?),
            ..files
        };
        if let Some(files) = home.files() {
            files.sweep_in_background();
        }
        Ok(home)
    }

    /// Opens the home of a program, and puts the program together there. A program that does not start leaves the
    /// members, so that the next start waits for no lease.
    ///
    /// # Errors
    /// [`Misplaced`] for a home that cannot be used until an operator has acted; another error of the home, or that of
    /// `build`.
    pub async fn of_program<P, E, B>(
        settings: HomeSettings,
        build: impl FnOnce(Self) -> B,
    ) -> anyhow::Result<P>
    where
        B: Future<Output = Result<P, E>>,
        E: Into<anyhow::Error>,
    {
        let home = Self::open(settings).await.map_err(HomeError::of_program)?;
        let built = build(home.clone()).await;
        if built.is_err() {
            home.close().await;
        }
        built.map_err(Into::into)
    }

    /// Opens a directory in which every table and log is a file.
    ///
    /// # Errors
    /// [`HomeError::Directory`].
    pub fn of_files(directory: impl Into<PathBuf>) -> Result<Self, HomeError> {
        Ok(Self {
            directory: DataDir::open(directory)?,
            membership: None,
        })
    }

    /// Returns the database that other processes share, if there is one.
    fn server(&self) -> Option<&PostgresDatabase> {
        self.membership.as_ref().map(Membership::database)
    }

    /// Returns the files of conversations and the blobs at the server, if there is one.
    pub fn files(&self) -> Option<ServerFiles> {
        self.server().cloned().map(ServerFiles::new)
    }

    /// Returns the directory of the files that belong to this process.
    pub fn directory(&self) -> &DataDir {
        &self.directory
    }

    /// Whether other processes can use the tables and logs.
    pub fn is_shared(&self) -> bool {
        self.membership.is_some()
    }

    /// Whether an effect may start now: always for files; at a server while the lease lasts long enough.
    pub fn may_start_effects(&self) -> bool {
        let membership = self.membership.as_ref();
        membership.is_none_or(Membership::may_start_effects)
    }

    /// Opens the tables of a service: the file `name` with some migrations, or those at the server.
    ///
    /// # Errors
    /// [`HomeError`]: the file cannot be used.
    pub async fn tables(&self, name: &str, in_file: &[Migrations]) -> Result<Database, HomeError> {
        if let Some(membership) = &self.membership {
            return Ok(membership.database().clone().into());
        }
        let options = SqliteOptions::new(self.directory.file(name)?);
        Ok(SqliteDatabase::open(options, in_file).await?.into())
    }

    /// Waits until the process is no longer a member, and returns the reason; for files it never is.
    pub async fn lost(&self) -> Loss {
        match &self.membership {
            Some(membership) => membership.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Leaves the members and closes the connections to the server, once the services have closed their logs.
    pub async fn close(&self) {
        let Some(membership) = &self.membership else {
            return;
        };
        // If it fails, others wait for the end of the lease.
        let _ = membership.leave().await;
        membership.database().close().await;
    }
}
