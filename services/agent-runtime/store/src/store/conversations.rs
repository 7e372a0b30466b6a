//! Conversations with the messages that were appended to them.

use crate::history::Batch;
use agent_domain::message::{ChatMessage, Role};
use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use documents::{RequestStore, sqlite::requests};
use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};

use super::{AgentStore, NamedRequest, StoreError};

/// The method whose requests append messages to a conversation.
pub(crate) const APPEND: &str = "AppendMessages";

/// A stored conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationRow {
    /// The id.
    pub id: String,
    /// The time at which it began.
    pub created: Timestamp,
    /// The number of batches of messages that were appended.
    pub batches: u64,
}

/// Stores conversations with the messages that were appended to them.
#[async_trait]
pub trait ConversationStore: RequestStore {
    /// Begins a conversation, unless it has begun.
    ///
    /// # Errors
    /// A database that does not work.
    async fn begin_conversation(&self, id: &str, now: Timestamp) -> Result<(), StoreError>;

    /// Returns a conversation.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    async fn conversation(&self, id: &str) -> Result<Option<ConversationRow>, StoreError>;

    /// Returns at most `limit` conversations before `before`, the newest first; `before` is the
    /// time of creation and the id of the last one of the previous page.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    async fn conversations(
        &self,
        before: Option<(Timestamp, &str)>,
        limit: usize,
    ) -> Result<Vec<ConversationRow>, StoreError>;

    /// Returns the last time at which messages were appended to a conversation or a state of it was changed.
    ///
    /// # Errors
    /// A database that does not work.
    async fn last_change(&self, id: &str) -> Result<Option<Timestamp>, StoreError>;

    /// Deletes a conversation and the messages appended to it.
    ///
    /// # Errors
    /// A database that does not work.
    async fn delete_conversation(&self, id: &str) -> Result<(), StoreError>;

    /// Appends messages to a conversation, which begins now unless it has begun, as one change of it, and
    /// stores the request with the new revision. The messages may have earlier times.
    ///
    /// # Errors
    /// A database that does not work.
    async fn append(
        &self,
        id: &str,
        now: Timestamp,
        parts: &[Batch],
        request: Option<(&NamedRequest, u64)>,
    ) -> Result<(), StoreError>;

    /// Returns the number of messages that a conversation began with.
    ///
    /// # Errors
    /// A database that does not work.
    async fn first_messages(&self, id: &str) -> Result<u64, StoreError>;

    /// Returns the batches that were appended to a conversation, the oldest first.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    async fn appended(&self, id: &str) -> Result<Vec<Batch>, StoreError>;

    /// Returns free pages to the file system in one step. Returns the number of bytes; zero if few
    /// are free.
    ///
    /// # Errors
    /// A database that does not work.
    async fn reclaim(&self) -> Result<u64, StoreError>;
}

#[async_trait]
impl ConversationStore for AgentStore {
    async fn begin_conversation(&self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        if self.conversation(id).await?.is_some() {
            return Ok(());
        }
        let mut transaction = self.database.begin_write().await?;
        begin(&mut transaction, id, now).await?;
        Ok(transaction.commit().await?)
    }

    async fn conversation(&self, id: &str) -> Result<Option<ConversationRow>, StoreError> {
        let row = sqlx::query(
            "SELECT conversation_id, created, (SELECT coalesce(max(batch), 0) \
             FROM appended_messages a WHERE a.conversation_id = c.conversation_id) \
             FROM conversations c WHERE conversation_id = ?1",
        );
        let row = row.bind(id).fetch_optional(self.database.reader()).await?;
        row.as_ref().map(conversation_row).transpose()
    }

    async fn conversations(
        &self,
        before: Option<(Timestamp, &str)>,
        limit: usize,
    ) -> Result<Vec<ConversationRow>, StoreError> {
        let (time, id) = before.map_or((i64::MAX, ""), |(time, id)| (time.unix_nanos(), id));
        let rows = sqlx::query(
            "SELECT conversation_id, created, (SELECT coalesce(max(batch), 0) \
             FROM appended_messages a WHERE a.conversation_id = c.conversation_id) \
             FROM conversations c WHERE (created, conversation_id) < (?1, ?2) \
             ORDER BY created DESC, conversation_id DESC LIMIT ?3",
        );
        let rows = rows
            .bind(time)
            .bind(id)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(conversation_row).collect()
    }

    async fn last_change(&self, id: &str) -> Result<Option<Timestamp>, StoreError> {
        let last: Option<i64> = sqlx::query_scalar(
            "SELECT max(created) FROM (SELECT created FROM appended_messages WHERE conversation_id = ?1 \
             UNION ALL SELECT created FROM private_states WHERE conversation_id = ?1)",
        )
        .bind(id)
        .fetch_one(self.database.reader())
        .await?;
        Ok(last.map(Timestamp::from_unix_nanos))
    }

    async fn delete_conversation(&self, id: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for statement in [
            "DELETE FROM appended_messages WHERE conversation_id = ?1",
            "DELETE FROM conversations WHERE conversation_id = ?1",
        ] {
            sqlx::query(statement)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        requests::forget(&mut transaction, Tenant::DEFAULT, APPEND, id).await?;
        Ok(transaction.commit().await?)
    }

    async fn append(
        &self,
        id: &str,
        now: Timestamp,
        parts: &[Batch],
        request: Option<(&NamedRequest, u64)>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        begin(&mut transaction, id, now).await?;
        let last: i64 = sqlx::query_scalar(
            "SELECT coalesce(max(batch), 0) FROM appended_messages WHERE conversation_id = ?1",
        )
        .bind(id)
        .fetch_one(&mut *transaction)
        .await?;
        let parts = parts.iter().flat_map(|part| {
            let times = std::iter::repeat(part.created.unix_nanos());
            times.zip(&part.messages)
        });
        for ((created, message), position) in parts.zip(0_i64..) {
            sqlx::query(
                "INSERT INTO appended_messages \
                 (conversation_id, batch, position, created, role, text, calls, result_of, reasoning) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )
            .bind(id)
            .bind(last + 1)
            .bind(position)
            .bind(created)
            .bind(message.role.as_str())
            .bind(&message.text)
            .bind(json!(message.calls).to_string())
            .bind(json!(message.result_of).to_string())
            .bind(json!(message.reasoning).to_string())
            .execute(&mut *transaction)
            .await?;
        }
        if let Some((request, revision)) = request {
            let (request, revision) = (request.within(APPEND, id), revision.to_string());
            requests::note(&mut transaction, Tenant::DEFAULT, &request, &revision, now).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn first_messages(&self, id: &str) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM appended_messages WHERE conversation_id = ?1 AND batch = 1",
        )
        .bind(id)
        .fetch_one(self.database.reader())
        .await?;
        Ok(count.unsigned_abs())
    }

    async fn appended(&self, id: &str) -> Result<Vec<Batch>, StoreError> {
        let rows = sqlx::query(
            "SELECT batch, created, role, text, calls, result_of, reasoning FROM appended_messages \
             WHERE conversation_id = ?1 ORDER BY batch, position",
        );
        let rows = rows.bind(id).fetch_all(self.database.reader()).await?;
        let mut batches: Vec<Batch> = Vec::new();
        let mut current = None;
        for row in &rows {
            let part: (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let message = appended_message(row)?;
            match batches.last_mut().filter(|_| current == Some(part)) {
                Some(batch) => batch.messages.push(message),
                None => batches.push(Batch {
                    created: Timestamp::from_unix_nanos(part.1),
                    messages: vec![message],
                }),
            }
            current = Some(part);
        }
        Ok(batches)
    }

    async fn reclaim(&self) -> Result<u64, StoreError> {
        Ok(self.database.reclaim().await?)
    }
}

fn appended_message(row: &SqliteRow) -> Result<ChatMessage, StoreError> {
    let (role, text): (&str, &str) = (row.try_get(2)?, row.try_get(3)?);
    let (calls, result_of): (&str, &str) = (row.try_get(4)?, row.try_get(5)?);
    let reasoning: &str = row.try_get(6)?;
    let roles = [Role::System, Role::User, Role::Assistant, Role::Tool];
    let role = roles.into_iter().find(|known| known.as_str() == role);
    Ok(ChatMessage {
        calls: serde_json::from_str(calls).map_err(|_| damaged("calls"))?,
        result_of: serde_json::from_str(result_of).map_err(|_| damaged("result_of"))?,
        reasoning: serde_json::from_str(reasoning).map_err(|_| damaged("reasoning"))?,
        ..ChatMessage::new(role.ok_or_else(|| damaged("role"))?, text)
    })
}

fn damaged(column: &'static str) -> StoreError {
    StoreError::Damaged {
        table: "appended_messages",
        column,
    }
}

async fn begin(
    transaction: &mut Transaction<'static, Sqlite>,
    id: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO conversations (conversation_id, created) VALUES (?1, ?2) \
         ON CONFLICT DO NOTHING",
    )
    .bind(id)
    .bind(now.unix_nanos())
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

fn conversation_row(row: &SqliteRow) -> Result<ConversationRow, StoreError> {
    let batches: i64 = row.try_get(2)?;
    Ok(ConversationRow {
        id: row.try_get(0)?,
        created: Timestamp::from_unix_nanos(row.try_get(1)?),
        batches: batches.unsigned_abs(),
    })
}
