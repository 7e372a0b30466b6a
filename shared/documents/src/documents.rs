//! The documents of one kind: stored documents, and documents of files.

mod list;
mod revisions;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use core_types::{Clock, LoadDiagnostic, Tenant};
use run_events::Runs;

use crate::{
    change::ChangeError,
    files::{FileChanges, Files, Fingerprint},
    kind::Kind,
    requests::{Request, Seen},
    store::{Collection, DocumentRow, DocumentStore, NewDocument, RevisionRow, StoreError},
};

pub use list::Listed;
pub use revisions::same_version;

/// The interval at which [`Documents::follow_files`] checks the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The most documents that are kept as they were read.
const MAX_PARSED: usize = 1_024;

/// A revision that was written by another version of this program.
const UNREADABLE: StoreError = StoreError::Damaged {
    table: "document_revision",
    column: "text",
};

/// The documents of one kind. Clone, cheap.
#[derive(Debug)]
pub struct Documents<K: Kind> {
    inner: Arc<Inner<K>>,
}

impl<K: Kind> Clone for Documents<K> {
    fn clone(&self) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner }
    }
}

/// The parts that kinds of documents of a service share. Clone, cheap.
#[derive(Clone, Debug)]
pub struct DocumentParts {
    /// The store of the documents.
    pub store: Arc<dyn DocumentStore>,
    /// The runs that may use revisions; `None` for a service whose documents have none.
    pub runs: Option<Runs>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// Documents by tenant and id.
type Parsed<D> = HashMap<(Tenant, String), Arc<D>>;

#[derive(Debug)]
struct Inner<K: Kind> {
    kind: Arc<K>,
    directory: PathBuf,
    parts: DocumentParts,
    /// Locked to copy or replace the handle, never across an await.
    files: RwLock<Arc<Files<K>>>,
    /// Documents as they were read from stored texts, which they hold. Never locked across an await.
    parsed: Mutex<Parsed<K::Document>>,
    /// One change at a time: checking an etag, storing and noting revisions are one step.
    changing: tokio::sync::Mutex<()>,
}

/// A document in force.
#[derive(Debug)]
pub struct Known<D> {
    /// The document.
    pub document: Arc<D>,
    /// Whether it is a file.
    pub from_file: bool,
    /// Whether it belongs to [`Tenant::SYSTEM`], and is read by another tenant.
    pub is_shared: bool,
    /// The revision; `None` for a kind without revisions, and for a document that was only checked.
    pub revision: Option<RevisionRow>,
}

impl<D> Clone for Known<D> {
    fn clone(&self) -> Self {
        Self {
            document: Arc::clone(&self.document),
            from_file: self.from_file,
            is_shared: self.is_shared,
            revision: self.revision.clone(),
        }
    }
}

impl<D> Known<D> {
    fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Returns the number of the revision; zero for none.
    pub fn revision_number(&self) -> u64 {
        self.revision.as_ref().map_or(0, |row| row.number)
    }
}

/// A document to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The id, for a kind whose texts have none.
    pub id: &'a str,
    /// The text.
    pub text: &'a str,
    /// The etag of the document to replace; empty replaces any, or none.
    pub etag: &'a str,
    /// Whether to check only.
    pub validate_only: bool,
    /// The caller's request; `None` if it is never repeated.
    pub request: Option<Request<'a>>,
}

impl<K: Kind> Documents<K> {
    /// Reads the directory. A directory that cannot be listed has no documents, nor has an empty
    /// path.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn open(kind: K, directory: &Path, parts: DocumentParts) -> Result<Self, StoreError> {
        let opened = Self {
            inner: Arc::new(Inner {
                kind: Arc::new(kind),
                directory: directory.to_owned(),
                parts,
                files: RwLock::default(),
                parsed: Mutex::default(),
                changing: tokio::sync::Mutex::default(),
            }),
        };
        if let Err(error) = opened.reload().await? {
            let path = directory.display();
            tracing::warn!(%path, %error, "the directory of each {} cannot be read", K::NAME);
        }
        Ok(opened)
    }

    /// Returns the document in force under an id: the tenant's own, else the shared one.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn get(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<Known<K::Document>>, StoreError> {
        self.refresh_unless_followed().await?;
        let own = self.current(tenant, id).await?;
        if own.is_some() || tenant == Tenant::SYSTEM {
            return Ok(own);
        }
        let shared = self.current(Tenant::SYSTEM, id).await?;
        Ok(shared.map(Known::shared))
    }

    async fn current(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<Known<K::Document>>, StoreError> {
        let row = self
            .inner
            .parts
            .store
            .get(collection::<K>(tenant), id)
            .await?;
        let mut known = self.in_force(tenant, id, row.as_ref());
        if let Some(known) = known.as_mut().filter(|_| K::REVISIONS) {
            known.revision = self.newest(tenant, &[id]).await?.remove(id);
            let revision = known.revision.as_ref();
            let is_noted = revision.is_some_and(|row| {
                row.from_file == known.from_file && row.etag == K::etag(&known.document)
            });
            // A process that stored it may have ended before it noted the revision.
            if !is_noted {
                self.note(tenant, vec![Known::clone(known)]).await?;
                known.revision = self.newest(tenant, &[id]).await?.remove(id);
            }
        }
        Ok(known)
    }

    /// Returns a document at a revision; zero is the revision in force. `None` if it is not kept.
    ///
    /// # Errors
    /// A store that does not work, or a revision that can no longer be read.
    pub async fn at(
        &self,
        tenant: Tenant,
        id: &str,
        revision: u64,
    ) -> Result<Option<Known<K::Document>>, StoreError> {
        let current = self.get(tenant, id).await?;
        if revision == 0 {
            return Ok(current);
        }
        // A number means a revision of the document in force; of a document that was deleted, the tenant's own first.
        let owners = match &current {
            Some(known) if known.revision_number() == revision => return Ok(current),
            Some(known) if known.is_shared => vec![Tenant::SYSTEM],
            Some(_) => vec![tenant],
            None => vec![tenant, Tenant::SYSTEM],
        };
        let store = &self.inner.parts.store;
        let (mut kept, mut is_shared) = (None, false);
        for owner in owners {
            kept = store.revision(collection::<K>(owner), id, revision).await?;
            is_shared = owner != tenant;
            if kept.is_some() {
                break;
            }
        }
        let Some((row, text)) = kept else {
            return Ok(None);
        };
        let document = self.inner.kind.read(id, &text).map_err(|_| UNREADABLE)?;
        Ok(Some(Known {
            document: Arc::new(document),
            from_file: row.from_file,
            is_shared,
            revision: Some(row),
        }))
    }

    /// Stores a document, or checks it only. Returns it, and whether the request was seen before.
    ///
    /// # Errors
    /// All its problems, or the reason why it is not stored.
    pub async fn put(
        &self,
        tenant: Tenant,
        put: Put<'_>,
    ) -> Result<(Known<K::Document>, bool), ChangeError<K::Invalid>> {
        let (inner, collection) = (&self.inner, collection::<K>(tenant));
        let document = inner.kind.read(put.id, put.text);
        let document = Arc::new(document.map_err(ChangeError::Invalid)?);
        let id = K::id(&document).to_owned();
        let mut known = Known {
            document: Arc::clone(&document),
            from_file: false,
            is_shared: false,
            revision: None,
        };
        self.refresh_unless_followed().await?;
        let _one_at_a_time = inner.changing.lock().await;
        loop {
            if let Some(request) = put.request {
                match inner.parts.store.seen(tenant, request).await? {
                    Seen::New => {}
                    Seen::Same(_) => {
                        known.revision = self.revision_of(tenant, &document).await?;
                        return Ok((known, true));
                    }
                    Seen::OtherBody => return Err(ChangeError::RequestIdReused),
                }
            }
            let row = inner.parts.store.get(collection, &id).await?;
            let current = self.in_force(tenant, &id, row.as_ref());
            let current = current.map(|known| K::etag(&known.document));
            ChangeError::check_etag(put.etag, &current.unwrap_or_default())?;
            if put.validate_only {
                return Ok((known, false));
            }
            let new = NewDocument {
                id: &id,
                text: put.text,
                replaces: row.map_or(0, |row| row.version),
                request: put.request,
                now: inner.parts.clock.now(),
            };
            // Another process may have changed it meanwhile.
            if inner.parts.store.put(collection, new).await? {
                break;
            }
        }
        self.keep_parsed(tenant, &document);
        self.note(tenant, vec![Known::clone(&known)]).await?;
        Ok((self.current(tenant, &id).await?.unwrap_or(known), false))
    }

    /// Deletes a document that was put. A file of its id is in force again.
    ///
    /// # Errors
    /// The reason why it is not deleted.
    pub async fn delete(
        &self,
        tenant: Tenant,
        id: &str,
        etag: &str,
    ) -> Result<(), ChangeError<K::Invalid>> {
        let (inner, collection) = (&self.inner, collection::<K>(tenant));
        self.refresh_unless_followed().await?;
        let _one_at_a_time = inner.changing.lock().await;
        let row = inner.parts.store.get(collection, id).await?;
        match self.in_force(tenant, id, row.as_ref()) {
            None if tenant != Tenant::SYSTEM
                && self.current(Tenant::SYSTEM, id).await?.is_some() =>
            {
                return Err(ChangeError::IsShared);
            }
            None => return Err(ChangeError::NotFound),
            Some(known) if known.from_file => return Err(ChangeError::IsFile),
            Some(known) => ChangeError::check_etag(etag, &K::etag(&known.document))?,
        }
        let deleted = inner
            .parts
            .store
            .delete(collection, id, None, inner.parts.clock.now());
        if !deleted.await? {
            return Err(ChangeError::NotFound);
        }
        match self.in_force(tenant, id, None) {
            Some(file) => self.note(tenant, vec![file]).await?,
            None => self.delete_unused(tenant, id, u64::MAX).await?,
        }
        Ok(())
    }

    /// Reads the directory again and returns the differences, or the reason why it cannot be
    /// listed: the documents are then as they were.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn reload(&self) -> Result<io::Result<FileChanges>, StoreError> {
        let inner = &self.inner;
        let _one_at_a_time = inner.changing.lock().await;
        let (kind, directory) = (Arc::clone(&inner.kind), inner.directory.clone());
        let before = self.files();
        let earlier = Arc::clone(&before);
        let read = move || Files::read(&*kind, &directory, &earlier);
        let read = tokio::task::spawn_blocking(read).await;
        let read = match read.map_err(io::Error::other).flatten() {
            Ok(read) => Arc::new(read),
            Err(error) => return Ok(Err(error)),
        };
        let changes = read.changes_since(&before);
        // A revision is noted before it is in force.
        if K::REVISIONS {
            self.note_files(&read).await?;
        }
        *inner.files.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(Ok(changes))
    }

    /// Reads the directory again if a file in it has changed.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let directory = self.inner.directory.clone();
        let seen =
            tokio::task::spawn_blocking(move || Fingerprint::at(&directory, K::NESTED)).await;
        if seen.is_ok_and(|seen| seen != self.files().fingerprint) {
            match self.reload().await? {
                Ok(changes) => tracing::info!(?changes, "files of {} were read again", K::NAME),
                Err(error) => tracing::debug!(%error, "the directory of {} is not there", K::NAME),
            }
        }
        Ok(())
    }

    /// Reads the directory again whenever a file in it has changed, within two seconds. Never returns.
    pub async fn follow_files(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "files of {} cannot be read again", K::NAME);
            }
        }
    }

    /// Returns a finding for each file of a tenant that was left out, at most [`LoadDiagnostic::MAX`].
    pub fn left_out(&self, tenant: Tenant) -> Vec<LoadDiagnostic> {
        self.files_of(tenant).left_out.clone()
    }

    /// Returns the mistakes of the file `<id>.json` of a tenant if it is not valid.
    pub fn invalid_file(&self, tenant: Tenant, id: &str) -> Option<K::Invalid> {
        self.files_of(tenant).invalid.get(id).cloned()
    }

    /// Returns the directory of the files.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Reads changed files, of a kind whose directory is not followed.
    async fn refresh_unless_followed(&self) -> Result<(), StoreError> {
        match K::FOLLOWED {
            true => Ok(()),
            false => self.refresh().await,
        }
    }

    /// Returns the stored document of a tenant, else the file, which belongs to the default tenant. A stored text that
    /// cannot be read counts as missing.
    fn in_force(
        &self,
        tenant: Tenant,
        id: &str,
        row: Option<&DocumentRow>,
    ) -> Option<Known<K::Document>> {
        let known = |document, from_file| Known {
            document,
            from_file,
            is_shared: false,
            revision: None,
        };
        let stored = row.and_then(|row| self.parse(tenant, row));
        stored.map(|document| known(document, false)).or_else(|| {
            Some(known(
                Arc::clone(self.files_of(tenant).by_id.get(id)?),
                true,
            ))
        })
    }

    fn parse(&self, tenant: Tenant, row: &DocumentRow) -> Option<Arc<K::Document>> {
        let parsed = {
            let parsed = self.inner.parsed.lock();
            let parsed = parsed.unwrap_or_else(PoisonError::into_inner);
            parsed.get(&(tenant, row.id.clone())).cloned()
        };
        if let Some(parsed) = parsed.filter(|parsed| K::text(parsed) == row.text) {
            return Some(parsed);
        }
        match self.inner.kind.read(&row.id, &row.text) {
            Ok(document) => {
                let document = Arc::new(document);
                self.keep_parsed(tenant, &document);
                Some(document)
            }
            Err(error) => {
                tracing::error!(id = row.id, %error, "a stored {} is left out", K::NAME);
                None
            }
        }
    }

    fn keep_parsed(&self, tenant: Tenant, document: &Arc<K::Document>) {
        let parsed = self.inner.parsed.lock();
        let mut parsed = parsed.unwrap_or_else(PoisonError::into_inner);
        if parsed.len() >= MAX_PARSED {
            parsed.clear();
        }
        let key = (tenant, K::id(document).to_owned());
        parsed.insert(key, Arc::clone(document));
    }

    /// Returns the files of a tenant: they all belong to the default one.
    fn files_of(&self, tenant: Tenant) -> Arc<Files<K>> {
        match tenant.is_default() {
            true => self.files(),
            false => Arc::default(),
        }
    }

    fn files(&self) -> Arc<Files<K>> {
        let files = self.inner.files.read();
        Arc::clone(&files.unwrap_or_else(PoisonError::into_inner))
    }
}

fn collection<K: Kind>(tenant: Tenant) -> Collection {
    let kind = K::NAME;
    Collection { tenant, kind }
}
