//! Knowledge bases, put by clients or read from a directory, and the reads and writes of agents.

mod access;
mod files;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use agent_domain::{
    document::DocumentError,
    knowledge::{self, Entry, GoalReference, MAX_ENTRIES},
    profile::Profile,
};
use contracts::tavern::common::v1::ErrorReason;
use core_types::{Clock, IdSource, LoadDiagnostic, Tenant};
use documents::{ChangeError, Seen, change::request_id_reused, files::Fingerprint};
use grpc_kit::Failure;
use run_events::store_failure;
use tokio::sync::Mutex;
use tonic::Code;

use crate::store::{
    EntryRow, KnowledgeIndex, KnowledgeRow, NamedRequest, StoreError, WRITE, WrittenEntry,
};

pub use access::Reader;

/// The interval at which the files are checked for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The knowledge bases. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Knowledge {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    store: Arc<dyn KnowledgeIndex>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    /// The state that is read without the store. Locked for a lookup or a change, never across an
    /// await.
    known: RwLock<KnownBase>,
    /// One change at a time: checking the present state and writing are one step. Held across the
    /// commit.
    changing: Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownBase {
    ids: BTreeSet<String>,
    left_out: Vec<LoadDiagnostic>,
    fingerprint: Fingerprint,
}

/// An entry to be written.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// The knowledge base, by alias or id.
    pub kb: String,
    /// The entry; its id is empty for a new one.
    pub entry: Entry,
    /// The caller's id for the request and its digest.
    pub request: Option<NamedRequest>,
}

impl Knowledge {
    /// Reads the directory and the store.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn open(
        directory: PathBuf,
        store: Arc<dyn KnowledgeIndex>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, StoreError> {
        let opened = Self {
            inner: Arc::new(Inner {
                directory,
                store,
                clock,
                ids,
                known: RwLock::default(),
                changing: Mutex::default(),
            }),
        };
        opened.read_files().await?;
        Ok(opened)
    }

    /// Reads the directory again whenever a file in it has changed, within two seconds (rule G103).
    /// Never returns.
    pub async fn follow_files(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let directory = self.inner.directory.clone();
            let seen = tokio::task::spawn_blocking(move || Fingerprint::at(&directory, "")).await;
            if seen.is_ok_and(|seen| self.known(|known| known.fingerprint != seen))
                && let Err(error) = self.read_files().await
            {
                tracing::warn!(%error, "the knowledge directory cannot be read again");
            }
        }
    }

    /// Stores the knowledge bases of the directory's files, unless they are stored already.
    async fn read_files(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.inner.changing.lock().await;
        let directory = self.inner.directory.clone();
        let read = tokio::task::spawn_blocking(move || {
            (Fingerprint::at(&directory, ""), files::read(&directory))
        });
        let Ok((fingerprint, (bases, left_out))) = read.await else {
            return Ok(());
        };
        let store = &self.inner.store;
        let stored = store.knowledge_bases().await?;
        for base in &bases {
            let known = stored.iter().find(|row| row.id == base.id);
            if known.is_none_or(|row| row.from_file && row.etag != base.etag) {
                let now = self.inner.clock.now();
                store.put_knowledge_base(base, true, now).await?;
            }
        }
        let ids = stored.into_iter().map(|row| row.id);
        let ids = ids.chain(bases.into_iter().map(|base| base.id)).collect();
        self.change(|known| {
            *known = KnownBase {
                ids,
                left_out,
                fingerprint,
            }
        });
        Ok(())
    }

    /// Stores a knowledge base, or only checks it.
    ///
    /// # Errors
    /// All problems of the document, or the reason for not storing it.
    pub async fn put(
        &self,
        text: &str,
        etag: &str,
        validate_only: bool,
    ) -> Result<KnowledgeRow, ChangeError<DocumentError>> {
        let base = knowledge::read(text).map_err(ChangeError::Invalid)?;
        let _one_at_a_time = self.inner.changing.lock().await;
        let store = &self.inner.store;
        let current = self.find(&base.id).await?;
        let current = current.map(|row| row.etag).unwrap_or_default();
        ChangeError::check_etag(etag, &current)?;
        if !validate_only {
            let now = self.inner.clock.now();
            store.put_knowledge_base(&base, false, now).await?;
            self.change(|known| known.ids.insert(base.id.clone()));
            if let Some(row) = self.find(&base.id).await? {
                return Ok(row);
            }
        }
        Ok(KnowledgeRow {
            entries: u32::try_from(base.entries.len()).unwrap_or(u32::MAX),
            id: base.id,
            name: base.name,
            description: base.description,
            etag: base.etag,
            from_file: false,
        })
    }

    /// Deletes a knowledge base. Returns whether it existed.
    ///
    /// # Errors
    /// Another etag, or a store that does not work.
    pub async fn delete(&self, id: &str, etag: &str) -> Result<bool, ChangeError<DocumentError>> {
        let _one_at_a_time = self.inner.changing.lock().await;
        let Some(row) = self.find(id).await? else {
            return Ok(false);
        };
        ChangeError::check_etag(etag, &row.etag)?;
        let deleted = self.inner.store.delete_knowledge_base(id).await?;
        self.change(|known| {
            known.ids.remove(id);
            // A file that was hidden is read again.
            known.fingerprint = Fingerprint::default();
        });
        Ok(deleted)
    }

    /// Deletes an entry. Returns whether it existed.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn delete_entry(&self, id: &str, caiu_id: &str) -> Result<bool, StoreError> {
        let _one_at_a_time = self.inner.changing.lock().await;
        self.inner.store.delete_entry(id, caiu_id).await
    }

    /// Returns every knowledge base, by id.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn all(&self) -> Result<Vec<KnowledgeRow>, StoreError> {
        self.inner.store.knowledge_bases().await
    }

    /// Returns a finding for each file that was left out.
    pub fn left_out(&self) -> Vec<LoadDiagnostic> {
        self.known(|known| known.left_out.clone())
    }

    /// Whether a knowledge base with this id exists.
    pub fn is_known(&self, id: &str) -> bool {
        self.known(|known| known.ids.contains(id))
    }

    /// Returns at most `limit` entries after `after`, by id.
    ///
    /// # Errors
    /// KNOWLEDGE_BASE_NOT_FOUND, or a storage that does not work.
    pub async fn entries(
        &self,
        id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<EntryRow>, Failure> {
        if !self.is_known(id) {
            return Err(missing(id, &[]));
        }
        let entries = self.inner.store.entries(id, after, limit).await;
        entries.map_err(|error| store_failure(&error))
    }

    /// Returns the text of the goals of a profile or a scene, each with the id of its knowledge base; none
    /// for a missing goal (rule G106).
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn goal_text(
        &self,
        profile: &Profile,
        goal: &GoalReference,
    ) -> Result<Option<(String, String)>, Failure> {
        let named = |kb: &String| {
            let mut all = profile.knowledge.iter();
            let known = all.find(|known| known.alias == *kb || known.source_id == *kb);
            vec![known.map_or(kb.clone(), |known| known.source_id.clone())]
        };
        let all = || {
            profile
                .knowledge
                .iter()
                .map(|known| known.source_id.clone())
        };
        let ids = goal.kb.as_ref().map_or_else(|| all().collect(), named);
        for id in ids {
            let found = self.inner.store.entry(&id, &goal.caiu_id).await;
            if let Some(row) = found.map_err(|error| store_failure(&error))? {
                return Ok(Some((id, row.entry.text)));
            }
        }
        Ok(None)
    }

    /// Finds entries by words, the best match first, each with the name by which the reader knows its
    /// knowledge base.
    ///
    /// # Errors
    /// KNOWLEDGE_BASE_NOT_FOUND, KNOWLEDGE_DENIED, or a storage that does not work.
    pub async fn query(
        &self,
        reader: &Reader,
        kb: &str,
        query: &str,
        limit: u32,
    ) -> Result<Vec<(EntryRow, String)>, Failure> {
        let bases = reader.readable(kb, self)?;
        let Some(expression) = knowledge::search(query) else {
            return Ok(Vec::new());
        };
        let ids: Vec<String> = bases.iter().map(|(id, _)| id.clone()).collect();
        let found = self
            .inner
            .store
            .find_entries(&ids, &expression, limit)
            .await;
        let found = found.map_err(|error| store_failure(&error))?.into_iter();
        let named = |row: EntryRow| {
            let mut all = bases.iter();
            let base = all.find(|(id, _)| *id == row.kb_id);
            let name = base.map_or(row.kb_id.clone(), |(_, name)| name.clone());
            (row, name)
        };
        Ok(found.map(named).collect())
    }

    /// Writes an entry. Returns the written entry, and whether the request was seen before.
    ///
    /// # Errors
    /// KNOWLEDGE_BASE_NOT_FOUND, KNOWLEDGE_DENIED, LIMIT_EXCEEDED, REQUEST_ID_REUSED, or a storage that does
    /// not work.
    pub async fn write(
        &self,
        writer: &Reader,
        mut new: NewEntry,
    ) -> Result<(WrittenEntry, bool), Failure> {
        let (kb_id, is_enabled) = writer.writable(&new.kb, self)?;
        let _one_at_a_time = self.inner.changing.lock().await;
        let store = &self.inner.store;
        if let Some(request) = &new.request {
            let seen = store
                .seen(Tenant::DEFAULT, request.within(WRITE, &kb_id))
                .await;
            match seen.map_err(|error| store_failure(&error))? {
                Seen::New => {}
                Seen::Same(written) => return Ok((read_written(&written)?, true)),
                Seen::OtherBody => return Err(request_id_reused(&request.id)),
            }
        }
        new.entry.is_enabled = is_enabled;
        let before = store.entry(&kb_id, &new.entry.caiu_id).await;
        let before = before.map_err(|error| store_failure(&error))?;
        if new.entry.caiu_id.is_empty() {
            new.entry.caiu_id = format!("caiu_{}", self.inner.ids.next_uuid().simple());
        } else {
            writer.check_replaces(&kb_id, &new.entry.caiu_id, before.as_ref())?;
        }
        let row = self
            .find(&kb_id)
            .await
            .map_err(|error| store_failure(&error))?;
        let count = row.map_or(0, |row| row.entries) as usize;
        if before.is_none() && count >= MAX_ENTRIES {
            return Err(Failure::limit_exceeded(
                "knowledge entries",
                MAX_ENTRIES,
                count + 1,
            ));
        }
        let (author, now) = (writer.author(), self.inner.clock.now());
        let request = new.request.as_ref();
        let written = store
            .put_entry(&kb_id, &new.entry, author, request, now)
            .await;
        Ok((written.map_err(|error| store_failure(&error))?, false))
    }

    async fn find(&self, id: &str) -> Result<Option<KnowledgeRow>, StoreError> {
        let all = self.inner.store.knowledge_bases().await?;
        Ok(all.into_iter().find(|row| row.id == id))
    }

    fn known<T>(&self, read: impl FnOnce(&KnownBase) -> T) -> T {
        let known = self.inner.known.read();
        read(&known.unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut KnownBase) -> T) -> T {
        let known = self.inner.known.write();
        change(&mut known.unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads the recorded answer to a request.
fn read_written(answer: &str) -> Result<WrittenEntry, Failure> {
    serde_json::from_str(answer).map_err(|_| {
        store_failure(&StoreError::Damaged {
            table: "request",
            column: "answer",
        })
    })
}

/// Reports a missing knowledge base or entry.
pub fn missing(kb: &str, known: &[&str]) -> Failure {
    let shown: String = kb.chars().take(80).collect();
    let hint = match known {
        [] => String::new(),
        known => format!("; this agent has {}", known.join(", ")),
    };
    let message = format!("no knowledge base or entry is called `{shown}`{hint}");
    Failure::new(Code::NotFound, ErrorReason::KnowledgeBaseNotFound, message)
        .metadata("kb", shown)
        .metadata("known", known.join(","))
}
