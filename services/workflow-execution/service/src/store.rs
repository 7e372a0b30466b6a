//! Keeps definitions that open runs execute, results and schedules. Definitions that were put are [`documents`].
//!
//! A text is kept once, by its digest. That way a run continues after a restart with the definition
//! it was started with, whatever happened to the workflow since.

mod results;
pub(crate) mod schedules;
mod sqlite;

use async_trait::async_trait;
use run_log::Hash;

pub use results::ResultTable;
pub use sql_store::StoreError;
pub use sqlite::{KeptDefinitions, MIGRATIONS};

/// Keeps the definitions that runs execute.
#[async_trait]
pub trait DefinitionTexts: Send + Sync + std::fmt::Debug {
    /// Keeps a text for a run.
    async fn keep(&self, text: &str) -> Result<Hash, StoreError>;
    /// Returns a text that was kept.
    async fn kept(&self, hash: &Hash) -> Result<Option<String>, StoreError>;
    /// Forgets every text that `used` does not name. Returns how many.
    async fn forget(&self, used: &[Hash]) -> Result<u64, StoreError>;
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
