//! The stored definitions on SQLite.

use async_trait::async_trait;
use run_log::Hash;
use sql_store::{Migrations, SqliteDatabase};

use super::{DefinitionTexts, StoreError};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// The tables of this service.
pub const MIGRATIONS: Migrations = Migrations::new("workflow_execution", &MIGRATOR);

/// The stored definitions on SQLite.
#[derive(Clone, Debug)]
pub struct KeptDefinitions {
    database: SqliteDatabase,
}

impl KeptDefinitions {
    /// Opens the definitions on a database with [`MIGRATIONS`] applied.
    pub fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }
}

#[async_trait]
impl DefinitionTexts for KeptDefinitions {
    async fn keep(&self, text: &str) -> Result<Hash, StoreError> {
        let hash = Hash::of(text.as_bytes());
        let mut transaction = self.database.begin_write().await?;
        sqlx::query("INSERT INTO definitions (hash, text) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
            .bind(&hash.0[..])
            .bind(text)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(hash)
    }

    async fn kept(&self, hash: &Hash) -> Result<Option<String>, StoreError> {
        let text = sqlx::query_scalar("SELECT text FROM definitions WHERE hash = ?1");
        let text = text
            .bind(&hash.0[..])
            .fetch_optional(self.database.reader());
        Ok(text.await?)
    }

    async fn forget(&self, used: &[Hash]) -> Result<u64, StoreError> {
        let used: Vec<String> = used.iter().map(ToString::to_string).collect();
        let mut transaction = self.database.begin_write().await?;
        let forgotten = sqlx::query(
            "DELETE FROM definitions WHERE lower(hex(hash)) NOT IN (SELECT value FROM json_each(?1))",
        )
        .bind(serde_json::Value::from(used).to_string())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(forgotten.rows_affected())
    }
}
