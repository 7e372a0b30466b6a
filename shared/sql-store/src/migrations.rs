//! Embedded, forward-only migrations, kept apart by namespace.

use std::collections::BTreeSet;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, sqlite::SqlitePool};

/// The migrations of one component.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    namespace: &'static str,
    migrator: &'static Migrator,
}

/// A migration of a component, and whether a server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMigration {
    /// The namespace of the component.
    pub component: &'static str,
    /// The number, which orders those of a component.
    pub number: i64,
    /// The words of its file name.
    pub description: String,
    /// Whether the server has it.
    pub is_applied: bool,
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

    /// Returns the migrations of this program with their states at a server, in their order.
    pub(crate) async fn on_server(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<ServerMigration>, sqlx::Error> {
        let applied = self.applied(connection).await?;
        let known = self.migrator.iter().map(|one| ServerMigration {
            component: self.namespace,
            number: one.version,
            description: one.description.to_string(),
            is_applied: applied.contains(&one.version),
        });
        Ok(known.collect())
    }

    /// Compares the applied migrations of a server with those of this program.
    pub(crate) async fn differs_on_server(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Option<Difference>, sqlx::Error> {
        let applied = self.applied(connection).await?;
        let known: BTreeSet<i64> = self.migrator.iter().map(|one| one.version).collect();
        Ok(if !known.is_subset(&applied) {
            Some(Difference::Missing)
        } else if applied.is_subset(&known) {
            None
        } else {
            Some(Difference::Newer)
        })
    }

    /// Returns the numbers of the migrations that a server has.
    async fn applied(&self, connection: &mut PgConnection) -> Result<BTreeSet<i64>, sqlx::Error> {
        let table = self.table();
        let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
            .bind(&table)
            .fetch_one(&mut *connection)
            .await?;
        if !exists {
            return Ok(BTreeSet::new());
        }
        // The text holds only the name of a component.
        let text = format!("SELECT version FROM {table} WHERE success");
        let numbers = sqlx::query_scalar(AssertSqlSafe(text));
        let numbers: Vec<i64> = numbers.fetch_all(connection).await?;
        Ok(numbers.into_iter().collect())
    }

    fn table(&self) -> String {
        format!("core._migrations_{}", self.namespace)
    }
}
