//! Stores conversations with the messages appended to them, states, questions and knowledge bases.

mod conversations;
mod knowledge;
mod questions;
mod states;
mod tenants;

use async_trait::async_trait;
use core_types::Tenant;
use documents::{Request, RequestStore, Seen, database::requests};
use run_log::Hash;
use sql_store::{Database, Migrations};

pub(crate) use conversations::APPEND;
pub use conversations::{ConversationCursor, ConversationRow, ConversationStore};
pub(crate) use knowledge::WRITE;
pub use knowledge::{EntryRow, KnowledgeIndex, KnowledgeRow, WrittenEntry};
pub use questions::{OpenQuestion, QuestionStore};
pub use sql_store::StoreError;
pub use states::{StateOwner, StateRow, StateStore};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

static SERVER_MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// The tables of this service in a file.
pub const MIGRATIONS: Migrations = Migrations::new("agent_runtime", &MIGRATOR);

/// The tables of this service at a server, in the schema `agent`.
pub const SERVER_MIGRATIONS: Migrations = Migrations::new("agent_runtime", &SERVER_MIGRATOR);

/// A request with a caller's id.
#[derive(Clone, Debug)]
pub struct NamedRequest {
    /// The caller's id.
    pub id: String,
    /// The digest of its body.
    pub body: Hash,
}

impl NamedRequest {
    /// Returns it as the request of a method on a resource.
    pub fn within<'a>(&'a self, method: &'static str, scope: &'a str) -> Request<'a> {
        Request {
            method,
            scope,
            id: &self.id,
            body: self.body,
        }
    }
}

/// The stores, in a file or at a server. Clone, cheap.
#[derive(Clone, Debug)]
pub struct AgentStore {
    database: Database,
}

impl AgentStore {
    /// Opens the stores on a database with [`MIGRATIONS`] or [`SERVER_MIGRATIONS`] applied.
    pub fn new(database: impl Into<Database>) -> Self {
        let database = database.into();
        Self { database }
    }

    /// Closes the database.
    pub async fn close(&self) {
        self.database.close().await;
    }
}

#[async_trait]
impl RequestStore for AgentStore {
    async fn seen(&self, tenant: Tenant, request: Request<'_>) -> Result<Seen, StoreError> {
        requests::seen(&self.database.reader(), tenant, &request).await
    }
}

#[cfg(test)]
mod tests;
