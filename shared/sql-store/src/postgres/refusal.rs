//! The reasons for which a database of a server cannot be used, each with its remedy.

use sqlx::{Error, migrate::MigrateError};

/// The reason for which a database cannot be used. No text holds the password.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The address is none.
    #[error(
        "the database is not an address of PostgreSQL; write postgres://user@host:5432/database, with the password in PGPASSWORD"
    )]
    Url,
    /// The server refused the user or the password.
    #[error(
        "the database refused the login ({0}); check the user, and PGPASSWORD or the file of passwords"
    )]
    Login(String),
    /// The database is not there.
    #[error("there is no such database ({0}); create it: createdb -E UTF8 -T template0")]
    NoSuchDatabase(String),
    /// The server does not do TLS as the address demands, or its certificate is not trusted.
    #[error("the database refused TLS ({0}); check sslmode and sslrootcert in the address")]
    Tls(String),
    /// A pooler that shares sessions between clients answered.
    #[error(
        "a pooler answered, not PostgreSQL ({0}); connect to the server itself, as a transaction pooler loses the state of sessions"
    )]
    Pooler(String),
    /// The role may not do this.
    #[error("the role may not change the tables ({0}); migrate as the role that owns the database")]
    Rights(String),
    /// The server cannot be reached.
    #[error("the database cannot be reached ({0}); check that it runs, and the address")]
    Unreachable(String),
    /// The server or the role does not fit.
    #[error(transparent)]
    Server(#[from] ServerFault),
    /// The role of the services does not exist.
    #[error("there is no role '{0}'; create it: createuser -P {0}")]
    NoSuchRole(String),
    /// The tables are missing, or are of an earlier version.
    #[error("the tables of '{0}' are not up to date; run `tavern migrate`")]
    NotMigrated(&'static str),
    /// A later version has changed the tables.
    #[error("the tables of '{0}' are of a later version; run that version of this program")]
    Newer(&'static str),
    /// The tables could not be changed.
    #[error(
        "cannot migrate the tables of '{namespace}'; repeat the command once the cause is gone"
    )]
    Migrate {
        /// The component.
        namespace: &'static str,
        /// The failure.
        source: MigrateError,
    },
    /// The database reported another error.
    #[error("the database failed")]
    Failed(#[source] Error),
}

/// A property of the server or of the role that Tavern cannot work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerFault {
    /// Its major version is not supported.
    #[error("the server is PostgreSQL {0}; use 15 or later")]
    TooOld(i32),
    /// The database has another encoding.
    #[error(
        "the database has the encoding {0}; create one with UTF8: createdb -E UTF8 -T template0"
    )]
    Encoding(String),
    /// The server only repeats another one.
    #[error("the server is a standby; connect to the primary")]
    Standby,
    /// The server does not sync its files.
    #[error("the server runs with fsync = off and would lose acknowledged events; switch it on")]
    NoSync,
    /// The services' role may do anything.
    #[error(
        "the role is a superuser; connect as a role that owns nothing, as `tavern migrate --app-role` names it"
    )]
    Superuser,
    /// The services' role owns the tables.
    #[error(
        "the role owns the tables; connect as a role that owns nothing, as `tavern migrate --app-role` names it"
    )]
    Owner,
    /// Its clients leave too few connections.
    #[error(
        "the server accepts {room} more connections and this process uses up to {needed}; raise max_connections, or stop other clients"
    )]
    NoRoom {
        /// The connections of the process.
        needed: u32,
        /// The connections that are left.
        room: u32,
    },
}

impl PostgresError {
    /// Sorts the error of a connection.
    pub(super) fn of(error: Error) -> Self {
        match &error {
            Error::Tls(source) => Self::Tls(source.to_string()),
            Error::Io(source) => Self::Unreachable(source.to_string()),
            Error::PoolTimedOut => Self::Unreachable("no answer in time".to_owned()),
            Error::Database(reported) => {
                let message = reported.message().to_owned();
                match reported.code().as_deref() {
                    Some("28000" | "28P01") => Self::Login(message),
                    Some("42501") => Self::Rights(message),
                    Some("3D000") => Self::NoSuchDatabase(message),
                    // PgBouncer refuses the settings of sessions.
                    Some("08P01") if message.contains("startup parameter") => Self::Pooler(message),
                    Some("57P03" | "53300") => Self::Unreachable(message),
                    _ => Self::Failed(error),
                }
            }
            _ => Self::Failed(error),
        }
    }
}
