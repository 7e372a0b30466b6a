//! Results of nodes that other nodes may reuse, in a database.

use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use sql_store::{Database, Session, Statement};

use workflow_domain::cache_key::{CacheKey, KeyParts};
use workflow_runner::{LastResult, ResultChange, ResultRow, ResultStore, TenantKey};

use super::StoreError;

/// The results in a database.
#[derive(Clone, Debug)]
pub struct ResultTable {
    database: Database,
}

impl ResultTable {
    /// Opens the results in a database with the tables of this service.
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ResultStore for ResultTable {
    async fn all(&self) -> Result<Vec<ResultRow>, StoreError> {
        let rows = Statement::new(
            "SELECT key, CAST(octet_length(outputs) AS bigint), run_id, kept, tenant FROM results ORDER BY used",
        );
        let rows: Vec<(Vec<u8>, i64, String, i64, String)> =
            self.database.reader().fetch_all(rows).await?;
        let row = |(of, bytes, run_id, kept, owner): (_, i64, _, _, String)| {
            Ok(ResultRow {
                key: (tenant(&owner, "results")?, key(of, "results")?),
                bytes: usize::try_from(bytes).unwrap_or_default(),
                run_id,
                kept: Timestamp::from_unix_nanos(kept),
            })
        };
        rows.into_iter().map(row).collect()
    }

    async fn last(&self) -> Result<Vec<LastResult>, StoreError> {
        let rows =
            Statement::new("SELECT node, key, parts, kept, tenant FROM last_results ORDER BY kept");
        let rows: Vec<(Vec<u8>, Vec<u8>, String, i64, String)> =
            self.database.reader().fetch_all(rows).await?;
        let row = |(node, of, parts, kept, owner): (_, _, String, _, String)| {
            Ok(LastResult {
                tenant: tenant(&owner, "last_results")?,
                node: key(node, "last_results")?,
                key: key(of, "last_results")?,
                parts: KeyParts::from_text(&parts).ok_or(StoreError::Damaged {
                    table: "last_results",
                    column: "parts",
                })?,
                kept: Timestamp::from_unix_nanos(kept),
            })
        };
        rows.into_iter().map(row).collect()
    }

    async fn outputs(&self, key: &TenantKey) -> Result<Option<String>, StoreError> {
        let statement = "SELECT outputs FROM results WHERE tenant = $1 AND key = $2";
        let reader = self.database.reader();
        let row = reader.fetch_optional(of(statement, key)).await?;
        Ok(row.map(|(outputs,)| outputs))
    }

    async fn write(&self, changes: &[ResultChange]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        for change in changes {
            write(&mut transaction.session(), change).await?;
        }
        transaction.commit().await.map_err(StoreError::from)
    }
}

async fn write(session: &mut Session<'_>, change: &ResultChange) -> Result<(), sqlx::Error> {
    let statement = match change {
        ResultChange::Kept {
            last,
            run_id,
            outputs,
        } => {
            let result = of(
                "INSERT INTO results (tenant, key, outputs, run_id, kept, used) \
                 VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (tenant, key) DO UPDATE SET \
                 outputs = excluded.outputs, run_id = excluded.run_id, kept = excluded.kept, used = excluded.used",
                &(last.tenant, last.key),
            );
            let result = result.bind(&**outputs).bind(run_id);
            session.execute(result.bind(last.kept.unix_nanos())).await?;
            let newest = of(
                "INSERT INTO last_results (tenant, node, key, parts, kept) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (tenant, node) DO UPDATE SET \
                 key = excluded.key, parts = excluded.parts, kept = excluded.kept",
                &(last.tenant, last.node),
            );
            let newest = newest.bind(last.key.0.to_vec()).bind(last.parts.to_text());
            newest.bind(last.kept.unix_nanos())
        }
        ResultChange::Used(key, at) => of(
            "UPDATE results SET used = $3 WHERE tenant = $1 AND key = $2",
            key,
        )
        .bind(at.unix_nanos()),
        ResultChange::Dropped(key) => of("DELETE FROM results WHERE tenant = $1 AND key = $2", key),
        ResultChange::NodeDropped(node) => of(
            "DELETE FROM last_results WHERE tenant = $1 AND node = $2",
            node,
        ),
    };
    session.execute(statement).await?;
    Ok(())
}

/// Returns a statement whose first two arguments are a tenant and a key, of a result or a node.
fn of(text: &'static str, (tenant, key): &TenantKey) -> Statement {
    let statement = Statement::new(text).bind(tenant.as_str());
    statement.bind(key.0.to_vec())
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
