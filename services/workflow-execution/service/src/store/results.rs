//! Results of nodes that other nodes may reuse, on SQLite.

use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use sql_store::SqliteDatabase;
use sqlx::{Row, Sqlite, Transaction};

use workflow_domain::cache_key::{CacheKey, KeyParts};
use workflow_runner::{LastResult, ResultChange, ResultRow, ResultStore, TenantKey};

use super::StoreError;

/// The results on SQLite.
#[derive(Clone, Debug)]
pub struct ResultTable {
    database: SqliteDatabase,
}

impl ResultTable {
    /// Opens the results on a database with [`MIGRATIONS`](super::MIGRATIONS) applied.
    pub fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ResultStore for ResultTable {
    async fn all(&self) -> Result<Vec<ResultRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT key, length(CAST(outputs AS BLOB)), run_id, kept, tenant FROM results ORDER BY used",
        )
        .fetch_all(self.database.reader())
        .await?;
        let row = |row: &sqlx::sqlite::SqliteRow| {
            Ok(ResultRow {
                key: (
                    tenant(row.try_get(4)?, "results")?,
                    key(row.try_get(0)?, "results")?,
                ),
                bytes: row.try_get::<i64, _>(1)?.unsigned_abs() as usize,
                run_id: row.try_get(2)?,
                kept: Timestamp::from_unix_nanos(row.try_get(3)?),
            })
        };
        rows.iter().map(row).collect()
    }

    async fn last(&self) -> Result<Vec<LastResult>, StoreError> {
        let rows =
            sqlx::query("SELECT node, key, parts, kept, tenant FROM last_results ORDER BY kept")
                .fetch_all(self.database.reader())
                .await?;
        let row = |row: &sqlx::sqlite::SqliteRow| {
            let parts: String = row.try_get(2)?;
            Ok(LastResult {
                tenant: tenant(row.try_get(4)?, "last_results")?,
                node: key(row.try_get(0)?, "last_results")?,
                key: key(row.try_get(1)?, "last_results")?,
                parts: KeyParts::from_text(&parts).ok_or(StoreError::Damaged {
                    table: "last_results",
                    column: "parts",
                })?,
                kept: Timestamp::from_unix_nanos(row.try_get(3)?),
            })
        };
        rows.iter().map(row).collect()
    }

    async fn outputs(&self, (tenant, key): &TenantKey) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar("SELECT outputs FROM results WHERE tenant = ?1 AND key = ?2")
            .bind(tenant.as_str())
            .bind(&key.0[..])
            .fetch_optional(self.database.reader())
            .await
            .map_err(StoreError::from)
    }

    async fn write(&self, changes: &[ResultChange]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for change in changes {
            write(&mut transaction, change).await?;
        }
        transaction.commit().await.map_err(StoreError::from)
    }
}

async fn write(
    transaction: &mut Transaction<'static, Sqlite>,
    change: &ResultChange,
) -> Result<(), sqlx::Error> {
    match change {
        ResultChange::Kept {
            last,
            run_id,
            outputs,
        } => {
            sqlx::query(
                "INSERT OR REPLACE INTO results (tenant, key, outputs, run_id, kept, used) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
            )
            .bind(last.tenant.as_str())
            .bind(&last.key.0[..])
            .bind(&**outputs)
            .bind(run_id)
            .bind(last.kept.unix_nanos())
            .execute(&mut **transaction)
            .await?;
            sqlx::query(
                "INSERT OR REPLACE INTO last_results (tenant, node, key, parts, kept) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .bind(last.tenant.as_str())
            .bind(&last.node.0[..])
            .bind(&last.key.0[..])
            .bind(last.parts.to_text())
            .bind(last.kept.unix_nanos())
            .execute(&mut **transaction)
            .await?;
        }
        ResultChange::Used((tenant, key), at) => {
            sqlx::query("UPDATE results SET used = ?3 WHERE tenant = ?1 AND key = ?2")
                .bind(tenant.as_str())
                .bind(&key.0[..])
                .bind(at.unix_nanos())
                .execute(&mut **transaction)
                .await?;
        }
        ResultChange::Dropped((tenant, key)) => {
            sqlx::query("DELETE FROM results WHERE tenant = ?1 AND key = ?2")
                .bind(tenant.as_str())
                .bind(&key.0[..])
                .execute(&mut **transaction)
                .await?;
        }
        ResultChange::NodeDropped((tenant, node)) => {
            sqlx::query("DELETE FROM last_results WHERE tenant = ?1 AND node = ?2")
                .bind(tenant.as_str())
                .bind(&node.0[..])
                .execute(&mut **transaction)
                .await?;
        }
    }
    Ok(())
}

fn key(stored: Vec<u8>, table: &'static str) -> Result<CacheKey, StoreError> {
    let damaged = |_| StoreError::Damaged {
        table,
        column: "key",
    };
    stored.try_into().map(CacheKey).map_err(damaged)
}

fn tenant(stored: &str, table: &'static str) -> Result<Tenant, StoreError> {
    Tenant::new(stored).map_err(|_| StoreError::Damaged {
        table,
        column: "tenant",
    })
}
