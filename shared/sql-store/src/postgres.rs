//! A PostgreSQL database: reading connections, writing ones that their callers own, and the checks before both.

mod refusal;

use std::{str::FromStr, sync::Arc, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, FromRow, PgConnection,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};

use crate::{Migrations, ServerMigration, migrations::Difference};

pub use refusal::{PostgresError, ServerFault};

/// The oldest version of the server that is supported, as `server_version_num` states versions.
const OLDEST_SERVER: i32 = 150_000;

/// The schemas: the tables that all services share, and those of the registry, of workflow execution and of the agents.
const SCHEMAS: [&str; 4] = ["core", "registry", "workflow", "agent"];

/// The settings of each session. A statement that takes longer has met a fault, and a transaction that rests holds the
/// locks that fencing waits for.
const SESSION: [(&str, &str); 5] = [
    ("statement_timeout", "15s"),
    ("lock_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "5s"),
    ("tcp_user_timeout", "10s"),
    // Whatever the role's default: an acknowledged commit is on disk.
    ("synchronous_commit", "on"),
];

/// The options for connecting to a database of a server.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The address, `postgres://user@host:port/database`. A password stands in it or in `PGPASSWORD`.
    pub url: String,
    /// The largest number of reading connections.
    pub readers: u32,
    /// The largest number of connections of the process, readers included. A server without room for them is refused.
    pub connections: u32,
    /// The longest wait for a free reading connection, or for the server's answer to a new one.
    pub acquire_timeout: Duration,
    /// Whether a server may run without syncing its files, as only servers of tests do.
    pub allow_fsync_off: bool,
}

impl PostgresOptions {
    /// Returns the usual settings for an address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            readers: 8,
            connections: 1,
            acquire_timeout: Duration::from_secs(5),
            allow_fsync_off: false,
        }
    }

    fn connect_options(&self) -> Result<PgConnectOptions, PostgresError> {
        let known = ["postgres://", "postgresql://"];
        if !known.iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(PostgresError::Url);
        }
        let options = PgConnectOptions::from_str(&self.url).map_err(|_| PostgresError::Url)?;
        Ok(options
            .application_name("tavern")
            .options([("search_path", SCHEMAS.join(","))])
            .options(SESSION)
            .disable_statement_logging())
    }
}

/// Leaves out the address, which may hold a password.
impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PostgresOptions")
            .field("readers", &self.readers)
            .finish_non_exhaustive()
    }
}

/// A database of a server. Clones are handles of the same pool.
#[derive(Clone, Debug)]
pub struct PostgresDatabase {
    reader: PgPool,
    options: Arc<PgConnectOptions>,
    connect_timeout: Duration,
}

/// The properties of a server and of the connected role that decide whether it can be used.
#[derive(Debug, FromRow)]
struct Server {
    version: i32,
    encoding: String,
    is_standby: bool,
    syncs: bool,
    is_superuser: bool,
    owns_tables: bool,
    /// The number of connections that it still accepts, the one that asks included.
    room: i32,
}

impl PostgresDatabase {
    /// Connects and checks that the server, the role and the tables can be used. It changes nothing.
    ///
    /// # Errors
    /// [`PostgresError`] names the obstacle and the remedy, never the password.
    pub async fn open(
        options: PostgresOptions,
        migrations: &[Migrations],
    ) -> Result<Self, PostgresError> {
        let connect = options.connect_options()?;
        let mut connection = connect_checked(&connect, options.acquire_timeout).await?;
        let server = Server::read(&mut connection).await?;
        server.check(&options)?;
        server.check_role()?;
        server.check_room(options.connections)?;
        for component in migrations {
            let differs = component.differs_on_server(&mut connection);
            match differs.await.map_err(PostgresError::of)? {
                None => {}
                Some(Difference::Missing) => {
                    return Err(PostgresError::NotMigrated(component.namespace()));
                }
                Some(Difference::Newer) => {
                    return Err(PostgresError::Newer(component.namespace()));
                }
            }
        }
        connection.close().await.unwrap_or_default();
        let reader = PgPoolOptions::new()
            .max_connections(options.readers.max(1))
            .acquire_timeout(options.acquire_timeout)
            // A read that meets a dead connection is repeated on another.
            .test_before_acquire(false)
            .after_connect(|connection, _| Box::pin(refuse_standby(connection)))
            .connect_lazy_with(connect.clone());
        Ok(Self {
            reader,
            options: Arc::new(connect),
            connect_timeout: options.acquire_timeout,
        })
    }

    /// Returns the migrations of components with their states at a server. It changes nothing.
    ///
    /// # Errors
    /// [`PostgresError`] names the obstacle and the remedy.
    pub async fn migrations(
        options: &PostgresOptions,
        migrations: &[Migrations],
    ) -> Result<Vec<ServerMigration>, PostgresError> {
        let connect = options.connect_options()?;
        let mut connection = connect_checked(&connect, options.acquire_timeout).await?;
        Server::read(&mut connection).await?.check(options)?;
        let mut states = Vec::new();
        for component in migrations {
            let of_component = component.on_server(&mut connection).await;
            states.extend(of_component.map_err(PostgresError::of)?);
        }
        Ok(states)
    }

    /// Brings the tables to the shape of this program, and lets `app_role` use them. Repeatable; after an end in
    /// between, the next call does the rest. A statement waits at most 2 s for a lock that others hold.
    ///
    /// # Errors
    /// [`PostgresError`] names the obstacle and the remedy.
    pub async fn migrate(
        options: &PostgresOptions,
        migrations: &[Migrations],
        app_role: &str,
    ) -> Result<(), PostgresError> {
        let connect = options.connect_options()?;
        let mut connection = connect_checked(&connect, options.acquire_timeout).await?;
        Server::read(&mut connection).await?.check(options)?;
        let role: Option<String> =
            sqlx::query_scalar("SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = $1")
                .bind(app_role)
                .fetch_optional(&mut connection)
                .await
                .map_err(PostgresError::of)?;
        let role = role.ok_or_else(|| PostgresError::NoSuchRole(app_role.to_owned()))?;
        // A change to a large table may take longer than statements of a service.
        let mut prepare = "SET lock_timeout = '2s'; SET statement_timeout = 0".to_owned();
        for schema in SCHEMAS {
            prepare.push_str(&format!("; CREATE SCHEMA IF NOT EXISTS {schema}"));
        }
        run(&mut connection, prepare).await?;
        for component in migrations {
            let applied = component.run_on_server(&mut connection).await;
            applied.map_err(|source| PostgresError::Migrate {
                namespace: component.namespace(),
                source,
            })?;
        }
        let schemas = SCHEMAS.join(", ");
        let rights = format!(
            "GRANT USAGE ON SCHEMA {schemas} TO {role}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schemas} TO {role}; \
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schemas} TO {role}; \
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schemas} TO {role}"
        );
        run(&mut connection, rights).await?;
        connection.close().await.map_err(PostgresError::of)
    }

    /// Returns the pool of reading connections.
    pub fn reader(&self) -> &PgPool {
        &self.reader
    }

    /// Opens a further connection that its caller owns.
    ///
    /// # Errors
    /// The database's error.
    pub async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        connect_in_time(&self.options, self.connect_timeout).await
    }

    /// Closes every pooled connection.
    pub async fn close(&self) {
        self.reader.close().await;
    }
}

/// Returns the timeline of the server, which a failover to a standby changes. `pg_control_checkpoint()` still shows the
/// earlier one after a promotion.
///
/// # Errors
/// The database's error; a standby has none.
pub async fn timeline(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)")
        .fetch_one(connection)
        .await
}

impl Server {
    async fn read(connection: &mut PgConnection) -> Result<Self, PostgresError> {
        let server = sqlx::query_as(
            "SELECT current_setting('server_version_num')::integer AS version, \
             current_setting('server_encoding') AS encoding, \
             pg_is_in_recovery() AS is_standby, \
             current_setting('fsync') = 'on' AS syncs, \
             (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS is_superuser, \
             EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'core' \
                     AND pg_has_role(current_user, nspowner, 'MEMBER')) AS owns_tables, \
             (current_setting('max_connections')::integer \
              - current_setting('superuser_reserved_connections')::integer \
              - (SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database) + 1)::integer AS room",
        );
        server
            .fetch_one(connection)
            .await
            .map_err(PostgresError::of)
    }

    /// Checks the server, for services and for migrations.
    fn check(&self, options: &PostgresOptions) -> Result<(), PostgresError> {
        if self.version < OLDEST_SERVER {
            return Err(ServerFault::TooOld(self.version / 10_000).into());
        }
        if self.encoding != "UTF8" {
            return Err(ServerFault::Encoding(self.encoding.clone()).into());
        }
        if self.is_standby {
            return Err(ServerFault::Standby.into());
        }
        if !self.syncs && !options.allow_fsync_off {
            return Err(ServerFault::NoSync.into());
        }
        Ok(())
    }

    /// Checks the role of a service, which must own nothing.
    fn check_role(&self) -> Result<(), PostgresError> {
        if self.is_superuser {
            return Err(ServerFault::Superuser.into());
        }
        if self.owns_tables {
            return Err(ServerFault::Owner.into());
        }
        Ok(())
    }

    /// Checks that the server accepts the connections of a service.
    fn check_room(&self, needed: u32) -> Result<(), PostgresError> {
        let room = u32::try_from(self.room).unwrap_or_default();
        match room < needed {
            true => Err(ServerFault::NoRoom { needed, room }.into()),
            false => Ok(()),
        }
    }
}

async fn connect_checked(
    options: &PgConnectOptions,
    limit: Duration,
) -> Result<PgConnection, PostgresError> {
    let connected = connect_in_time(options, limit).await;
    connected.map_err(PostgresError::of)
}

/// Connects to a server, which may have vanished without a word.
async fn connect_in_time(
    options: &PgConnectOptions,
    limit: Duration,
) -> Result<PgConnection, sqlx::Error> {
    match tokio::time::timeout(limit, options.connect()).await {
        Ok(connected) => connected,
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}

/// Refuses a connection to a standby, which repeats the changes of another server later than they are made.
async fn refuse_standby(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let is_standby: bool = sqlx::query_scalar("SELECT pg_is_in_recovery()")
        .fetch_one(connection)
        .await?;
    match is_standby {
        true => Err(sqlx::Error::Configuration(
            ServerFault::Standby.to_string().into(),
        )),
        false => Ok(()),
    }
}

/// Runs statements whose only outside part is a name that the server has quoted.
async fn run(connection: &mut PgConnection, text: String) -> Result<(), PostgresError> {
    let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await;
    done.map(drop).map_err(PostgresError::of)
}
