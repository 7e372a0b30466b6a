//! The definitions that open runs execute.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use core_types::Tenant;
use run_log::Hash;
use tokio::sync::Mutex;

use crate::store::{DefinitionTexts, StoreError};

/// The most digests that are remembered; beyond it a text is simply stored again.
const MAX_REMEMBERED: usize = 10_000;

/// The most bytes of all texts that are kept in memory after a read.
const MAX_READ_BYTES: usize = 16 * 1024 * 1024;

/// Stores the definitions that open runs execute, each for its tenant, so that a run continues after a restart.
#[derive(Debug)]
pub(crate) struct DefinitionStore {
    store: Arc<dyn DefinitionTexts>,
    /// Texts that this process has stored. Held while the store works, so that no text is deleted
    /// between being stored and being used.
    stored: Mutex<HashSet<(Tenant, Hash)>>,
    /// Texts that were read recently. Locked for a lookup or an addition, never across an await.
    read: std::sync::Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    texts: HashMap<(Tenant, Hash), Arc<str>>,
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

    /// Returns the text of a tenant with a digest; none if it is not stored.
    pub(super) async fn get(
        &self,
        tenant: Tenant,
        hash: &Hash,
    ) -> Result<Option<Arc<str>>, StoreError> {
        if let Some(text) = self.read().texts.get(&(tenant, *hash)) {
            return Ok(Some(Arc::clone(text)));
        }
        let Some(text) = self.store.kept(tenant, hash).await? else {
            return Ok(None);
        };
        let text: Arc<str> = text.into();
        let mut read = self.read();
        // The runs that wake together execute few definitions, so all may go at once.
        if read.bytes + text.len() > MAX_READ_BYTES {
            *read = Read::default();
        }
        read.bytes += text.len();
        read.texts.insert((tenant, *hash), Arc::clone(&text));
        Ok(Some(text))
    }

    fn read(&self) -> std::sync::MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a text for a tenant and returns its digest.
    pub(super) async fn put(&self, tenant: Tenant, text: &str) -> Result<Hash, StoreError> {
        let hash = Hash::of(text.as_bytes());
        let mut stored = self.stored.lock().await;
        if stored.contains(&(tenant, hash)) {
            return Ok(hash);
        }
        self.store.keep(tenant, text).await?;
        if stored.len() < MAX_REMEMBERED {
            stored.insert((tenant, hash));
        }
        Ok(hash)
    }

    /// Forgets that texts of a tenant are stored, as its rows are to be removed.
    pub(crate) async fn forget_tenant(&self, tenant: Tenant) {
        let mut stored = self.stored.lock().await;
        stored.retain(|(of, _)| *of != tenant);
        let mut read = self.read();
        read.texts.retain(|(of, _), _| *of != tenant);
        read.bytes = read.texts.values().map(|text| text.len()).sum();
    }

    /// Deletes every text of every tenant that `used` does not name. Returns the number of texts.
    pub(super) async fn forget_unused(
        &self,
        used: HashSet<(Tenant, Hash)>,
    ) -> Result<u64, StoreError> {
        let stored = self.stored.lock().await;
        let used: Vec<(Tenant, Hash)> = used.union(&stored).copied().collect();
        self.store.forget(&used).await
    }
}
