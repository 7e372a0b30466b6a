//! Approvals, principals and counts of denials as they are stored, in a file or at a server. Tools and gRPC servers that
//! the operator added are [`documents`].

pub(crate) mod approvals;
pub(crate) mod denials;
pub(crate) mod identities;
pub(crate) mod plugins;
pub(crate) mod tenants;
pub(crate) mod tool_index;

use core_types::Tenant;
use data_home::{DataHome, HomeError};
use documents::Collection;
use serde::de::DeserializeOwned;
use sql_store::{Database, Migrations};

pub use sql_store::StoreError;

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

static SERVER_MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// The tables of this service in a file.
pub const MIGRATIONS: Migrations = Migrations::new("tool_registry", &MIGRATOR);

/// The tables of this service at a server, in the schema `registry`.
pub const SERVER_MIGRATIONS: Migrations = Migrations::new("tool_registry", &SERVER_MIGRATOR);

/// The file of the tables.
pub(crate) const DATABASE: &str = "tool-registry.db";

/// The migrations of that file.
pub(crate) const IN_FILE: [Migrations; 2] = [documents::MIGRATIONS, MIGRATIONS];

/// Opens the tables.
///
/// # Errors
/// [`HomeError`].
pub(crate) async fn open_database(home: &DataHome) -> Result<Database, HomeError> {
    home.tables(DATABASE, &IN_FILE).await
}

/// The tools that were put for a tenant, with their definitions as they were written.
pub(crate) const fn tools_of(tenant: Tenant) -> Collection {
    Collection {
        tenant,
        kind: "tool",
    }
}

/// The values of options of plugins of a tenant, by the name of the plugin.
pub(crate) const fn plugin_options_of(tenant: Tenant) -> Collection {
    Collection {
        tenant,
        kind: "plugin_options",
    }
}

/// The plugins and tools that a tenant switched off, in one document.
pub(crate) const fn switches_of(tenant: Tenant) -> Collection {
    Collection {
        tenant,
        kind: "plugin_switches",
    }
}

/// The gRPC servers that were put for a tenant.
pub(crate) const fn backends_of(tenant: Tenant) -> Collection {
    Collection {
        tenant,
        kind: "backend",
    }
}

/// Reads a document that this service has written.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn read_document<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::Damaged {
        table: "document",
        column: "text",
    })
}

/// Runs a statement on a file that no process has open, as someone with an editor can.
#[cfg(test)]
pub(crate) async fn run_sql(file: &std::path::Path, sql: &str) {
    use sqlx::{AssertSqlSafe, ConnectOptions, sqlite::SqliteConnectOptions};

    let options = SqliteConnectOptions::new().filename(file);
    let mut door = options.connect().await.expect("it opens");
    let statement = sqlx::query(AssertSqlSafe(sql.to_owned()));
    let carried_out = statement.execute(&mut door).await;
    carried_out.expect("it is carried out");
}

#[cfg(test)]
mod both_databases;

#[cfg(test)]
mod tests {
    use documents::{DocumentStore, Request, RequestStore, Seen, StoredDocuments};
    use run_log::Hash;
    use sql_store::{SqliteDatabase, SqliteOptions};

    use super::*;

    const BODY: Hash = Hash([0xab; 32]);

    #[tokio::test]
    async fn tools_backends_and_requests_of_an_earlier_version_are_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = SqliteOptions::new(directory.path().join("tools.db"));
        let earlier = SqliteDatabase::open(options.clone(), &[MIGRATIONS.up_to(3)]).await;
        let earlier = earlier.expect("the earlier version opens");
        for statement in [
            "INSERT INTO tools VALUES ('a:b', 'a definition')",
            "INSERT INTO backends VALUES ('shop', 'http://localhost:1', x'0aff')",
            "INSERT INTO requests VALUES ('PutTool', 'r1', ?1)",
        ] {
            let row = sqlx::query(statement).bind(BODY.to_string());
            let written = row.execute(earlier.writer()).await;
            written.expect("a row of the earlier version");
        }
        earlier.close().await;
        drop(earlier);

        let all = [documents::MIGRATIONS, MIGRATIONS];
        let database = SqliteDatabase::open(options, &all).await;
        let documents = StoredDocuments::new(database.expect("it is brought up to date"));
        let text = async |collection, id| {
            let row = documents.get(collection, id).await.expect("it is read");
            row.expect("it is there").text
        };
        assert_eq!(text(tools_of(Tenant::DEFAULT), "a:b").await, "a definition");
        let backend = r#"{"endpoint":"http://localhost:1","descriptors":"0aff"}"#;
        assert_eq!(text(backends_of(Tenant::DEFAULT), "shop").await, backend);
        let put = Request::of("PutTool", "r1", BODY).expect("it has an id");
        let seen = documents.seen(Tenant::DEFAULT, put).await;
        assert_eq!(seen.expect("it is read"), Seen::Same(String::new()));
    }
}
