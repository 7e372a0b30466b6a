//! Conversations with the messages that were appended to them.

use crate::history::Batch;
use agent_domain::message::{ChatMessage, Role};
use async_trait::async_trait;
use core_types::{Principal, Tenant, Timestamp};
use documents::{RequestStore, database::requests};
use run_log::Owners;
use serde_json::json;
use sql_store::{Session, Statement, Value};

use super::{AgentStore, NamedRequest, StoreError};

/// The method whose requests append messages to a conversation.
pub(crate) const APPEND: &str = "AppendMessages";

/// Reads the columns of [`StoredConversation`].
const SELECT: &str = "SELECT c.conversation_id, c.tenant, c.principal, c.created, \
                      (SELECT coalesce(max(batch), 0) FROM appended_messages a \
                      WHERE a.tenant = c.tenant AND a.conversation_id = c.conversation_id) FROM conversations c ";

/// The id, the tenant, the principal and the time of creation of a conversation, and its number of batches.
type StoredConversation = (String, String, Option<String>, i64, i64);

/// The number and the time of the batch of a message, its role, text, calls, the call that it is the result of, and its
/// reasoning.
type StoredMessage = (i64, i64, String, String, String, String, String);

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
        Ok(self.database.execute(begin(owner, id, now)).await?)
    }

    async fn conversation(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<ConversationRow>, StoreError> {
        let mut query = Statement::new(SELECT);
        query.push("WHERE c.tenant = ").push_bind(tenant.as_str());
        query.push(" AND c.conversation_id = ").push_bind(id);
        let row = self.database.reader().fetch_optional(query).await?;
        row.map(conversation_row).transpose()
    }

    async fn conversations(
        &self,
        owners: &Owners,
        before: Option<ConversationCursor<'_>>,
        limit: usize,
    ) -> Result<Vec<ConversationRow>, StoreError> {
        let mut query = Statement::new(SELECT);
        query.push("WHERE ");
        match owners {
            Owners::One(principal) => {
                let tenant = principal.tenant();
                query.push("c.tenant = ").push_bind(tenant.as_str());
                query
                    .push(" AND c.principal = ")
                    .push_bind(principal.as_str())
                    .push(" AND ");
            }
            Owners::Tenant(tenant) => {
                query.push("c.tenant = ").push_bind(tenant.as_str());
                query.push(" AND ");
            }
            // Retention goes over all tenants.
            Owners::All => {}
        }
        let (time, tenant, id) = match &before {
            Some((time, tenant, id)) => (time.unix_nanos(), tenant.as_str(), *id),
            None => (i64::MAX, "", ""),
        };
        query.push("(c.created, c.tenant, c.conversation_id) < (");
        query.push_list([time.into(), tenant.into(), Value::from(id)]);
        query
            .push(") ORDER BY c.created DESC, c.tenant DESC, c.conversation_id DESC LIMIT ")
            .push_bind(limit);
        let rows = self.database.reader().fetch_all(query).await?;
        rows.into_iter().map(conversation_row).collect()
    }

    async fn conversations_without_owner(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        let ids = Statement::new(
            "SELECT conversation_id FROM conversations WHERE tenant = 'default' AND principal IS NULL LIMIT $1",
        );
        let ids: Vec<(String,)> = self.database.reader().fetch_all(ids.bind(limit)).await?;
        Ok(ids.into_iter().map(|(id,)| id).collect())
    }

    async fn set_owner(&self, id: &str, owner: &Principal) -> Result<(), StoreError> {
        let set = Statement::new(
            "UPDATE conversations SET principal = $2 \
             WHERE tenant = 'default' AND conversation_id = $1 AND principal IS NULL",
        );
        let set = set.bind(id).bind(owner.as_str());
        Ok(self.database.execute(set).await?)
    }

    async fn last_change(&self, tenant: Tenant, id: &str) -> Result<Option<Timestamp>, StoreError> {
        let last = Statement::new(
            "SELECT max(created) FROM (SELECT created FROM appended_messages \
             WHERE tenant = $1 AND conversation_id = $2 \
             UNION ALL SELECT created FROM private_states WHERE tenant = $1 AND conversation_id = $2) AS changes",
        );
        let last = last.bind(tenant.as_str()).bind(id);
        let (last,): (Option<i64>,) = self.database.reader().fetch_one(last).await?;
        Ok(last.map(Timestamp::from_unix_nanos))
    }

    async fn delete_conversation(&self, tenant: Tenant, id: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        for statement in [
            "DELETE FROM appended_messages WHERE tenant = $1 AND conversation_id = $2",
            "DELETE FROM conversations WHERE tenant = $1 AND conversation_id = $2",
        ] {
            let delete = Statement::new(statement).bind(tenant.as_str()).bind(id);
            transaction.session().execute(delete).await?;
        }
        requests::forget(transaction.session(), tenant, APPEND, id).await?;
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
        let mut transaction = self.database.begin().await?;
        let mut session = transaction.session();
        let tenant = owner.tenant();
        session.execute(begin(owner, id, now)).await?;
        let batch = next_batch(&mut session, tenant, id).await?;
        let parts = parts.iter().flat_map(|part| {
            let times = std::iter::repeat(part.created.unix_nanos());
            times.zip(&part.messages)
        });
        for ((created, message), position) in parts.zip(0_i64..) {
            let append = Statement::new(
                "INSERT INTO appended_messages \
                 (tenant, conversation_id, batch, position, created, role, text, calls, result_of, reasoning) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            )
            .bind(tenant.as_str())
            .bind(id)
            .bind(batch)
            .bind(position)
            .bind(created)
            .bind(message.role.as_str())
            .bind(&message.text)
            .bind(json!(message.calls).to_string())
            .bind(json!(message.result_of).to_string())
            .bind(json!(message.reasoning).to_string());
            session.execute(append).await?;
        }
        if let Some((request, revision)) = request {
            let (request, revision) = (request.within(APPEND, id), revision.to_string());
            requests::note(session, tenant, &request, &revision, now).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn first_messages(&self, tenant: Tenant, id: &str) -> Result<u64, StoreError> {
        let count = Statement::new(
            "SELECT count(*) FROM appended_messages WHERE tenant = $1 AND conversation_id = $2 AND batch = 1",
        );
        let count = count.bind(tenant.as_str()).bind(id);
        let (count,): (i64,) = self.database.reader().fetch_one(count).await?;
        Ok(count.unsigned_abs())
    }

    async fn appended(&self, tenant: Tenant, id: &str) -> Result<Vec<Batch>, StoreError> {
        let rows = Statement::new(
            "SELECT batch, created, role, text, calls, result_of, reasoning FROM appended_messages \
             WHERE tenant = $1 AND conversation_id = $2 ORDER BY batch, position",
        );
        let rows = rows.bind(tenant.as_str()).bind(id);
        let rows: Vec<StoredMessage> = self.database.reader().fetch_all(rows).await?;
        let mut batches: Vec<Batch> = Vec::new();
        let mut current = None;
        for row in rows {
            let part = (row.0, row.1);
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

fn appended_message(
    (_, _, role, text, calls, result_of, reasoning): StoredMessage,
) -> Result<ChatMessage, StoreError> {
    let roles = [Role::System, Role::User, Role::Assistant, Role::Tool];
    let role = roles.into_iter().find(|known| known.as_str() == role);
    Ok(ChatMessage {
        calls: serde_json::from_str(&calls).map_err(|_| damaged("calls"))?,
        result_of: serde_json::from_str(&result_of).map_err(|_| damaged("result_of"))?,
        reasoning: serde_json::from_str(&reasoning).map_err(|_| damaged("reasoning"))?,
        ..ChatMessage::new(role.ok_or_else(|| damaged("role"))?, text)
    })
}

fn damaged(column: &'static str) -> StoreError {
    StoreError::Damaged {
        table: "appended_messages",
        column,
    }
}

fn begin(owner: &Principal, id: &str, now: Timestamp) -> Statement {
    Statement::new(
        "INSERT INTO conversations (tenant, conversation_id, principal, created) VALUES ($1, $2, $3, $4) \
         ON CONFLICT DO NOTHING",
    )
    .bind(owner.tenant().as_str())
    .bind(id)
    .bind(owner.as_str())
    .bind(now.unix_nanos())
}

/// Returns the number of the next batch of a conversation. Its row is written to lock it: another transaction that
/// appends to it at a server waits for the end of this one.
async fn next_batch(
    session: &mut Session<'_>,
    tenant: Tenant,
    id: &str,
) -> Result<i64, StoreError> {
    let lock = Statement::new(
        "UPDATE conversations SET created = created WHERE tenant = $1 AND conversation_id = $2",
    );
    session.execute(lock.bind(tenant.as_str()).bind(id)).await?;
    let next = Statement::new(
        "SELECT coalesce(max(batch), 0) + 1 FROM appended_messages WHERE tenant = $1 AND conversation_id = $2",
    );
    let (next,): (i64,) = session
        .fetch_one(next.bind(tenant.as_str()).bind(id))
        .await?;
    Ok(next)
}

fn conversation_row(
    (id, tenant, owner, created, batches): StoredConversation,
) -> Result<ConversationRow, StoreError> {
    let damaged = |column| StoreError::Damaged {
        table: "conversations",
        column,
    };
    let tenant = Tenant::new(&tenant).map_err(|_| damaged("tenant"))?;
    let owner = match owner {
        Some(owner) => Principal::new(&owner).map_err(|_| damaged("principal"))?,
        None => Principal::local_of(tenant),
    };
    if owner.tenant() != tenant {
        return Err(damaged("principal"));
    }
    Ok(ConversationRow {
        id,
        owner,
        created: Timestamp::from_unix_nanos(created),
        batches: batches.unsigned_abs(),
    })
}
