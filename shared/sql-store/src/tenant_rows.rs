//! Removal of the rows of a tenant, step by step.

use std::{collections::BTreeMap, path::Path};

use core_types::Tenant;
use sqlx::{AssertSqlSafe, ConnectOptions as _, sqlite::SqliteConnectOptions};

use crate::{error_class::StoreError, sqlite::SqliteDatabase};

/// A table with a column `tenant`.
#[derive(Clone, Copy, Debug)]
pub struct TenantTable {
    /// The name of the table.
    pub name: &'static str,
    /// The columns that with `tenant` identify a row, separated by commas; none may be null.
    pub key: &'static str,
}

/// Deletes at most `limit` rows of a tenant from each of the tables, in one transaction. Returns the number of rows
/// that are left in them, of each at most `limit`.
///
/// # Errors
/// A database that does not work.
pub async fn remove_rows(
    database: &SqliteDatabase,
    tables: &[TenantTable],
    tenant: Tenant,
    limit: u32,
) -> Result<u64, StoreError> {
    let mut transaction = database.begin_write().await?;
    let mut left = 0;
    for TenantTable { name, key } in tables {
        // The texts hold only names that are written in the program.
        let delete = format!(
            "DELETE FROM {name} WHERE (tenant, {key}) IN \
             (SELECT tenant, {key} FROM {name} WHERE tenant = ?1 LIMIT ?2)"
        );
        sqlx::query(AssertSqlSafe(delete))
            .bind(tenant.as_str())
            .bind(limit)
            .execute(&mut *transaction)
            .await?;
        let count =
            format!("SELECT COUNT(*) FROM (SELECT 1 FROM {name} WHERE tenant = ?1 LIMIT ?2)");
        let rows: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .bind(tenant.as_str())
            .bind(limit)
            .fetch_one(&mut *transaction)
            .await?;
        left += rows.unsigned_abs();
    }
    transaction.commit().await?;
    Ok(left)
}

/// Returns the number of a tenant's rows in each table of a file that has a column `tenant`, also while a process has
/// the file open. A removal has forgotten no table if all of them are zero.
///
/// # Errors
/// A file that cannot be read.
pub async fn count_rows(path: &Path, tenant: &str) -> Result<BTreeMap<String, u64>, StoreError> {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection = options.connect().await?;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_master AS it WHERE type = 'table' AND EXISTS \
         (SELECT 1 FROM pragma_table_info(it.name) AS info WHERE info.name = 'tenant')",
    )
    .fetch_all(&mut connection)
    .await?;
    let mut rows = BTreeMap::new();
    for table in tables {
        // The text holds only the name of a table that exists.
        let count = format!("SELECT COUNT(*) FROM {table} WHERE tenant = ?1");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .bind(tenant)
            .fetch_one(&mut connection)
            .await?;
        rows.insert(table, count.unsigned_abs());
    }
    Ok(rows)
}
