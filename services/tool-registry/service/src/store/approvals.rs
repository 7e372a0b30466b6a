//! Approvals.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use core_types::{Principal, Tenant};
use sql_store::SqliteDatabase;
use sqlx::{Row, sqlite::SqliteRow};
use tool_domain::approval::{Approval, State};

use crate::store::StoreError;

/// A stored approval.
pub(crate) struct Stored {
    pub(crate) approval: Approval,
    /// The call as JSON, to start it again after a restart; empty if its owner requests it.
    pub(crate) call_json: String,
}

/// Which approvals a list has.
#[derive(Clone, Debug, Default)]
pub struct ApprovalFilter {
    /// Only in this state.
    pub state: Option<State>,
    /// Only of this conversation; empty for all.
    pub conversation: String,
    /// Only of this run; empty for all.
    pub run: String,
    /// Only of calls that act for this principal; `None` for all.
    pub principal: Option<Principal>,
}

const COLUMNS: &str = "SELECT document_json, call_json FROM approvals";

/// Keeps approvals.
///
/// Every method fails with a [`StoreError`] when the database does not work or a row is damaged.
#[async_trait]
pub(crate) trait ApprovalStore: Send + Sync {
    /// Saves a new approval of the tenant of its principal, or its new state.
    async fn put(&self, approval: &Approval, call_json: &str) -> Result<(), StoreError>;

    /// Returns an approval.
    async fn get(&self, tenant: Tenant, id: &str) -> Result<Option<Stored>, StoreError>;

    /// Returns the approval of an effect that counts.
    async fn of_effect(&self, tenant: Tenant, effect: &str) -> Result<Option<Stored>, StoreError>;

    /// Returns the approvals of all tenants whose call no owner requests: it ended with its caller, or is to be started
    /// again.
    async fn unattended(&self) -> Result<Vec<Stored>, StoreError>;

    /// Forgets the call that an approval starts again.
    async fn forget_call(&self, tenant: Tenant, id: &str) -> Result<(), StoreError>;

    /// Returns the number of pending approvals of a tenant.
    async fn pending(&self, tenant: Tenant) -> Result<i64, StoreError>;

    /// Returns at most `limit` approvals of a tenant, the newest first, after a place.
    async fn list(
        &self,
        tenant: Tenant,
        filter: &ApprovalFilter,
        after: Option<(i64, &str)>,
        limit: usize,
    ) -> Result<Vec<Stored>, StoreError>;

    /// Lets an approval stand for later calls of a conversation with a digest.
    async fn remember(
        &self,
        tenant: Tenant,
        conversation: &str,
        digest: &str,
        approval: &str,
    ) -> Result<(), StoreError>;

    /// Returns the approval that stands for later calls.
    async fn remembered(
        &self,
        tenant: Tenant,
        conversation: &str,
        digest: &str,
    ) -> Result<Option<String>, StoreError>;

    /// Returns at most `limit` approvals of all tenants that ended before a time, in nanoseconds since 1970, the oldest
    /// first, after a time of creation and an id, each with the conversation for whose later calls it stands; empty if
    /// for none. Approvals whose call has yet to be started again are not among them.
    async fn ended_before(
        &self,
        before: i64,
        after: (i64, &str),
        limit: usize,
    ) -> Result<Vec<(Approval, String)>, StoreError>;

    /// Returns at most `limit` approvals of all tenants that wait although their time passed before `now`.
    async fn overdue(&self, now: i64, limit: usize) -> Result<Vec<Stored>, StoreError>;

    /// Deletes approvals of a tenant, and the permissions that they give later calls.
    async fn delete(&self, tenant: Tenant, ids: &[String]) -> Result<(), StoreError>;

    /// Deletes at most `limit` approvals and remembered decisions each of a tenant that is being removed. Returns the
    /// number of those that are left.
    async fn remove_of(&self, tenant: Tenant, limit: u32) -> Result<u64, StoreError>;

    /// Returns free pages to the file system in one step. Returns the number of bytes.
    async fn reclaim(&self) -> Result<u64, StoreError>;
}

/// Approvals on SQLite.
#[derive(Clone)]
pub(crate) struct SqliteApprovals {
    database: SqliteDatabase,
}

impl SqliteApprovals {
    /// Takes an open database with the migrations of the service applied.
    pub(crate) fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ApprovalStore for SqliteApprovals {
    async fn put(&self, approval: &Approval, call_json: &str) -> Result<(), StoreError> {
        let document = serde_json::to_string(approval).expect("an approval has text keys only");
        let statement = sqlx::query(
            "INSERT INTO approvals (approval_id, effect_id, state, conversation_id, run_id, created, \
             expires, document_json, call_json, ended, tenant) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
             ON CONFLICT (approval_id) DO UPDATE SET state = excluded.state, ended = excluded.ended, \
             document_json = excluded.document_json",
        );
        statement
            .bind(&approval.id)
            .bind(&approval.effect_id)
            .bind(approval.state as i32)
            .bind(&approval.conversation_id)
            .bind(&approval.run_id)
            .bind(approval.created)
            .bind(approval.expires)
            .bind(document)
            .bind(call_json)
            .bind(approval.ended)
            .bind(approval.principal.tenant().as_str())
            .execute(self.database.writer())
            .await?;
        Ok(())
    }

    async fn get(&self, tenant: Tenant, id: &str) -> Result<Option<Stored>, StoreError> {
        let statement = format!("{COLUMNS} WHERE tenant = ?1 AND approval_id = ?2");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement));
        let row = row.bind(tenant.as_str()).bind(id);
        let row = row.fetch_optional(self.database.reader()).await?;
        row.map(|row| read(&row)).transpose()
    }

    async fn of_effect(&self, tenant: Tenant, effect: &str) -> Result<Option<Stored>, StoreError> {
        let statement = format!(
            "{COLUMNS} WHERE tenant = ?1 AND effect_id = ?2 AND effect_id <> '' AND state <> 5"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(statement));
        let row = row.bind(tenant.as_str()).bind(effect);
        let row = row.fetch_optional(self.database.reader()).await?;
        row.map(|row| read(&row)).transpose()
    }

    async fn unattended(&self) -> Result<Vec<Stored>, StoreError> {
        let statement = format!(
            "{COLUMNS} WHERE (state = 1 AND effect_id = '') OR (state IN (1, 2) AND call_json <> '')"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement));
        let rows = rows.fetch_all(self.database.reader()).await?;
        rows.iter().map(read).collect()
    }

    async fn forget_call(&self, tenant: Tenant, id: &str) -> Result<(), StoreError> {
        let statement =
            "UPDATE approvals SET call_json = '' WHERE tenant = ?1 AND approval_id = ?2";
        let statement = sqlx::query(statement).bind(tenant.as_str()).bind(id);
        statement.execute(self.database.writer()).await?;
        Ok(())
    }

    async fn pending(&self, tenant: Tenant) -> Result<i64, StoreError> {
        let count = "SELECT count(*) FROM approvals WHERE tenant = ?1 AND state = 1";
        let count = sqlx::query_scalar(count).bind(tenant.as_str());
        Ok(count.fetch_one(self.database.reader()).await?)
    }

    async fn list(
        &self,
        tenant: Tenant,
        filter: &ApprovalFilter,
        after: Option<(i64, &str)>,
        limit: usize,
    ) -> Result<Vec<Stored>, StoreError> {
        let statement = format!(
            "{COLUMNS} WHERE (?1 = 0 OR state = ?1) AND (?2 = '' OR conversation_id = ?2) \
             AND (?3 = '' OR run_id = ?3) AND tenant = ?7 AND (created, approval_id) < (?4, ?5) \
             AND (?8 IS NULL OR coalesce(json_extract(document_json, '$.principal'), 'local') = ?8) \
             ORDER BY created DESC, approval_id DESC LIMIT ?6"
        );
        let (created, id) = after.unwrap_or((i64::MAX, ""));
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(filter.state.map_or(0, |state| state as i32))
            .bind(&filter.conversation)
            .bind(&filter.run)
            .bind(created)
            .bind(id)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(tenant.as_str())
            .bind(filter.principal.as_ref().map(Principal::as_str))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read).collect()
    }

    async fn remember(
        &self,
        tenant: Tenant,
        conversation: &str,
        digest: &str,
        approval: &str,
    ) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO remembered_approvals (tenant, conversation_id, digest, approval_id) \
             VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        );
        let statement = statement.bind(tenant.as_str()).bind(conversation);
        let statement = statement.bind(digest).bind(approval);
        statement.execute(self.database.writer()).await?;
        Ok(())
    }

    async fn remembered(
        &self,
        tenant: Tenant,
        conversation: &str,
        digest: &str,
    ) -> Result<Option<String>, StoreError> {
        let statement = sqlx::query_scalar(
            "SELECT approval_id FROM remembered_approvals \
             WHERE tenant = ?1 AND conversation_id = ?2 AND digest = ?3",
        );
        let statement = statement.bind(tenant.as_str()).bind(conversation);
        let statement = statement.bind(digest);
        Ok(statement.fetch_optional(self.database.reader()).await?)
    }

    async fn ended_before(
        &self,
        before: i64,
        after: (i64, &str),
        limit: usize,
    ) -> Result<Vec<(Approval, String)>, StoreError> {
        let rows = sqlx::query(
            "SELECT document_json, call_json, coalesce((SELECT r.conversation_id \
             FROM remembered_approvals r WHERE r.tenant = a.tenant AND r.approval_id = a.approval_id), '') \
             FROM approvals a WHERE (created, approval_id) > (?1, ?2) AND created < ?3 AND ended < ?3 \
             AND NOT (state = 2 AND call_json <> '') ORDER BY created, approval_id LIMIT ?4",
        );
        let rows = rows
            .bind(after.0)
            .bind(after.1)
            .bind(before)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database.reader())
            .await?;
        let ended = rows
            .iter()
            .map(|row| Ok((read(row)?.approval, row.try_get(2)?)));
        ended.collect()
    }

    async fn overdue(&self, now: i64, limit: usize) -> Result<Vec<Stored>, StoreError> {
        let statement = format!("{COLUMNS} WHERE state = 1 AND expires <= ?1 LIMIT ?2");
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement));
        let rows = rows
            .bind(now)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = rows.fetch_all(self.database.reader()).await?;
        rows.iter().map(read).collect()
    }

    async fn delete(&self, tenant: Tenant, ids: &[String]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for id in ids {
            for statement in [
                "DELETE FROM remembered_approvals WHERE tenant = ?1 AND approval_id = ?2",
                "DELETE FROM approvals WHERE tenant = ?1 AND approval_id = ?2",
            ] {
                sqlx::query(statement)
                    .bind(tenant.as_str())
                    .bind(id)
                    .execute(&mut *transaction)
                    .await?;
            }
        }
        Ok(transaction.commit().await?)
    }

    async fn remove_of(&self, tenant: Tenant, limit: u32) -> Result<u64, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for statement in [
            "DELETE FROM remembered_approvals WHERE tenant = ?1 AND (conversation_id, digest) IN (SELECT \
             conversation_id, digest FROM remembered_approvals WHERE tenant = ?1 LIMIT ?2)",
            "DELETE FROM approvals WHERE tenant = ?1 AND approval_id IN (SELECT approval_id FROM approvals \
             WHERE tenant = ?1 LIMIT ?2)",
        ] {
            let statement = sqlx::query(statement).bind(tenant.as_str()).bind(limit);
            statement.execute(&mut *transaction).await?;
        }
        let left = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM remembered_approvals WHERE tenant = ?1) \
             + (SELECT count(*) FROM approvals WHERE tenant = ?1)",
        );
        let left: i64 = left
            .bind(tenant.as_str())
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(u64::try_from(left).unwrap_or_default())
    }

    async fn reclaim(&self) -> Result<u64, StoreError> {
        Ok(self.database.reclaim().await?)
    }
}

fn read(row: &SqliteRow) -> Result<Stored, StoreError> {
    let document: String = row.try_get(0)?;
    let approval = serde_json::from_str(&document).map_err(|_| StoreError::Damaged {
        table: "approvals",
        column: "document_json",
    })?;
    Ok(Stored {
        approval,
        call_json: row.try_get(1)?,
    })
}
