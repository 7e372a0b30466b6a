//! The stored definitions on SQLite.

use async_trait::async_trait;
use core_types::Tenant;
use run_log::Hash;
use sql_store::{Migrations, SqliteDatabase, TenantTable};

use super::{DefinitionTexts, StoreError};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// The tables of this service.
pub const MIGRATIONS: Migrations = Migrations::new("workflow_execution", &MIGRATOR);

/// The tables with a column `tenant`, for the removal of a tenant.
const TABLES: [TenantTable; 5] = [
    TenantTable {
        name: "definitions",
        key: "hash",
    },
    TenantTable {
        name: "schedules",
        key: "id",
    },
    TenantTable {
        name: "schedule_times",
        key: "schedule_id, time",
    },
    TenantTable {
        name: "results",
        key: "key",
    },
    TenantTable {
        name: "last_results",
        key: "node",
    },
];

/// Deletes at most `limit` rows of each table of a tenant that is being removed. Returns the number of rows that are
/// left.
///
/// # Errors
/// A database that does not work.
pub async fn remove_tenant(
    database: &SqliteDatabase,
    tenant: Tenant,
    limit: u32,
) -> Result<u64, StoreError> {
    let left = sql_store::remove_rows(database, &TABLES, tenant, limit).await?;
    Ok(left)
}

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
    async fn keep(&self, tenant: Tenant, text: &str) -> Result<Hash, StoreError> {
        let hash = Hash::of(text.as_bytes());
        let mut transaction = self.database.begin_write().await?;
        sqlx::query(
            "INSERT INTO definitions (tenant, hash, text) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )
        .bind(tenant.as_str())
        .bind(&hash.0[..])
        .bind(text)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(hash)
    }

    async fn kept(&self, tenant: Tenant, hash: &Hash) -> Result<Option<String>, StoreError> {
        let text =
            sqlx::query_scalar("SELECT text FROM definitions WHERE tenant = ?1 AND hash = ?2")
                .bind(tenant.as_str())
                .bind(&hash.0[..])
                .fetch_optional(self.database.reader());
        Ok(text.await?)
    }

    async fn forget(&self, used: &[(Tenant, Hash)]) -> Result<u64, StoreError> {
        let used = used.iter();
        let used: serde_json::Value = used
            .map(|(tenant, hash)| serde_json::json!([tenant, hash.to_string()]))
            .collect();
        let mut transaction = self.database.begin_write().await?;
        let forgotten = sqlx::query(
            "DELETE FROM definitions WHERE (tenant, lower(hex(hash))) NOT IN \
             (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?1))",
        )
        .bind(used.to_string())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(forgotten.rows_affected())
    }
}
