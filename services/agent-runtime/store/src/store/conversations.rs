//! Conversations with the messages that were appended to them.

use crate::history::Batch;
use agent_domain::message::{ChatMessage, Role};
use async_trait::async_trait;
use core_types::{Principal, Tenant, Timestamp};
use documents::{RequestStore, database::requests};
use run_log::Owners;
use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};

use super::{AgentStore, NamedRequest, StoreError};

/// The method whose requests append messages to a conversation.
pub(crate) const APPEND: &str = "AppendMessages";

/// Reads the columns of [`conversation_row`].
const SELECT: &str = "SELECT c.conversation_id, c.tenant, c.principal, c.created, \
                      (SELECT coalesce(max(batch), 0) FROM appended_messages a \
                      WHERE a.tenant = c.tenant AND a.conversation_id = c.conversation_id) FROM conversations c";

/// A stored conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationRow {
    /// The id, unique within the tenant of the owner.
    pub id: String,
    /// The principal that began it.
    pub owner: Principal,
    /// The time at which it began.
    pub created: Timestamp,
    /// The number of batches of messages that were appended.
    pub batches: u64,
}

/// The last conversation of a page: its creation, its tenant and its id.
pub type ConversationCursor<'a> = (Timestamp, Tenant, &'a str);

/// Stores conversations with the messages that were appended to them.
#[async_trait]
pub trait ConversationStore: RequestStore {
    /// Begins a conversation of a principal, unless one of its tenant has the id.
    ///
    /// # Errors
    /// A database that does not work.
    async fn begin_conversation(
        &self,
        owner: &Principal,
        id: &str,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Returns a conversation.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    async fn conversation(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<ConversationRow>, StoreError>;

    /// Returns at most `limit` conversations of the owners before `before`, the last one of the previous page, the newest
    /// first.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    async fn conversations(
        &self,
        owners: &Owners,
        before: Option<ConversationCursor<'_>>,
        limit: usize,
    ) -> Result<Vec<ConversationRow>, StoreError>;

    /// Returns at most `limit` conversations of an earlier version, whose owners are not known, by their ids.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    async fn conversations_without_owner(&self, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Stores the owner of a conversation of an earlier version, unless it is known. These are in the tenant `default`.
    ///
    /// # Errors
    /// A database that does not work.
    async fn set_owner(&self, id: &str, owner: &Principal) -> Result<(), StoreError>;

    /// Returns the last time at which messages were appended to a conversation or a state of it was changed.
    ///
    /// # Errors
    /// A database that does not work.
    async fn last_change(&self, tenant: Tenant, id: &str) -> Result<Option<Timestamp>, StoreError>;

    /// Deletes a conversation and the messages appended to it.
    ///
    /// # Errors
    /// A database that does not work.
    async fn delete_conversation(&self, tenant: Tenant, id: &str) -> Result<(), StoreError>;

    /// Appends messages to a conversation, which begins now as one of `owner` unless its tenant has one of the id, as
    /// one change of it, and stores the request with the new revision. The messages may have earlier times.
    ///
    /// # Errors
    /// A database that does not work.
    async fn append(
        &self,
        owner: &Principal,
        id: &str,
        now: Timestamp,
        parts: &[Batch],
        request: Option<(&NamedRequest, u64)>,
    ) -> Result<(), StoreError>;

    /// Returns the number of messages that a conversation began with.
    ///
    /// # Errors
    /// A database that does not work.
    async fn first_messages(&self, tenant: Tenant, id: &str) -> Result<u64, StoreError>;

    /// Returns the batches that were appended to a conversation, the oldest first.
    ///
    /// # Errors
    /// A database that does not work, or a damaged row.
    async fn appended(&self, tenant: Tenant, id: &str) -> Result<Vec<Batch>, StoreError>;

    /// Returns free pages to the file system in one step. Returns the number of bytes; zero if few
    /// are free.
    ///
    /// # Errors
    /// A database that does not work.
    async fn reclaim(&self) -> Result<u64, StoreError>;
}

#[async_trait]
impl ConversationStore for AgentStore {
    async fn begin_conversation(
        &self,
        owner: &Principal,
        id: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.conversation(owner.tenant(), id).await?.is_some() {
            return Ok(());
        }
        let mut transaction = self.database.begin_write().await?;
        begin(&mut transaction, owner, id, now).await?;
        Ok(transaction.commit().await?)
    }

    async fn conversation(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<ConversationRow>, StoreError> {
        let query = format!("{SELECT} WHERE c.tenant = ?1 AND c.conversation_id = ?2");
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(tenant.as_str())
            .bind(id)
            .fetch_optional(self.database.reader())
            .await?;
        row.as_ref().map(conversation_row).transpose()
    }

    async fn conversations(
        &self,
        owners: &Owners,
        before: Option<ConversationCursor<'_>>,
        limit: usize,
    ) -> Result<Vec<ConversationRow>, StoreError> {
        let (time, tenant, id) = match &before {
            Some((time, tenant, id)) => (time.unix_nanos(), tenant.as_str(), *id),
            None => (i64::MAX, "", ""),
        };
        let (condition, of) = match owners {
            Owners::One(principal) => {
                let of = (principal.tenant(), principal.as_str());
                ("c.tenant = ?4 AND c.principal = ?5 AND", of)
            }
            Owners::Tenant(tenant) => ("c.tenant = ?4 AND ?5 = ?5 AND", (*tenant, "")),
            // Retention goes over all tenants.
            Owners::All => ("?4 = ?4 AND ?5 = ?5 AND", (Tenant::DEFAULT, "")),
        };
        let query = format!(
            "{SELECT} WHERE {condition} (c.created, c.tenant, c.conversation_id) < (?1, ?2, ?3) \
             ORDER BY c.created DESC, c.tenant DESC, c.conversation_id DESC LIMIT ?6"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(time)
            .bind(tenant)
            .bind(id)
            .bind(of.0.as_str())
            .bind(of.1)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(conversation_row).collect()
    }

    async fn conversations_without_owner(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        let ids = sqlx::query_scalar(
            "SELECT conversation_id FROM conversations WHERE tenant = 'default' AND principal IS NULL LIMIT ?1",
        );
        let ids = ids.bind(i64::try_from(limit).unwrap_or(i64::MAX));
        Ok(ids.fetch_all(self.database.reader()).await?)
    }

    async fn set_owner(&self, id: &str, owner: &Principal) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        sqlx::query(
            "UPDATE conversations SET principal = ?2 \
             WHERE tenant = 'default' AND conversation_id = ?1 AND principal IS NULL",
        )
        .bind(id)
        .bind(owner.as_str())
        .execute(&mut *transaction)
        .await?;
        Ok(transaction.commit().await?)
    }

    async fn last_change(&self, tenant: Tenant, id: &str) -> Result<Option<Timestamp>, StoreError> {
        let last: Option<i64> = sqlx::query_scalar(
            "SELECT max(created) FROM (SELECT created FROM appended_messages \
             WHERE tenant = ?1 AND conversation_id = ?2 \
             UNION ALL SELECT created FROM private_states WHERE tenant = ?1 AND conversation_id = ?2)",
        )
        .bind(tenant.as_str())
        .bind(id)
        .fetch_one(self.database.reader())
        .await?;
        Ok(last.map(Timestamp::from_unix_nanos))
    }

    async fn delete_conversation(&self, tenant: Tenant, id: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for statement in [
            "DELETE FROM appended_messages WHERE tenant = ?1 AND conversation_id = ?2",
            "DELETE FROM conversations WHERE tenant = ?1 AND conversation_id = ?2",
        ] {
            sqlx::query(statement)
                .bind(tenant.as_str())
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        requests::forget(&mut *transaction, tenant, APPEND, id).await?;
        Ok(transaction.commit().await?)
    }

    async fn append(
        &self,
        owner: &Principal,
        id: &str,
        now: Timestamp,
        parts: &[Batch],
        request: Option<(&NamedRequest, u64)>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let tenant = owner.tenant();
        begin(&mut transaction, owner, id, now).await?;
        let last: i64 = sqlx::query_scalar(
            "SELECT coalesce(max(batch), 0) FROM appended_messages WHERE tenant = ?1 AND conversation_id = ?2",
        )
        .bind(tenant.as_str())
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
                 (tenant, conversation_id, batch, position, created, role, text, calls, result_of, reasoning) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )
            .bind(tenant.as_str())
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
            requests::note(&mut *transaction, tenant, &request, &revision, now).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn first_messages(&self, tenant: Tenant, id: &str) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM appended_messages WHERE tenant = ?1 AND conversation_id = ?2 AND batch = 1",
        )
        .bind(tenant.as_str())
        .bind(id)
        .fetch_one(self.database.reader())
        .await?;
        Ok(count.unsigned_abs())
    }

    async fn appended(&self, tenant: Tenant, id: &str) -> Result<Vec<Batch>, StoreError> {
        let rows = sqlx::query(
            "SELECT batch, created, role, text, calls, result_of, reasoning FROM appended_messages \
             WHERE tenant = ?1 AND conversation_id = ?2 ORDER BY batch, position",
        );
        let rows = rows.bind(tenant.as_str()).bind(id);
        let rows = rows.fetch_all(self.database.reader()).await?;
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
    owner: &Principal,
    id: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO conversations (tenant, conversation_id, principal, created) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT DO NOTHING",
    )
    .bind(owner.tenant().as_str())
    .bind(id)
    .bind(owner.as_str())
    .bind(now.unix_nanos())
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

fn conversation_row(row: &SqliteRow) -> Result<ConversationRow, StoreError> {
    let damaged = |column| StoreError::Damaged {
        table: "conversations",
        column,
    };
    let (tenant, owner): (&str, Option<&str>) = (row.try_get(1)?, row.try_get(2)?);
    let tenant = Tenant::new(tenant).map_err(|_| damaged("tenant"))?;
    let owner = match owner {
        Some(owner) => Principal::new(owner).map_err(|_| damaged("principal"))?,
        None => Principal::local_of(tenant),
    };
    if owner.tenant() != tenant {
        return Err(damaged("principal"));
    }
    let batches: i64 = row.try_get(4)?;
    Ok(ConversationRow {
        id: row.try_get(0)?,
        owner,
        created: Timestamp::from_unix_nanos(row.try_get(3)?),
        batches: batches.unsigned_abs(),
    })
}
