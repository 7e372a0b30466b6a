//! Versions of private states and world states.

use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use documents::{Request, RequestStore, database::requests};
use run_log::Hash;
use sql_store::Statement;

use super::{AgentStore, NamedRequest, StoreError};

/// The most versions of a state that are kept.
const KEPT_VERSIONS: i64 = 1_000;
/// The time for which a version other than the newest is kept, in nanoseconds.
const KEPT_NANOS: i64 = 30 * 86_400 * 1_000_000_000;

/// Reads the columns of [`StoredState`] of a state.
const SELECT: &str = "SELECT version, created, state, paths, previous, request_id FROM private_states \
                      WHERE tenant = $1 AND conversation_id = $2 AND profile_id = $3 ";

/// A row of [`SELECT`].
type StoredState = (i64, i64, String, String, Option<String>, String);

/// The method whose requests change the states of a conversation.
const UPDATE: &str = "UpdateState";

/// The owner of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateOwner {
    /// The tenant of the conversation.
    pub tenant: Tenant,
    /// The conversation; the run of the scene for a world state.
    pub conversation_id: String,
    /// The agent; empty for a world state.
    pub profile_id: String,
}

impl StateOwner {
    /// The private state of an agent in a conversation.
    pub fn agent(tenant: Tenant, conversation_id: &str, profile_id: &str) -> Self {
        Self {
            tenant,
            conversation_id: conversation_id.to_owned(),
            profile_id: profile_id.to_owned(),
        }
    }

    /// The goals of an agent in a conversation, which are stored like its state. No profile has an
    /// id with a control character.
    pub fn goals(tenant: Tenant, conversation_id: &str, profile_id: &str) -> Self {
        Self::agent(tenant, conversation_id, &format!("{profile_id}\u{1f}goals"))
    }

    /// The world state of a scene, by its run.
    pub fn world(tenant: Tenant, run_id: &str) -> Self {
        Self::agent(tenant, run_id, "")
    }
}

impl StateOwner {
    /// Makes a statement whose first three arguments are this owner.
    fn statement(&self, text: &'static str) -> Statement {
        Statement::new(text)
            .bind(self.tenant.as_str())
            .bind(&self.conversation_id)
            .bind(&self.profile_id)
    }

    /// Names a request that changes this state among the requests of its conversation.
    pub fn named(&self, request_id: &str, body: Hash) -> NamedRequest {
        let id = format!("{}\u{1f}{request_id}", self.profile_id);
        NamedRequest { id, body }
    }

    /// Returns a request of [`StateOwner::named`] in the form of the store.
    pub fn request<'a>(&'a self, named: &'a NamedRequest) -> Request<'a> {
        named.within(UPDATE, &self.conversation_id)
    }
}

/// A version of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    /// The number, from 1.
    pub version: u64,
    /// The time of the change.
    pub created: Timestamp,
    /// The state as JSON.
    pub state: String,
    /// The changed paths as a JSON array.
    pub paths: String,
    /// The previous value at the last of these paths, as JSON.
    pub previous: Option<String>,
    /// The request that made it; empty for none.
    pub request_id: String,
}

/// Stores the versions of states.
#[async_trait]
pub trait StateStore: RequestStore {
    /// Returns a version of a state, the newest if none is named.
    ///
    /// # Errors
    /// A database that does not work.
    async fn state(
        &self,
        owner: &StateOwner,
        version: Option<u64>,
    ) -> Result<Option<StateRow>, StoreError>;

    /// Returns the version that a state had at a time.
    ///
    /// # Errors
    /// A database that does not work.
    async fn state_at(
        &self,
        owner: &StateOwner,
        time: Timestamp,
    ) -> Result<Option<StateRow>, StoreError>;

    /// Returns at most `limit` versions of a state before `before`, the newest first.
    ///
    /// # Errors
    /// A database that does not work.
    async fn state_versions(
        &self,
        owner: &StateOwner,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StateRow>, StoreError>;

    /// Stores a version of a state with its request, and deletes versions that are no longer kept.
    /// Nothing is stored, and false returned, if the version exists.
    ///
    /// # Errors
    /// A database that does not work.
    async fn put_state(
        &self,
        owner: &StateOwner,
        row: &StateRow,
        request: Option<&NamedRequest>,
    ) -> Result<bool, StoreError>;

    /// Deletes every state of a conversation, but no world state, even if it has the name of one.
    ///
    /// # Errors
    /// A database that does not work.
    async fn delete_states(&self, tenant: Tenant, conversation_id: &str) -> Result<(), StoreError>;

    /// Deletes the world state of a scene by its run.
    ///
    /// # Errors
    /// A database that does not work.
    async fn delete_world(&self, tenant: Tenant, run_id: &str) -> Result<(), StoreError>;
}

#[async_trait]
impl StateStore for AgentStore {
    async fn state(
        &self,
        owner: &StateOwner,
        version: Option<u64>,
    ) -> Result<Option<StateRow>, StoreError> {
        let mut query = owner.statement(SELECT);
        if let Some(version) = version {
            query.push("AND version = ").push_bind(number(version));
        }
        query.push(" ORDER BY version DESC LIMIT 1");
        let row: Option<StoredState> = self.database.reader().fetch_optional(query).await?;
        Ok(row.map(state_row))
    }

    async fn state_at(
        &self,
        owner: &StateOwner,
        time: Timestamp,
    ) -> Result<Option<StateRow>, StoreError> {
        let mut query = owner.statement(SELECT);
        query.push("AND created <= ").push_bind(time.unix_nanos());
        query.push(" ORDER BY version DESC LIMIT 1");
        let row: Option<StoredState> = self.database.reader().fetch_optional(query).await?;
        Ok(row.map(state_row))
    }

    async fn state_versions(
        &self,
        owner: &StateOwner,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StateRow>, StoreError> {
        let mut query = owner.statement(SELECT);
        let before = before.map_or(i64::MAX, number);
        query.push("AND version < ").push_bind(before);
        query.push(" ORDER BY version DESC LIMIT ").push_bind(limit);
        let rows: Vec<StoredState> = self.database.reader().fetch_all(query).await?;
        Ok(rows.into_iter().map(state_row).collect())
    }

    async fn put_state(
        &self,
        owner: &StateOwner,
        row: &StateRow,
        request: Option<&NamedRequest>,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let mut session = transaction.session();
        let insert = owner
            .statement(
                "INSERT INTO private_states \
                 (tenant, conversation_id, profile_id, version, created, state, paths, previous, request_id) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
            )
            .bind(number(row.version))
            .bind(row.created.unix_nanos())
            .bind(&row.state)
            .bind(&row.paths)
            .bind(row.previous.clone())
            .bind(&row.request_id);
        if session.execute(insert).await? == 0 {
            return Ok(false);
        }
        let delete = owner
            .statement(
                "DELETE FROM private_states WHERE tenant = $1 AND conversation_id = $2 AND profile_id = $3 \
                 AND (version <= $4 OR (created < $5 AND version < $6))",
            )
            .bind(number(row.version).saturating_sub(KEPT_VERSIONS))
            .bind(row.created.unix_nanos().saturating_sub(KEPT_NANOS))
            .bind(number(row.version));
        session.execute(delete).await?;
        if let Some(request) = request {
            let (tenant, request) = (owner.tenant, owner.request(request));
            let version = row.version.to_string();
            requests::note(session, tenant, &request, &version, row.created).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    async fn delete_states(&self, tenant: Tenant, conversation_id: &str) -> Result<(), StoreError> {
        let delete = "DELETE FROM private_states WHERE tenant = $1 AND conversation_id = $2 AND profile_id <> ''";
        self.delete(delete, tenant, conversation_id).await
    }

    async fn delete_world(&self, tenant: Tenant, run_id: &str) -> Result<(), StoreError> {
        let delete = "DELETE FROM private_states WHERE tenant = $1 AND conversation_id = $2 AND profile_id = ''";
        self.delete(delete, tenant, run_id).await
    }
}

impl AgentStore {
    /// Deletes states by a statement about a conversation or a run, with the requests that changed them.
    async fn delete(
        &self,
        statement: &'static str,
        tenant: Tenant,
        id: &str,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let delete = Statement::new(statement).bind(tenant.as_str()).bind(id);
        transaction.session().execute(delete).await?;
        requests::forget(transaction.session(), tenant, UPDATE, id).await?;
        Ok(transaction.commit().await?)
    }
}

fn state_row((version, created, state, paths, previous, request_id): StoredState) -> StateRow {
    StateRow {
        version: version.unsigned_abs(),
        created: Timestamp::from_unix_nanos(created),
        state,
        paths,
        previous,
        request_id,
    }
}

fn number(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}
