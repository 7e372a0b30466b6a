//! Revisions of profiles, scenes and projects (rules G101 to G104).

use std::{collections::BTreeMap, sync::Arc};

use core_types::{Clock, LoadDiagnostic, LoadSeverity};
use run_events::{RunMeta, Runs};
use serde_json::Value;

use crate::store::{AgentStore, NewRevision, RevisionRow, StoreError};

/// How many revisions of a document are kept without a run that uses them.
const KEPT: u64 = 100;

/// The kinds of documents that have revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// An agent profile.
    Profile,
    /// A scene.
    Scene,
    /// A project.
    Project,
}

/// The revisions. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Revisions {
    store: AgentStore,
    runs: Runs,
    clock: Arc<dyn Clock>,
}

impl DocumentKind {
    /// Returns the word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Scene => "scene",
            Self::Project => "project",
        }
    }

    /// Returns the revisions of a document that a run uses.
    fn used(self, id: &str, meta: &RunMeta) -> Vec<u64> {
        let data = &meta.data;
        let own = |key: &str| (meta.subject == id).then(|| data[key].as_u64());
        let own = match self {
            Self::Profile => own("profile_revision"),
            Self::Scene => own("scene_revision"),
            Self::Project => None,
        };
        let pinned = match (self, data["scene"].as_str()) {
            (Self::Profile, Some(scene)) => pins(scene, id),
            _ => Vec::new(),
        };
        own.flatten().into_iter().chain(pinned).collect()
    }
}

/// Returns the revisions of a profile that a scene pins for its agents.
fn pins(scene: &str, profile_id: &str) -> Vec<u64> {
    let scene: Value = serde_json::from_str(scene).unwrap_or_default();
    let instances = scene["agent_instances"].as_array().into_iter().flatten();
    let of_profile = instances.filter(|instance| instance["profile_id"] == profile_id);
    let pinned = of_profile.filter_map(|instance| {
        instance["custom_runtime_config"]["tavern"]["profile_revision"].as_u64()
    });
    pinned.collect()
}

impl Revisions {
    /// Takes the store, and the runs that use revisions.
    pub fn new(store: AgentStore, runs: Runs, clock: Arc<dyn Clock>) -> Self {
        Self { store, runs, clock }
    }

    /// Returns the newest revision of each document, by id.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn newest(
        &self,
        kind: DocumentKind,
    ) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
        self.store.newest_revisions(kind.as_str()).await
    }

    /// Returns a revision with its text, the newest if none is named; none if it is not kept.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn at(
        &self,
        kind: DocumentKind,
        id: &str,
        number: Option<u64>,
    ) -> Result<Option<(RevisionRow, String)>, StoreError> {
        self.store.revision(kind.as_str(), id, number).await
    }

    /// Returns at most `limit` revisions, the newest first, those before `before`.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn list(
        &self,
        kind: DocumentKind,
        id: &str,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RevisionRow>, StoreError> {
        let store = &self.store;
        store.revisions(kind.as_str(), id, before, limit).await
    }

    /// Notes that documents came into force; those whose newest revision says so already change nothing.
    /// Returns their revisions by id. Revisions that are no longer kept are deleted.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn note(
        &self,
        kind: DocumentKind,
        new: Vec<NewRevision>,
    ) -> Result<BTreeMap<String, RevisionRow>, StoreError> {
        if new.is_empty() {
            return Ok(BTreeMap::new());
        }
        let now = self.clock.now();
        let added = self.store.add_revisions(kind.as_str(), &new, now).await?;
        for (document, row) in new.iter().zip(&added) {
            if let Some(oldest) = row.number.checked_sub(KEPT).filter(|oldest| *oldest > 0) {
                self.delete_unused(kind, &document.id, oldest).await?;
            }
        }
        Ok(new
            .into_iter()
            .map(|document| document.id)
            .zip(added)
            .collect())
    }

    /// Deletes the revisions of a document that was deleted, but for those that runs use.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn forget(&self, kind: DocumentKind, id: &str) -> Result<(), StoreError> {
        self.delete_unused(kind, id, u64::MAX).await
    }

    async fn delete_unused(
        &self,
        kind: DocumentKind,
        id: &str,
        up_to: u64,
    ) -> Result<(), StoreError> {
        let runs = &self.runs;
        let used = runs.metas_of_open_runs(|meta| Some(kind.used(id, meta)));
        let used: Vec<Vec<u64>> = match used.await {
            Ok(used) => used,
            Err(failure) => {
                let status = failure.into_status();
                let error = status.message();
                tracing::warn!(
                    id,
                    error,
                    "revisions are kept, as it is not known whether they are used"
                );
                return Ok(());
            }
        };
        let used = used.concat();
        self.store
            .delete_revisions(kind.as_str(), id, up_to, &used)
            .await
    }
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
