//! The stored definitions, and the removal of a tenant from all tables.

use std::collections::HashSet;

use async_trait::async_trait;
use core_types::Tenant;
use run_log::Hash;
use sql_store::{Database, Migrations, Statement, TenantTable};

use super::{DefinitionTexts, StoreError};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");
static SERVER_MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// The tables of this service in a file.
pub const MIGRATIONS: Migrations = Migrations::new("workflow_execution", &MIGRATOR);

/// The tables of this service at a server, in the schema `workflow`.
pub const SERVER_MIGRATIONS: Migrations = Migrations::new("workflow_execution", &SERVER_MIGRATOR);

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
    database: &Database,
    tenant: Tenant,
    limit: u32,
) -> Result<u64, StoreError> {
    let left = sql_store::remove_rows(database, &TABLES, tenant, limit).await?;
    Ok(left)
}

#[async_trait]
impl DefinitionTexts for Database {
    async fn keep(&self, tenant: Tenant, text: &str) -> Result<Hash, StoreError> {
        let hash = Hash::of(text.as_bytes());
        let statement = Statement::new(
            "INSERT INTO definitions (tenant, hash, text) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        );
        let statement = statement.bind(tenant.as_str()).bind(hash.0.to_vec());
        self.execute(statement.bind(text)).await?;
        Ok(hash)
    }

    async fn kept(&self, tenant: Tenant, hash: &Hash) -> Result<Option<String>, StoreError> {
        let statement =
            Statement::new("SELECT text FROM definitions WHERE tenant = $1 AND hash = $2");
        let statement = statement.bind(tenant.as_str()).bind(hash.0.to_vec());
        let text = self.reader().fetch_optional(statement).await?;
        Ok(text.map(|(text,)| text))
    }

    async fn forget(&self, used: &[(Tenant, Hash)]) -> Result<u64, StoreError> {
        let used: HashSet<(&str, &[u8])> = used
            .iter()
            .map(|(tenant, hash)| (tenant.as_str(), hash.0.as_slice()))
            .collect();
        let mut transaction = self.begin().await?;
        let mut session = transaction.session();
        let all = Statement::new("SELECT tenant, hash FROM definitions");
        let all: Vec<(String, Vec<u8>)> = session.fetch_all(all).await?;
        let mut forgotten = 0;
        for (tenant, hash) in all {
            if !used.contains(&(tenant.as_str(), hash.as_slice())) {
                let delete =
                    Statement::new("DELETE FROM definitions WHERE tenant = $1 AND hash = $2");
                forgotten += session.execute(delete.bind(tenant).bind(hash)).await?;
            }
        }
        transaction.commit().await?;
        Ok(forgotten)
    }
}
