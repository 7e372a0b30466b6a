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
    knowledge::{Entry, GoalReference, KnowledgeBase, MAX_ENTRIES},
    profile::Profile,
};
use contracts::tavern::common::v1::ErrorReason;
use core_types::{Clock, IdSource, LoadDiagnostic, Tenant};
use documents::{ChangeError, Seen, change::request_id_reused, files::Fingerprint};
use grpc_kit::Failure;
use run_events::store_failure;
use search_words::Terms;
use tokio::sync::Mutex;
use tonic::Code;

use crate::store::{
    EntryRow, KnowledgeIndex, KnowledgeRow, NamedRequest, StoreError, WRITE, WrittenEntry,
};

use access::ReadableBase;
pub use access::{Reader, denied};

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
    ids: BTreeSet<(Tenant, String)>,
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

    /// Stores the knowledge bases of the directory's files, which belong to [`Tenant::DEFAULT`], unless they are stored
    /// already.
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
        let tenant = Tenant::DEFAULT;
        let stored = store.knowledge_bases(tenant).await?;
        for base in &bases {
            let known = stored.iter().find(|row| row.id == base.id);
            if known.is_none_or(|row| row.from_file && row.etag != base.etag) {
                let now = self.inner.clock.now();
                store.put_knowledge_base(tenant, base, true, now).await?;
            }
        }
        let ids = store.knowledge_ids().await?.into_iter().collect();
        self.change(|known| {
            *known = KnownBase {
                ids,
                left_out,
                fingerprint,
            }
        });
        Ok(())
    }

    /// Stores a knowledge base of a tenant, or only checks it.
    ///
    /// # Errors
    /// The reason for not storing it.
    pub async fn put(
        &self,
        tenant: Tenant,
        base: KnowledgeBase,
        etag: &str,
        validate_only: bool,
    ) -> Result<KnowledgeRow, ChangeError<DocumentError>> {
        let _one_at_a_time = self.inner.changing.lock().await;
        let store = &self.inner.store;
        let current = self.find(tenant, &base.id).await?;
        let current = current.map(|row| row.etag).unwrap_or_default();
        ChangeError::check_etag(etag, &current)?;
        if !validate_only {
            let now = self.inner.clock.now();
            store.put_knowledge_base(tenant, &base, false, now).await?;
            self.change(|known| known.ids.insert((tenant, base.id.clone())));
            if let Some(row) = self.find(tenant, &base.id).await? {
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
            is_shared: false,
        })
    }

    /// Forgets the knowledge bases of a tenant that is being removed; the store removes them.
    pub fn forget(&self, tenant: Tenant) {
        self.change(|known| known.ids.retain(|(of, _)| *of != tenant));
    }

    /// Deletes a knowledge base of a tenant. Returns whether it existed.
    ///
    /// # Errors
    /// Another etag, a shared knowledge base, or a store that does not work.
    pub async fn delete(
        &self,
        tenant: Tenant,
        id: &str,
        etag: &str,
    ) -> Result<bool, ChangeError<DocumentError>> {
        let _one_at_a_time = self.inner.changing.lock().await;
        let Some(row) = self.find(tenant, id).await? else {
            return match self.home(tenant, id) {
                Some(_) => Err(ChangeError::IsShared),
                None => Ok(false),
            };
        };
        ChangeError::check_etag(etag, &row.etag)?;
        let deleted = self.inner.store.delete_knowledge_base(tenant, id).await?;
        self.change(|known| {
            known.ids.remove(&(tenant, id.to_owned()));
            // A file that was hidden is read again.
            known.fingerprint = Fingerprint::default();
        });
        Ok(deleted)
    }

    /// Deletes an entry. Returns whether it existed.
    ///
    /// # Errors
    /// KNOWLEDGE_DENIED for an entry of a shared knowledge base, or a storage that does not work.
    pub async fn delete_entry(
        &self,
        tenant: Tenant,
        id: &str,
        caiu_id: &str,
    ) -> Result<bool, Failure> {
        let _one_at_a_time = self.inner.changing.lock().await;
        let Some(home) = self.home(tenant, id) else {
            return Ok(false);
        };
        if home != tenant {
            return Err(access::shared(id));
        }
        let deleted = self.inner.store.delete_entry(tenant, id, caiu_id).await;
        deleted.map_err(|error| store_failure(&error))
    }

    /// Returns every knowledge base that a tenant reads, by id: its own, and each shared one whose id no own one has.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn all(&self, tenant: Tenant) -> Result<Vec<KnowledgeRow>, StoreError> {
        let mut all = self.inner.store.knowledge_bases(tenant).await?;
        if tenant != Tenant::SYSTEM {
            let mut shared = self.inner.store.knowledge_bases(Tenant::SYSTEM).await?;
            shared.retain(|row| !all.iter().any(|own| own.id == row.id));
            all.extend(shared.into_iter().map(|row| KnowledgeRow {
                is_shared: true,
                ..row
            }));
            all.sort_by(|one, other| one.id.cmp(&other.id));
        }
        Ok(all)
    }

    /// Returns a finding for each file of a tenant that was left out: all files belong to [`Tenant::DEFAULT`].
    pub fn left_out(&self, tenant: Tenant) -> Vec<LoadDiagnostic> {
        match tenant.is_default() {
            true => self.known(|known| known.left_out.clone()),
            false => Vec::new(),
        }
    }

    /// Whether a tenant reads a knowledge base with this id.
    pub fn is_known(&self, tenant: Tenant, id: &str) -> bool {
        self.home(tenant, id).is_some()
    }

    /// Returns the tenant whose knowledge base another one reads under an id: its own, else the shared one.
    fn home(&self, tenant: Tenant, id: &str) -> Option<Tenant> {
        let mut homes = [tenant, Tenant::SYSTEM].into_iter();
        self.known(|known| homes.find(|home| known.ids.contains(&(*home, id.to_owned()))))
    }

    /// Returns at most `limit` entries after `after`, by id.
    ///
    /// # Errors
    /// KNOWLEDGE_BASE_NOT_FOUND, or a storage that does not work.
    pub async fn entries(
        &self,
        tenant: Tenant,
        id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<EntryRow>, Failure> {
        let home = self.home(tenant, id).ok_or_else(|| missing(id, &[]))?;
        let entries = self.inner.store.entries(home, id, after, limit).await;
        entries.map_err(|error| store_failure(&error))
    }

    /// Returns the text of the goals of a profile or a scene, each with the id of its knowledge base; none
    /// for a missing goal (rule G106).
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn goal_text(
        &self,
        tenant: Tenant,
        profile: &Profile,
        goal: &GoalReference,
    ) -> Result<Option<(String, String)>, Failure> {
        for id in goal_bases(profile, goal) {
            let Some(home) = self.home(tenant, &id) else {
                continue;
            };
            let found = self.inner.store.entry(home, &id, &goal.caiu_id).await;
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
        let Some(terms) = Terms::of(query) else {
            return Ok(Vec::new());
        };
        let store = &self.inner.store;
        let mut found = Vec::new();
        let homes: BTreeSet<Tenant> = bases.iter().map(|base| base.home).collect();
        for home in homes {
            let there = bases.iter().filter(|base| base.home == home);
            let there: Vec<&ReadableBase> = there.collect();
            let ids: Vec<&str> = there.iter().map(|base| base.id.as_str()).collect();
            let rows = store.find_entries(home, &ids, &terms, limit).await;
            for (rank, row) in rows.map_err(|error| store_failure(&error))? {
                let base = there.iter().find(|base| base.id == row.kb_id);
                let name = base.map_or(row.kb_id.clone(), |base| base.name.clone());
                found.push((rank, row, name));
            }
        }
        // Each home lists its best first, and the ranks of two differ little for equal texts.
        found.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        found.truncate(limit as usize);
        let found = found.into_iter();
        Ok(found.map(|(_, row, name)| (row, name)).collect())
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
        let tenant = writer.tenant();
        let _one_at_a_time = self.inner.changing.lock().await;
        let store = &self.inner.store;
        if let Some(request) = &new.request {
            let seen = store.seen(tenant, request.within(WRITE, &kb_id)).await;
            match seen.map_err(|error| store_failure(&error))? {
                Seen::New => {}
                Seen::Same(written) => return Ok((read_written(&written)?, true)),
                Seen::OtherBody => return Err(request_id_reused(&request.id)),
            }
        }
        new.entry.is_enabled = is_enabled;
        let before = store.entry(tenant, &kb_id, &new.entry.caiu_id).await;
        let before = before.map_err(|error| store_failure(&error))?;
        if new.entry.caiu_id.is_empty() {
            new.entry.caiu_id = format!("caiu_{}", self.inner.ids.next_uuid().simple());
        } else {
            writer.check_replaces(
                &kb_id,
                &new.entry.caiu_id,
                before.as_ref().map(|row| row.author.as_str()),
            )?;
        }
        let row = self.find(tenant, &kb_id).await;
        let row = row.map_err(|error| store_failure(&error))?;
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
        let kb = (tenant, kb_id.as_str());
        let written = store.put_entry(kb, &new.entry, author, request, now).await;
        Ok((written.map_err(|error| store_failure(&error))?, false))
    }

    async fn find(&self, tenant: Tenant, id: &str) -> Result<Option<KnowledgeRow>, StoreError> {
        let all = self.inner.store.knowledge_bases(tenant).await?;
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

/// Returns the ids of the knowledge bases in which the goal of a profile may be.
pub fn goal_bases(profile: &Profile, goal: &GoalReference) -> Vec<String> {
    let mut all = profile.knowledge.iter();
    match &goal.kb {
        None => all.map(|known| known.source_id.clone()).collect(),
        Some(kb) => {
            let known = all.find(|known| known.alias == *kb || known.source_id == *kb);
            vec![known.map_or(kb.clone(), |known| known.source_id.clone())]
        }
    }
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
