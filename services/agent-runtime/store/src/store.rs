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
use sql_store::{Migrations, SqliteDatabase};

pub(crate) use conversations::APPEND;
pub use conversations::{ConversationCursor, ConversationRow, ConversationStore};
pub(crate) use knowledge::WRITE;
pub use knowledge::{EntryRow, KnowledgeIndex, KnowledgeRow, WrittenEntry};
pub use questions::{OpenQuestion, QuestionStore};
pub use sql_store::StoreError;
pub use states::{StateOwner, StateRow, StateStore};

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// The tables of this service.
pub const MIGRATIONS: Migrations = Migrations::new("agent_runtime", &MIGRATOR);

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

/// The stores on SQLite. Clone, cheap.
#[derive(Clone, Debug)]
pub struct AgentStore {
    database: SqliteDatabase,
}

impl AgentStore {
    /// Opens the stores on a database with [`MIGRATIONS`] applied.
    pub fn new(database: SqliteDatabase) -> Self {
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
        let mut connection = self.database.reader().acquire().await?;
        requests::seen(&mut *connection, tenant, &request).await
    }
}

#[cfg(test)]
mod tests;
