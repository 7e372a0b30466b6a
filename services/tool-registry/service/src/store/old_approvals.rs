//! Approvals that ended long ago.

use sqlx::Row;
use tool_domain::approval::Approval;

use super::{
    StoreError,
    approvals::{ApprovalStore, read},
};

impl ApprovalStore {
    /// Returns at most `limit` approvals that ended before a time, in nanoseconds since 1970, the oldest first,
    /// after a time of creation and an id, each with the conversation for whose later calls it stands; empty if
    /// for none. Those whose call has yet to be started again are not among them.
    pub(crate) async fn ended_before(
        &self,
        before: i64,
        after: (i64, &str),
        limit: usize,
    ) -> Result<Vec<(Approval, String)>, StoreError> {
        let rows = sqlx::query(
            "SELECT document_json, call_json, coalesce((SELECT r.conversation_id \
             FROM remembered_approvals r WHERE r.approval_id = a.approval_id), '') \
             FROM approvals a WHERE (created, approval_id) > (?1, ?2) AND created < ?3 AND ended < ?3 \
             AND NOT (state = 2 AND call_json <> '') ORDER BY created, approval_id LIMIT ?4",
        );
        let rows = rows
            .bind(after.0)
            .bind(after.1)
            .bind(before)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database().reader())
            .await?;
        let ended = rows
            .iter()
            .map(|row| Ok((read(row)?.approval, row.try_get(2)?)));
        ended.collect()
    }

    /// Returns at most `limit` approvals that wait although their time passed before `now`.
    pub(crate) async fn overdue(&self, now: i64, limit: usize) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query_scalar(
            "SELECT approval_id FROM approvals WHERE state = 1 AND expires <= ?1 LIMIT ?2",
        );
        let rows = rows
            .bind(now)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        Ok(rows.fetch_all(self.database().reader()).await?)
    }

    /// Deletes approvals, and what they let later calls do.
    pub(crate) async fn delete(&self, ids: &[String]) -> Result<(), StoreError> {
        let mut transaction = self.database().begin_write().await?;
        for id in ids {
            for statement in [
                "DELETE FROM remembered_approvals WHERE approval_id = ?1",
                "DELETE FROM approvals WHERE approval_id = ?1",
            ] {
                sqlx::query(statement)
                    .bind(id)
                    .execute(&mut *transaction)
                    .await?;
            }
        }
        Ok(transaction.commit().await?)
    }

    /// Returns free pages to the file system in one step. Returns the number of bytes.
    pub(crate) async fn reclaim(&self) -> Result<u64, StoreError> {
        Ok(self.database().reclaim().await?)
    }
}
