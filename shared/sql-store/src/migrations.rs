//! Embedded, forward-only migrations, kept apart by namespace.

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::SqlitePool;

/// The migrations of one component.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    namespace: &'static str,
    migrator: &'static Migrator,
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
}
