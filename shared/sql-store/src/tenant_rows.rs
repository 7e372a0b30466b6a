//! Removal of the rows of a tenant, step by step.

use std::{collections::BTreeMap, path::Path};

use core_types::Tenant;
use sqlx::{AssertSqlSafe, ConnectOptions as _, sqlite::SqliteConnectOptions};

use crate::{Database, Statement, error_class::StoreError};

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
    database: &Database,
    tables: &[TenantTable],
    tenant: Tenant,
    limit: u32,
) -> Result<u64, StoreError> {
    let mut transaction = database.begin().await?;
    let mut session = transaction.session();
    let mut left = 0;
    for TenantTable { name, key } in tables {
        let mut delete = Statement::new("DELETE FROM ");
        delete.push(name).push(" WHERE (tenant, ").push(key);
        delete
            .push(") IN (SELECT tenant, ")
            .push(key)
            .push(" FROM ")
            .push(name);
        delete.push(" WHERE tenant = ").push_bind(tenant.as_str());
        delete.push(" LIMIT ").push_bind(limit).push(")");
        session.execute(delete).await?;
        let mut count = Statement::new("SELECT COUNT(*) FROM (SELECT 1 FROM ");
        count
            .push(name)
            .push(" WHERE tenant = ")
            .push_bind(tenant.as_str());
        count.push(" LIMIT ").push_bind(limit).push(") AS rows");
        let (rows,): (i64,) = session.fetch_one(count).await?;
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
