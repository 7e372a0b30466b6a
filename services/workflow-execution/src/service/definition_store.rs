//! The definitions that open runs execute.

use std::collections::HashSet;
use std::sync::Arc;

use core_types::Timestamp;
use run_log::Hash;
use tokio::sync::Mutex;

use crate::store::{Store, StoreError};

/// How many digests are remembered; beyond it a text is simply stored once more.
const MAX_REMEMBERED: usize = 10_000;

/// Stores the definitions that open runs execute, so that a run continues after a restart.
#[derive(Debug)]
pub(super) struct DefinitionStore {
    store: Arc<dyn Store>,
    /// Texts that this process has stored. Held while the store works, so that nothing is forgotten
    /// between being stored and being used.
    stored: Mutex<HashSet<Hash>>,
}

impl DefinitionStore {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            stored: Mutex::default(),
        }
    }

    /// Stores a text and returns its digest.
    pub(super) async fn put(&self, text: &str) -> Result<Hash, StoreError> {
        let hash = Hash::of(text.as_bytes());
        let mut stored = self.stored.lock().await;
        if stored.contains(&hash) {
            return Ok(hash);
        }
        self.store.keep(text).await?;
        if stored.len() < MAX_REMEMBERED {
            stored.insert(hash);
        }
        Ok(hash)
    }

    /// Forgets requests made before `before`, and every text that neither they nor a workflow nor
    /// `used` name. Returns the number of texts.
    pub(super) async fn forget_unused(
        &self,
        used: HashSet<Hash>,
        before: Timestamp,
    ) -> Result<u64, StoreError> {
        let stored = self.stored.lock().await;
        let used: Vec<Hash> = used.union(&stored).copied().collect();
        self.store.forget(before, &used).await
    }
}
