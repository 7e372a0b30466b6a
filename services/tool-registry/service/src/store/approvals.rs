//! Approvals on SQLite.

use sql_store::SqliteDatabase;
use sqlx::{Row, sqlite::SqliteRow};
use tool_domain::approval::{Approval, State};

use crate::store::StoreError;

/// Keeps approvals.
#[derive(Clone)]
pub(crate) struct ApprovalStore {
    database: SqliteDatabase,
}

/// A stored approval.
pub(crate) struct Stored {
    pub(crate) approval: Approval,
    /// What starts the call again after a restart; empty if its owner asks for it.
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
}

const COLUMNS: &str = "SELECT document_json, call_json FROM approvals";

impl ApprovalStore {
    pub(crate) fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }

    pub(super) fn database(&self) -> &SqliteDatabase {
        &self.database
    }

    /// Saves a new approval, or what became of it.
    pub(crate) async fn put(&self, approval: &Approval, call_json: &str) -> Result<(), StoreError> {
        let document = serde_json::to_string(approval).expect("an approval has text keys only");
        let statement = sqlx::query(
            "INSERT INTO approvals (approval_id, effect_id, state, conversation_id, run_id, created, \
             expires, document_json, call_json, ended) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
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
            .execute(self.database.writer())
            .await?;
        Ok(())
    }

    pub(crate) async fn get(&self, id: &str) -> Result<Option<Stored>, StoreError> {
        let statement = format!("{COLUMNS} WHERE approval_id = ?1");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(id);
        let row = row.fetch_optional(self.database.reader()).await?;
        row.map(|row| read(&row)).transpose()
    }

    /// Returns the approval of an effect that counts.
    pub(crate) async fn of_effect(&self, effect: &str) -> Result<Option<Stored>, StoreError> {
        let statement =
            format!("{COLUMNS} WHERE effect_id = ?1 AND effect_id <> '' AND state <> 5");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(effect);
        let row = row.fetch_optional(self.database.reader()).await?;
        row.map(|row| read(&row)).transpose()
    }

    /// Returns those whose call no owner asks for: it ended with its caller, or is to be started again.
    pub(crate) async fn unattended(&self) -> Result<Vec<Stored>, StoreError> {
        let statement = format!(
            "{COLUMNS} WHERE (state = 1 AND effect_id = '') OR (state IN (1, 2) AND call_json <> '')"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement));
        let rows = rows.fetch_all(self.database.reader()).await?;
        rows.iter().map(read).collect()
    }

    pub(crate) async fn forget_call(&self, id: &str) -> Result<(), StoreError> {
        let statement = sqlx::query("UPDATE approvals SET call_json = '' WHERE approval_id = ?1");
        statement.bind(id).execute(self.database.writer()).await?;
        Ok(())
    }

    /// Returns how many wait.
    pub(crate) async fn pending(&self) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar("SELECT count(*) FROM approvals WHERE state = 1");
        Ok(count.fetch_one(self.database.reader()).await?)
    }

    /// Returns at most `limit` approvals, the newest first, after a place.
    pub(crate) async fn list(
        &self,
        filter: &ApprovalFilter,
        after: Option<(i64, &str)>,
        limit: usize,
    ) -> Result<Vec<Stored>, StoreError> {
        let statement = format!(
            "{COLUMNS} WHERE (?1 = 0 OR state = ?1) AND (?2 = '' OR conversation_id = ?2) \
             AND (?3 = '' OR run_id = ?3) AND (created, approval_id) < (?4, ?5) \
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
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read).collect()
    }

    pub(crate) async fn remember(
        &self,
        conversation: &str,
        digest: &str,
        approval: &str,
    ) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO remembered_approvals (conversation_id, digest, approval_id) \
             VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        );
        let statement = statement.bind(conversation).bind(digest).bind(approval);
        statement.execute(self.database.writer()).await?;
        Ok(())
    }

    /// Returns the approval that stands for later calls.
    pub(crate) async fn remembered(
        &self,
        conversation: &str,
        digest: &str,
    ) -> Result<Option<String>, StoreError> {
        let statement = sqlx::query_scalar(
            "SELECT approval_id FROM remembered_approvals WHERE conversation_id = ?1 AND digest = ?2",
        );
        let statement = statement.bind(conversation).bind(digest);
        Ok(statement.fetch_optional(self.database.reader()).await?)
    }
}

pub(super) fn read(row: &SqliteRow) -> Result<Stored, StoreError> {
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
