//! Keeps definitions, those that were saved by id and those that open runs execute, results and schedules.
//!
//! A text is kept once, by its digest. That way a run continues after a restart with the definition
//! it was started with, whatever happened to the workflow since.

mod results;
pub(crate) mod schedules;
mod sqlite;

use async_trait::async_trait;
use core_types::Timestamp;
use run_log::Hash;

pub use results::ResultTable;
pub use sql_store::StoreError;
pub use sqlite::{MIGRATIONS, SqliteStore};

/// A definition that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWorkflow {
    /// The id.
    pub id: String,
    /// The text as it was given.
    pub text: String,
}

/// What is to be saved.
#[derive(Clone, Debug)]
pub struct Put<'a> {
    /// The id.
    pub id: &'a str,
    /// The text.
    pub text: &'a str,
    /// The etag that the current definition must have; nothing replaces any definition, or none.
    pub expected: Option<String>,
    /// The caller's request id and the digest of the request; nothing if it is never repeated.
    pub request: Option<(&'a str, Hash)>,
    /// When.
    pub now: Timestamp,
}

/// The outcome of saving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is saved.
    Saved,
    /// The same request was made before; this is what it saved.
    Replayed(StoredWorkflow),
    /// The request id was used with another body.
    RequestIdReused,
    /// The current definition has another etag.
    EtagMismatch {
        /// The current etag; empty if there is no definition.
        current: String,
    },
}

/// The outcome of deleting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is deleted.
    Deleted,
    /// No definition has the id.
    NotFound,
    /// The current definition has another etag.
    EtagMismatch {
        /// The current etag.
        current: String,
    },
}

/// Keeps definitions.
#[async_trait]
pub trait WorkflowStore: Send + Sync + std::fmt::Debug {
    /// Saves a definition under its id, once per request id.
    async fn put(&self, put: Put<'_>) -> Result<PutOutcome, StoreError>;
    /// Returns the definition that was saved under `id`.
    async fn get(&self, id: &str) -> Result<Option<StoredWorkflow>, StoreError>;
    /// Returns the ids after `after` in order, at most `limit`.
    async fn ids(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;
    /// Deletes the definition that was saved under `id`, if it has the `expected` etag. Texts that
    /// runs execute stay.
    async fn delete(&self, id: &str, expected: Option<&str>) -> Result<DeleteOutcome, StoreError>;
    /// Keeps a text for a run.
    async fn keep(&self, text: &str) -> Result<Hash, StoreError>;
    /// Returns a text that was kept.
    async fn kept(&self, hash: &Hash) -> Result<Option<String>, StoreError>;
    /// Forgets requests made before `before`, and every text that neither a workflow nor a request
    /// nor `used` names. Returns how many texts.
    async fn forget(&self, before: Timestamp, used: &[Hash]) -> Result<u64, StoreError>;
    /// Gives up the database.
    async fn close(&self);
}

/// Returns the etag of a definition.
pub fn etag_of(text: &str) -> String {
    etag_of_hash(&Hash::of(text.as_bytes()))
}

fn etag_of_hash(hash: &Hash) -> String {
    hash.to_string().chars().take(32).collect()
}

#[cfg(test)]
mod tests;
