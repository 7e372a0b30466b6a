//! What the cache needs of a database.

use std::sync::Arc;

use async_trait::async_trait;
use core_types::Timestamp;
use sql_store::StoreError;
use workflow_domain::cache_key::{CacheKey, KeyParts};

/// A result without its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRow {
    /// The key.
    pub key: CacheKey,
    /// How many bytes its outputs have.
    pub bytes: usize,
    /// The run that gave it.
    pub run_id: String,
    /// When it was kept.
    pub kept: Timestamp,
}

/// The last result of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastResult {
    /// The name of the node.
    pub node: CacheKey,
    /// The key of the result.
    pub key: CacheKey,
    /// What it depends on.
    pub parts: KeyParts,
    /// When it was kept.
    pub kept: Timestamp,
}

/// A change of what is stored.
#[derive(Clone, Debug)]
pub enum ResultChange {
    /// A result is new.
    Kept {
        /// The node and what the result depends on.
        last: LastResult,
        /// The run that gave it.
        run_id: String,
        /// The outputs as a JSON object.
        outputs: Arc<str>,
    },
    /// A result was reused.
    Used(CacheKey, Timestamp),
    /// A result was dropped.
    Dropped(CacheKey),
    /// The last result of a node was dropped.
    NodeDropped(CacheKey),
}

/// Keeps results over a restart.
#[async_trait]
pub trait ResultStore: Send + Sync + std::fmt::Debug {
    /// Returns all results, those that were used last at the end.
    ///
    /// # Errors
    /// The database failed or is damaged.
    async fn all(&self) -> Result<Vec<ResultRow>, StoreError>;

    /// Returns the last result of each node, the newest at the end.
    ///
    /// # Errors
    /// The database failed or is damaged.
    async fn last(&self) -> Result<Vec<LastResult>, StoreError>;

    /// Returns the outputs of a result; nothing if it is not kept.
    ///
    /// # Errors
    /// The database failed.
    async fn outputs(&self, key: &CacheKey) -> Result<Option<String>, StoreError>;

    /// Writes changes, all or none.
    ///
    /// # Errors
    /// The database failed.
    async fn write(&self, changes: &[ResultChange]) -> Result<(), StoreError>;
}
