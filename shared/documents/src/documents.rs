//! The documents of one kind: those that were put, and those of files.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use core_types::{Clock, LoadDiagnostic, LoadSeverity, PageToken, Tenant};
use grpc_kit::Failure;
use run_events::{Runs, store_failure};
use run_log::Hash;

use crate::{
    change::ChangeError,
    files::{FileChanges, Files, Look},
    kind::Kind,
    requests::{Request, Seen},
    store::{DocumentRow, DocumentStore, NewDocument, NewRevision, RevisionRow, Shelf, StoreError},
};

/// How often the files are looked at by [`Documents::follow_files`].
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How many revisions of a document are kept without a run that uses them.
const KEPT: u64 = 100;

/// The most documents that are kept as they were read.
const MAX_PARSED: usize = 1_024;

/// The bytes of texts after which a page ends.
const PAGE_BYTES: usize = 2 << 20;

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
    /// Where they are stored.
    pub store: Arc<dyn DocumentStore>,
    /// The runs that may use revisions; none of a service whose documents have none.
    pub runs: Option<Runs>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Inner<K: Kind> {
    kind: Arc<K>,
    directory: PathBuf,
    parts: DocumentParts,
    /// Locked to copy or replace the handle, never across an await.
    files: RwLock<Arc<Files<K>>>,
    /// Documents as they were read from stored texts, which they hold. Never locked across an await.
    parsed: Mutex<HashMap<String, Arc<K::Document>>>,
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
    /// The revision; none of a kind without revisions, and of a document that was only checked.
    pub revision: Option<RevisionRow>,
}

impl<D> Clone for Known<D> {
    fn clone(&self) -> Self {
        Self {
            document: Arc::clone(&self.document),
            from_file: self.from_file,
            revision: self.revision.clone(),
        }
    }
}

impl<D> Known<D> {
    /// Returns the number of the revision; zero for none.
    pub fn revision_number(&self) -> u64 {
        self.revision.as_ref().map_or(0, |row| row.number)
    }
}

/// A page of documents.
#[derive(Debug)]
pub struct Listed<D> {
    /// The documents, by id.
    pub entries: Vec<Known<D>>,
    /// The token of the next page; empty if there is none.
    pub next_page_token: String,
    /// Whether it is the first page.
    pub is_first: bool,
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
    /// The caller's request id, which may be empty, and the digest of the request.
    pub request: Option<(&'a str, Hash)>,
}

impl<K: Kind> Documents<K> {
    /// Reads the directory. One that cannot be listed has no documents, nor has an empty path.
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

    /// Returns the document in force under an id.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn get(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<Known<K::Document>>, StoreError> {
        self.look().await?;
        self.current(tenant, id).await
    }

    async fn current(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<Known<K::Document>>, StoreError> {
        let row = self.inner.parts.store.get(shelf::<K>(tenant), id).await?;
        let mut known = self.in_force(id, row.as_ref());
        if let Some(known) = known.as_mut().filter(|_| K::REVISIONS) {
            let mut newest = self.newest(tenant, Some(id)).await?;
            known.revision = newest.remove(id);
        }
        Ok(known)
    }

    /// Returns a document at a revision; zero is the one in force. None if it is not kept.
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
        if let Some(known) = current.filter(|known| known.revision_number() == revision) {
            return Ok(Some(known));
        }
        let store = &self.inner.parts.store;
        let kept = store.revision(shelf::<K>(tenant), id, revision).await?;
        let Some((row, text)) = kept else {
            return Ok(None);
        };
        let document = self.inner.kind.read(id, &text).map_err(|_| UNREADABLE)?;
        Ok(Some(Known {
            document: Arc::new(document),
            from_file: row.from_file,
            revision: Some(row),
        }))
    }

    /// Returns the page of a list that a token and a size ask for. It is shorter than asked for once the texts of
    /// its documents exceed 2 MiB.
    ///
    /// # Errors
    /// A token of another list, or a store that does not work.
    pub async fn list(
        &self,
        tenant: Tenant,
        page_token: &str,
        page_size: i32,
    ) -> Result<Listed<K::Document>, Failure> {
        let list = format!("{}s", K::NAME);
        let token = PageToken::decode(&list, page_token).map_err(|error| {
            Failure::invalid_fields().violation("page_token", error.to_string())
        })?;
        let after = token.as_ref().map_or("", PageToken::last_key);
        let size = core_types::page::page_size(page_size);
        let page = self.page(tenant, after, size).await;
        let (entries, more) = page.map_err(|error| store_failure(&error))?;
        let last = more.map(|last| PageToken::after(last).encode(&list));
        Ok(Listed {
            entries,
            next_page_token: last.unwrap_or_default(),
            is_first: token.is_none(),
        })
    }

    /// Returns at most `limit` documents by id, those after `after`, and the id behind which more follow; fewer
    /// once their texts exceed 2 MiB.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn page(
        &self,
        tenant: Tenant,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Known<K::Document>>, Option<String>), StoreError> {
        self.look().await?;
        let store = &self.inner.parts.store;
        let page = store.page(shelf::<K>(tenant), after, limit + 1, PAGE_BYTES);
        let stored: BTreeMap<String, DocumentRow> = page
            .await?
            .into_iter()
            .map(|row| (row.id.clone(), row))
            .collect();
        let bytes: usize = stored.values().map(|row| row.text.len()).sum();
        // Behind a page that ended for its bytes the store may have ids before those of later files.
        let known_to = stored.keys().next_back().filter(|_| bytes > PAGE_BYTES);
        let is_known = |id: &str| known_to.is_none_or(|last| id <= last.as_str());
        let files = self.files();
        let later = files.by_id.keys().map(String::as_str);
        let later = later.filter(|id| *id > after && is_known(id));
        let ids: BTreeSet<&str> = stored.keys().map(String::as_str).chain(later).collect();
        let (mut entries, mut last, mut bytes) = (Vec::new(), "", 0);
        let mut more = known_to.is_some();
        for id in &ids {
            if entries.len() == limit || bytes > PAGE_BYTES {
                more = true;
                break;
            }
            last = id;
            if let Some(known) = self.in_force(id, stored.get(*id)) {
                bytes += K::text(&known.document).len();
                entries.push(known);
            }
        }
        if K::REVISIONS && !entries.is_empty() {
            let mut newest = self.newest(tenant, None).await?;
            for known in &mut entries {
                known.revision = newest.remove(K::id(&known.document));
            }
        }
        Ok((entries, more.then(|| last.to_owned())))
    }

    /// Returns at most `limit` revisions of a document, the newest first, those before `before`.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn revisions(
        &self,
        tenant: Tenant,
        id: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        let store = &self.inner.parts.store;
        store.revisions(shelf::<K>(tenant), id, before, limit).await
    }

    /// Stores a document, or checks it only. Returns it, and whether the request was seen before.
    ///
    /// # Errors
    /// Everything that is wrong with it, or why it is not stored.
    pub async fn put(
        &self,
        tenant: Tenant,
        put: Put<'_>,
    ) -> Result<(Known<K::Document>, bool), ChangeError<K::Invalid>> {
        let (inner, shelf) = (&self.inner, shelf::<K>(tenant));
        let document = inner.kind.read(put.id, put.text);
        let document = Arc::new(document.map_err(ChangeError::Invalid)?);
        let id = K::id(&document).to_owned();
        let mut known = Known {
            document: Arc::clone(&document),
            from_file: false,
            revision: None,
        };
        self.look().await?;
        let request = put.request;
        let request = request.and_then(|(id, body)| Request::of(K::PUT, id, body));
        let _one_at_a_time = inner.changing.lock().await;
        loop {
            if let Some(request) = request {
                match inner.parts.store.seen(tenant, request).await? {
                    Seen::New => {}
                    Seen::Same(_) => {
                        known.revision = self.revision_of(tenant, &document).await?;
                        return Ok((known, true));
                    }
                    Seen::OtherBody => return Err(ChangeError::RequestIdReused),
                }
            }
            let row = inner.parts.store.get(shelf, &id).await?;
            let current = self.in_force(&id, row.as_ref());
            let current = current.map(|known| K::etag(&known.document));
            ChangeError::check_etag(put.etag, &current.unwrap_or_default())?;
            if put.validate_only {
                return Ok((known, false));
            }
            let new = NewDocument {
                id: &id,
                text: put.text,
                replaces: row.map_or(0, |row| row.version),
                request,
                now: inner.parts.clock.now(),
            };
            // Another process may have changed it meanwhile.
            if inner.parts.store.put(shelf, new).await? {
                break;
            }
        }
        self.keep_parsed(&document);
        self.note(tenant, vec![Known::clone(&known)]).await?;
        Ok((self.current(tenant, &id).await?.unwrap_or(known), false))
    }

    /// Deletes a document that was put. A file of its id is in force again.
    ///
    /// # Errors
    /// Why it is not deleted.
    pub async fn delete(
        &self,
        tenant: Tenant,
        id: &str,
        etag: &str,
    ) -> Result<(), ChangeError<K::Invalid>> {
        let (inner, shelf) = (&self.inner, shelf::<K>(tenant));
        self.look().await?;
        let _one_at_a_time = inner.changing.lock().await;
        let row = inner.parts.store.get(shelf, id).await?;
        match self.in_force(id, row.as_ref()) {
            None => return Err(ChangeError::NotFound),
            Some(known) if known.from_file => return Err(ChangeError::IsFile),
            Some(known) => ChangeError::check_etag(etag, &K::etag(&known.document))?,
        }
        let deleted = inner
            .parts
            .store
            .delete(shelf, id, None, inner.parts.clock.now());
        if !deleted.await? {
            return Err(ChangeError::NotFound);
        }
        match self.in_force(id, None) {
            Some(file) => self.note(tenant, vec![file]).await?,
            None => self.delete_unused(tenant, id, u64::MAX).await?,
        }
        Ok(())
    }

    /// Reads the directory again and returns the differences, or why it cannot be listed: the documents are then
    /// as they were.
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
        let look = tokio::task::spawn_blocking(move || Look::at(&directory, K::NESTED)).await;
        if look.is_ok_and(|look| look != self.files().look) {
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

    /// Returns a finding for each file that was left out, at most [`LoadDiagnostic::MAX`].
    pub fn left_out(&self) -> Vec<LoadDiagnostic> {
        self.files().left_out.clone()
    }

    /// Returns the mistakes of the file `<id>.json` if it is not valid.
    pub fn invalid_file(&self, id: &str) -> Option<K::Invalid> {
        self.files().invalid.get(id).cloned()
    }

    /// Returns the directory of the files.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Reads changed files, of a kind whose directory is not followed.
    async fn look(&self) -> Result<(), StoreError> {
        match K::FOLLOWED {
            true => Ok(()),
            false => self.refresh().await,
        }
    }

    /// Returns the stored document, else the file. A stored text that cannot be read is as if it were not there.
    fn in_force(&self, id: &str, row: Option<&DocumentRow>) -> Option<Known<K::Document>> {
        let known = |document, from_file| Known {
            document,
            from_file,
            revision: None,
        };
        let stored = row.and_then(|row| self.parse(row));
        stored
            .map(|document| known(document, false))
            .or_else(|| Some(known(Arc::clone(self.files().by_id.get(id)?), true)))
    }

    fn parse(&self, row: &DocumentRow) -> Option<Arc<K::Document>> {
        let parsed = {
            let parsed = self.inner.parsed.lock();
            let parsed = parsed.unwrap_or_else(PoisonError::into_inner);
            parsed.get(&row.id).cloned()
        };
        if let Some(parsed) = parsed.filter(|parsed| K::text(parsed) == row.text) {
            return Some(parsed);
        }
        match self.inner.kind.read(&row.id, &row.text) {
            Ok(document) => {
                let document = Arc::new(document);
                self.keep_parsed(&document);
                Some(document)
            }
            Err(error) => {
                tracing::error!(id = row.id, %error, "a stored {} is left out", K::NAME);
                None
            }
        }
    }

    fn keep_parsed(&self, document: &Arc<K::Document>) {
        let parsed = self.inner.parsed.lock();
        let mut parsed = parsed.unwrap_or_else(PoisonError::into_inner);
        if parsed.len() >= MAX_PARSED {
            parsed.clear();
        }
        parsed.insert(K::id(document).to_owned(), Arc::clone(document));
    }

    fn files(&self) -> Arc<Files<K>> {
        let files = self.inner.files.read();
        Arc::clone(&files.unwrap_or_else(PoisonError::into_inner))
    }

    async fn newest(
        &self,
        tenant: Tenant,
        id: Option<&str>,
    ) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
        let store = &self.inner.parts.store;
        store.newest_revisions(shelf::<K>(tenant), id).await
    }

    /// Returns the revision that a document made, as long as it is kept.
    async fn revision_of(
        &self,
        tenant: Tenant,
        document: &K::Document,
    ) -> Result<Option<RevisionRow>, StoreError> {
        if !K::REVISIONS {
            return Ok(None);
        }
        let kept = self.revisions(tenant, K::id(document), None, usize::MAX);
        let etag = K::etag(document);
        let mut kept = kept.await?.into_iter();
        Ok(kept.find(|row| row.etag == etag && !row.from_file))
    }

    /// Notes the files that are in force and no revision yet. Files are of the one tenant that exists.
    async fn note_files(&self, files: &Files<K>) -> Result<(), StoreError> {
        let tenant = Tenant::DEFAULT;
        let newest = self.newest(tenant, None).await?;
        let mut new = Vec::new();
        for (id, document) in &files.by_id {
            let row = newest.get(id);
            if row.is_some_and(|row| row.from_file && row.etag == K::etag(document)) {
                continue;
            }
            let stored = self.inner.parts.store.get(shelf::<K>(tenant), id).await?;
            if stored.and_then(|row| self.parse(&row)).is_none() {
                new.push(Known {
                    document: Arc::clone(document),
                    from_file: true,
                    revision: None,
                });
            }
        }
        self.note(tenant, new).await
    }

    /// Notes documents that came into force; those whose newest revision is the same already change nothing.
    /// Revisions that are no longer kept are deleted.
    async fn note(
        &self,
        tenant: Tenant,
        in_force: Vec<Known<K::Document>>,
    ) -> Result<(), StoreError> {
        if !K::REVISIONS || in_force.is_empty() {
            return Ok(());
        }
        let new = in_force.iter().map(|known| NewRevision {
            id: K::id(&known.document).to_owned(),
            etag: K::etag(&known.document),
            label: K::label(&known.document).to_owned(),
            from_file: known.from_file,
            text: K::text(&known.document).to_owned(),
        });
        let new: Vec<NewRevision> = new.collect();
        let (store, now) = (&self.inner.parts.store, self.inner.parts.clock.now());
        let added = store.add_revisions(shelf::<K>(tenant), &new, now).await?;
        for (document, row) in new.iter().zip(&added) {
            if let Some(oldest) = row.number.checked_sub(KEPT).filter(|oldest| *oldest > 0) {
                self.delete_unused(tenant, &document.id, oldest).await?;
            }
        }
        Ok(())
    }

    /// Deletes the revisions of a document up to a number, but for those that runs use.
    async fn delete_unused(&self, tenant: Tenant, id: &str, up_to: u64) -> Result<(), StoreError> {
        if !K::REVISIONS {
            return Ok(());
        }
        let used: Vec<Vec<u64>> = match &self.inner.parts.runs {
            None => Vec::new(),
            Some(runs) => {
                let kind = &self.inner.kind;
                let used = runs.metas_of_open_runs(|meta| Some(kind.used(id, meta)));
                match used.await {
                    Ok(used) => used,
                    Err(failure) => {
                        let status = failure.into_status();
                        let error = status.message();
                        tracing::warn!(id, error, "revisions are kept, as their use is not known");
                        return Ok(());
                    }
                }
            }
        };
        let store = &self.inner.parts.store;
        let shelf = shelf::<K>(tenant);
        store
            .delete_revisions(shelf, id, up_to, &used.concat())
            .await
    }
}

fn shelf<K: Kind>(tenant: Tenant) -> Shelf {
    let kind = K::NAME;
    Shelf { tenant, kind }
}

/// Remarks that an earlier revision with other bytes has the same label (rule G102).
pub fn same_version(row: &RevisionRow) -> Option<LoadDiagnostic> {
    (row.same_version_as > 0).then(|| LoadDiagnostic {
        severity: LoadSeverity::Warning,
        path: "/version".to_owned(),
        code: "same_version",
        message: format!(
            "revision {} states `{}` too and differs; state another version for each change",
            row.same_version_as, row.label
        ),
    })
}
