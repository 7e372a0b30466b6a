//! Approvals.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use core_types::{Principal, Tenant};
use sql_store::{Database, Statement, TenantTable};
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

const COLUMNS: &str = "SELECT document_json, call_json FROM approvals WHERE ";

/// The tables, for the removal of a tenant.
const TABLES: [TenantTable; 2] = [
    TenantTable {
        name: "remembered_approvals",
        key: "conversation_id, digest",
    },
    TenantTable {
        name: "approvals",
        key: "approval_id",
    },
];

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

#[async_trait]
impl ApprovalStore for Database {
    async fn put(&self, approval: &Approval, call_json: &str) -> Result<(), StoreError> {
        let document = serde_json::to_string(approval).expect("an approval has text keys only");
        let statement = Statement::new(
            "INSERT INTO approvals (approval_id, effect_id, state, conversation_id, run_id, created, \
             expires, document_json, call_json, ended, tenant, principal) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
             ON CONFLICT (approval_id) DO UPDATE SET state = excluded.state, ended = excluded.ended, \
             document_json = excluded.document_json",
        );
        let statement = statement
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
            .bind(approval.principal.as_str());
        Ok(self.execute(statement).await?)
    }

    async fn get(&self, tenant: Tenant, id: &str) -> Result<Option<Stored>, StoreError> {
        let mut statement = Statement::new(COLUMNS);
        statement.push("tenant = ").push_bind(tenant.as_str());
        statement.push(" AND approval_id = ").push_bind(id);
        let row = self.reader().fetch_optional(statement).await?;
        row.map(read).transpose()
    }

    async fn of_effect(&self, tenant: Tenant, effect: &str) -> Result<Option<Stored>, StoreError> {
        let mut statement = Statement::new(COLUMNS);
        statement.push("tenant = ").push_bind(tenant.as_str());
        statement.push(" AND effect_id = ").push_bind(effect);
        statement.push(" AND effect_id <> '' AND state <> 5");
        let row = self.reader().fetch_optional(statement).await?;
        row.map(read).transpose()
    }

    async fn unattended(&self) -> Result<Vec<Stored>, StoreError> {
        let mut statement = Statement::new(COLUMNS);
        statement.push("(state = 1 AND effect_id = '') OR (state IN (1, 2) AND call_json <> '')");
        let rows = self.reader().fetch_all(statement).await?;
        rows.into_iter().map(read).collect()
    }

    async fn forget_call(&self, tenant: Tenant, id: &str) -> Result<(), StoreError> {
        let statement = Statement::new(
            "UPDATE approvals SET call_json = '' WHERE tenant = $1 AND approval_id = $2",
        );
        Ok(self
            .execute(statement.bind(tenant.as_str()).bind(id))
            .await?)
    }

    async fn pending(&self, tenant: Tenant) -> Result<i64, StoreError> {
        let count =
            Statement::new("SELECT count(*) FROM approvals WHERE tenant = $1 AND state = 1");
        let (count,) = self.reader().fetch_one(count.bind(tenant.as_str())).await?;
        Ok(count)
    }

    async fn list(
        &self,
        tenant: Tenant,
        filter: &ApprovalFilter,
        after: Option<(i64, &str)>,
        limit: usize,
    ) -> Result<Vec<Stored>, StoreError> {
        let mut statement = Statement::new(COLUMNS);
        statement.push("tenant = ").push_bind(tenant.as_str());
        if let Some(state) = filter.state {
            statement.push(" AND state = ").push_bind(state as i32);
        }
        for (column, value) in [
            (" AND conversation_id = ", &filter.conversation),
            (" AND run_id = ", &filter.run),
        ] {
            if !value.is_empty() {
                statement.push(column).push_bind(value);
            }
        }
        if let Some(principal) = &filter.principal {
            statement.push(" AND principal = ");
            statement.push_bind(principal.as_str());
        }
        if let Some((created, id)) = after {
            statement.push(" AND (created, approval_id) < (");
            statement.push_bind(created).push(", ").push_bind(id);
            statement.push(")");
        }
        statement.push(" ORDER BY created DESC, approval_id DESC LIMIT ");
        statement.push_bind(limit);
        let rows = self.reader().fetch_all(statement).await?;
        rows.into_iter().map(read).collect()
    }

    async fn remember(
        &self,
        tenant: Tenant,
        conversation: &str,
        digest: &str,
        approval: &str,
    ) -> Result<(), StoreError> {
        let statement = Statement::new(
            "INSERT INTO remembered_approvals (tenant, conversation_id, digest, approval_id) \
             VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        );
        let statement = statement.bind(tenant.as_str()).bind(conversation);
        Ok(self.execute(statement.bind(digest).bind(approval)).await?)
    }

    async fn remembered(
        &self,
        tenant: Tenant,
        conversation: &str,
        digest: &str,
    ) -> Result<Option<String>, StoreError> {
        let statement = Statement::new(
            "SELECT approval_id FROM remembered_approvals \
             WHERE tenant = $1 AND conversation_id = $2 AND digest = $3",
        );
        let statement = statement.bind(tenant.as_str()).bind(conversation);
        let row = self.reader().fetch_optional(statement.bind(digest)).await?;
        Ok(row.map(|(approval,)| approval))
    }

    async fn ended_before(
        &self,
        before: i64,
        after: (i64, &str),
        limit: usize,
    ) -> Result<Vec<(Approval, String)>, StoreError> {
        let statement = Statement::new(
            "SELECT document_json, call_json, coalesce((SELECT min(r.conversation_id) \
             FROM remembered_approvals r WHERE r.tenant = a.tenant AND r.approval_id = a.approval_id), '') \
             FROM approvals a WHERE (created, approval_id) > ($1, $2) AND created < $3 AND ended < $3 \
             AND NOT (state = 2 AND call_json <> '') ORDER BY created, approval_id LIMIT $4",
        );
        let statement = statement.bind(after.0).bind(after.1);
        let statement = statement.bind(before).bind(limit);
        let rows = self.reader().fetch_all(statement).await?;
        let ended = rows.into_iter().map(|(document, call, conversation)| {
            let stored = read((document, call))?;
            Ok((stored.approval, conversation))
        });
        ended.collect()
    }

    async fn overdue(&self, now: i64, limit: usize) -> Result<Vec<Stored>, StoreError> {
        let mut statement = Statement::new(COLUMNS);
        statement.push("state = 1 AND expires <= ").push_bind(now);
        statement.push(" LIMIT ").push_bind(limit);
        let rows = self.reader().fetch_all(statement).await?;
        rows.into_iter().map(read).collect()
    }

    async fn delete(&self, tenant: Tenant, ids: &[String]) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for id in ids {
            for statement in [
                "DELETE FROM remembered_approvals WHERE tenant = $1 AND approval_id = $2",
                "DELETE FROM approvals WHERE tenant = $1 AND approval_id = $2",
            ] {
                let statement = Statement::new(statement).bind(tenant.as_str()).bind(id);
                transaction.session().execute(statement).await?;
            }
        }
        Ok(transaction.commit().await?)
    }

    async fn remove_of(&self, tenant: Tenant, limit: u32) -> Result<u64, StoreError> {
        sql_store::remove_rows(self, &TABLES, tenant, limit).await
    }

    async fn reclaim(&self) -> Result<u64, StoreError> {
        Ok(Database::reclaim(self).await?)
    }
}

fn read((document, call_json): (String, String)) -> Result<Stored, StoreError> {
    let approval = serde_json::from_str(&document).map_err(|_| StoreError::Damaged {
        table: "approvals",
        column: "document_json",
    })?;
    Ok(Stored {
        approval,
        call_json,
    })
}
