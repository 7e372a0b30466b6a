//! Embedded, forward-only migrations, kept apart by namespace.

use std::collections::BTreeSet;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, sqlite::SqlitePool};

/// The migrations of one component.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    namespace: &'static str,
    migrator: &'static Migrator,
}

/// The difference between the tables of a server and the migrations of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Some of the program's migrations are missing.
    Missing,
    /// A later version of the program has migrated it.
    Newer,
}

impl Migrations {
    /// Names the migrations that `sqlx::migrate!` embedded.
    ///
    /// The namespace (lower-case letters, digits and underscores) names the table that records the
    /// applied migrations, so components that share a file may number theirs independently.
    pub const fn new(namespace: &'static str, migrator: &'static Migrator) -> Self {
        Self {
            namespace,
            migrator,
        }
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &'static str {
        self.namespace
    }

    /// Returns the migrations up to a number, which a database of an earlier version has, for the
    /// tests of later migrations. They stay in memory until the process ends.
    pub fn up_to(&self, number: i64) -> Self {
        let earlier = self.migrator.iter();
        let earlier = earlier.filter(|migration| migration.version <= number);
        let migrator = Migrator::with_migrations(earlier.cloned().collect());
        Self::new(self.namespace, Box::leak(Box::new(migrator)))
    }

    /// Applies the missing migrations. Each is one transaction, so a crash leaves no part of it.
    pub(crate) async fn run(&self, pool: &SqlitePool) -> Result<(), MigrateError> {
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        debug_assert!(
            self.namespace.bytes().all(plain),
            "a namespace becomes part of a table name"
        );
        let mut migrator = Migrator::with_migrations(self.migrator.iter().cloned().collect());
        migrator.dangerous_set_table_name(format!("_migrations_{}", self.namespace));
        migrator.run(pool).await
    }

    /// Applies the missing migrations to a server, in the schema `core`.
    pub(crate) async fn run_on_server(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(), MigrateError> {
        let mut migrator = Migrator::with_migrations(self.migrator.iter().cloned().collect());
        migrator.dangerous_set_table_name(self.table());
        migrator.run(connection).await
    }

    /// Compares the applied migrations of a server with those of this program.
    pub(crate) async fn differs_on_server(
        &self,
        pool: &PgPool,
    ) -> Result<Option<Difference>, sqlx::Error> {
        let table = self.table();
        let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .bind(&table)
            .fetch_one(pool)
            .await?;
        if !exists {
            return Ok(Some(Difference::Missing));
        }
        // The text holds only the name of a component.
        let text = format!("SELECT version FROM {table} WHERE success");
        let applied: BTreeSet<i64> = sqlx::query_scalar(AssertSqlSafe(text))
            .fetch_all(pool)
            .await?
            .into_iter()
            .collect();
        let known: BTreeSet<i64> = self.migrator.iter().map(|one| one.version).collect();
        Ok(if !known.is_subset(&applied) {
            Some(Difference::Missing)
        } else if applied.is_subset(&known) {
            None
        } else {
            Some(Difference::Newer)
        })
    }

    fn table(&self) -> String {
        format!("core._migrations_{}", self.namespace)
    }
}
