//! The definitions that open runs execute.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use run_log::Hash;
use tokio::sync::Mutex;

use crate::store::{DefinitionTexts, StoreError};

/// The most digests that are remembered; beyond it a text is simply stored again.
const MAX_REMEMBERED: usize = 10_000;

/// The most bytes of all texts that are kept in memory after a read.
const MAX_READ_BYTES: usize = 16 * 1024 * 1024;

/// Stores the definitions that open runs execute, so that a run continues after a restart.
#[derive(Debug)]
pub(crate) struct DefinitionStore {
    store: Arc<dyn DefinitionTexts>,
    /// Texts that this process has stored. Held while the store works, so that no text is deleted
    /// between being stored and being used.
    stored: Mutex<HashSet<Hash>>,
    /// Texts that were read recently. Locked for a lookup or an addition, never across an await.
    read: std::sync::Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    texts: HashMap<Hash, Arc<str>>,
    bytes: usize,
}

impl DefinitionStore {
    pub(crate) fn new(store: Arc<dyn DefinitionTexts>) -> Self {
        Self {
            store,
            stored: Mutex::default(),
            read: std::sync::Mutex::default(),
        }
    }

    /// Returns the text with a digest; none if it is not stored.
    pub(super) async fn get(&self, hash: &Hash) -> Result<Option<Arc<str>>, StoreError> {
        if let Some(text) = self.read().texts.get(hash) {
            return Ok(Some(Arc::clone(text)));
        }
        let Some(text) = self.store.kept(hash).await? else {
            return Ok(None);
        };
        let text: Arc<str> = text.into();
        let mut read = self.read();
        // The runs that wake together execute few definitions, so all may go at once.
        if read.bytes + text.len() > MAX_READ_BYTES {
            *read = Read::default();
        }
        read.bytes += text.len();
        read.texts.insert(*hash, Arc::clone(&text));
        Ok(Some(text))
    }

    fn read(&self) -> std::sync::MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Deletes every text that `used` does not name. Returns the number of texts.
    pub(super) async fn forget_unused(&self, used: HashSet<Hash>) -> Result<u64, StoreError> {
        let stored = self.stored.lock().await;
        let used: Vec<Hash> = used.union(&stored).copied().collect();
        self.store.forget(&used).await
    }
}
