//! Databases with the tables of components.

use sql_store::{
    Database, Migrations, PostgresDatabase, PostgresOptions, SqliteDatabase, SqliteOptions,
};
use tempfile::TempDir;

/// Makes two tests of each function that takes a [`Database`]: `sqlite::NAME` with the first constant's migrations, and
/// `postgres::NAME` with the second's, which does nothing on a host without PostgreSQL. The caller needs `tokio` with
/// its macros.
#[macro_export]
macro_rules! on_every_database {
    (($file:ident, $server:ident) $($case:ident)*) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $case() {
                    let (_directory, database) = $crate::databases::file(&super::$file).await;
                    super::$case(database).await;
                }
            )*
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $case() {
                    if let Some(database) = $crate::databases::at_server(&super::$server).await {
                        super::$case(database).await;
                    }
                }
            )*
        }
    };
}

/// Returns options for an address of a server of tests, which may run without syncs.
pub fn options(url: &str) -> PostgresOptions {
    PostgresOptions {
        allow_fsync_off: true,
        ..PostgresOptions::new(url)
    }
}

/// Opens a new file with tables, in a directory that lives as long as it is kept.
///
/// # Panics
/// A file that does not open.
pub async fn file(migrations: &[Migrations]) -> (TempDir, Database) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteOptions::new(directory.path().join("tables.db"));
    let database = SqliteDatabase::open(options, migrations).await;
    (directory, database.expect("the file opens").into())
}

/// Opens a new database with tables at the server of all tests, or returns `None` where PostgreSQL is missing.
///
/// # Panics
/// A server that does not answer.
pub async fn at_server(migrations: &[Migrations]) -> Option<Database> {
    let new = crate::shared()?.database().expect("the server answers");
    PostgresDatabase::migrate(&options(&new.owner_url), migrations, new.app_role)
        .await
        .expect("it is migrated");
    let database = PostgresDatabase::open(options(&new.url), migrations).await;
    Some(database.expect("it opens").into())
}
