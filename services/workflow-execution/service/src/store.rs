//! Stores the definitions that open runs execute, results and schedules, in a file or at a server. Put definitions
//! are [`documents`].
//!
//! A text is stored once for each tenant, by its digest. That way a run continues after a restart with the
//! definition that it was started with, whatever happened to the workflow since.

mod definitions;
mod results;
pub(crate) mod schedules;

use async_trait::async_trait;
use core_types::Tenant;
use run_log::Hash;

pub use definitions::{MIGRATIONS, SERVER_MIGRATIONS, remove_tenant};
pub use results::ResultTable;
pub use sql_store::StoreError;

/// Stores the definitions that runs execute.
#[async_trait]
pub trait DefinitionTexts: Send + Sync + std::fmt::Debug {
    /// Stores a text for a run of a tenant.
    async fn keep(&self, tenant: Tenant, text: &str) -> Result<Hash, StoreError>;
    /// Returns a stored text of a tenant.
    async fn kept(&self, tenant: Tenant, hash: &Hash) -> Result<Option<String>, StoreError>;
    /// Deletes every text of every tenant that `used` does not name. Returns the number of deleted texts.
    async fn forget(&self, used: &[(Tenant, Hash)]) -> Result<u64, StoreError>;
}

/// Returns the etag of a definition.
pub fn etag_of(text: &str) -> String {
    Hash::of(text.as_bytes())
        .to_string()
        .chars()
        .take(32)
        .collect()
}

#[cfg(test)]
mod tests;
