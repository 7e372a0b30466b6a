//! The store of the cache's results.

use std::sync::Arc;

use async_trait::async_trait;
use core_types::{Tenant, Timestamp};
use sql_store::StoreError;
use workflow_domain::cache_key::{CacheKey, KeyParts};

/// The key of a result, or of a node with a last result, in its tenant.
pub type TenantKey = (Tenant, CacheKey);

/// A result without its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRow {
    /// The key.
    pub key: TenantKey,
    /// The size of its outputs, in bytes.
    pub bytes: usize,
    /// The run that computed it.
    pub run_id: String,
    /// The time at which it was stored.
    pub kept: Timestamp,
}

/// The last result of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastResult {
    /// The tenant of the node.
    pub tenant: Tenant,
    /// The name of the node.
    pub node: CacheKey,
    /// The key of the result.
    pub key: CacheKey,
    /// Its dependencies.
    pub parts: KeyParts,
    /// The time at which it was stored.
    pub kept: Timestamp,
}

/// A change of the stored results.
#[derive(Clone, Debug)]
pub enum ResultChange {
    /// A result is new.
    Kept {
        /// The node and the dependencies of the result.
        last: LastResult,
        /// The run that computed it.
        run_id: String,
        /// The outputs as a JSON object.
        outputs: Arc<str>,
    },
    /// A result was reused.
    Used(TenantKey, Timestamp),
    /// A result was dropped.
    Dropped(TenantKey),
    /// The last result of a node was dropped.
    NodeDropped(TenantKey),
}

/// Stores results over a restart.
#[async_trait]
pub trait ResultStore: Send + Sync + std::fmt::Debug {
    /// Returns all results of all tenants, the least recently used first.
    ///
    /// # Errors
    /// The database failed or is damaged.
    async fn all(&self) -> Result<Vec<ResultRow>, StoreError>;

    /// Returns the last result of each node of all tenants, the oldest first.
    ///
    /// # Errors
    /// The database failed or is damaged.
    async fn last(&self) -> Result<Vec<LastResult>, StoreError>;

    /// Returns the outputs of a result; none if it is not stored.
    ///
    /// # Errors
    /// The database failed.
    async fn outputs(&self, key: &TenantKey) -> Result<Option<String>, StoreError>;

    /// Writes changes, all or none.
    ///
    /// # Errors
    /// The database failed.
    async fn write(&self, changes: &[ResultChange]) -> Result<(), StoreError>;
}
