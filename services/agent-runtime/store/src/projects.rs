//! The projects. Each is stored as its newest revision.

use std::{ops::Bound, sync::Arc};

use agent_domain::project::{self, Project};
use core_types::{LoadDiagnostic, Reference, ReferenceKind};
use tokio::sync::Mutex;

use crate::{
    error::PutError,
    knowledge::Knowledge,
    profiles::Profiles,
    revisions::{DocumentKind, Revisions},
    scenes::Scenes,
    store::{NewRevision, RevisionRow, StoreError},
};

const KIND: DocumentKind = DocumentKind::Project;

/// The projects. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Projects {
    revisions: Revisions,
    profiles: Profiles,
    scenes: Scenes,
    knowledge: Knowledge,
    /// One change at a time: checking an etag and storing are one step. Held across the commit.
    changing: Arc<Mutex<()>>,
}

/// A project at a revision.
#[derive(Clone, Debug)]
pub struct KnownProject {
    /// The project.
    pub project: Project,
    /// The revision; none of a project that was only checked.
    pub revision: Option<RevisionRow>,
}

impl Projects {
    /// Takes what projects are kept with and name.
    pub fn new(
        revisions: Revisions,
        profiles: Profiles,
        scenes: Scenes,
        knowledge: Knowledge,
    ) -> Self {
        Self {
            revisions,
            profiles,
            scenes,
            knowledge,
            changing: Arc::default(),
        }
    }

    /// Stores a project, or checks it only.
    ///
    /// # Errors
    /// Everything that is wrong with it, or why it is not stored.
    pub async fn put(
        &self,
        text: &str,
        etag: &str,
        validate_only: bool,
    ) -> Result<KnownProject, PutError> {
        let project = project::read(text)?;
        let _one_at_a_time = self.changing.lock().await;
        let current = self.get(&project.id, 0).await?;
        let current = current.map(|known| known.project.etag());
        let current = current.unwrap_or_default();
        PutError::check_etag(etag, current)?;
        let revision = match validate_only {
            true => None,
            false => {
                let new = NewRevision {
                    id: project.id.clone(),
                    etag: project.etag(),
                    label: project.version.clone(),
                    from_file: false,
                    text: text.to_owned(),
                };
                self.revisions
                    .note(KIND, vec![new])
                    .await?
                    .remove(&project.id)
            }
        };
        Ok(KnownProject { project, revision })
    }

    /// Returns a project at a revision, zero for the newest; none if it is not kept.
    ///
    /// # Errors
    /// A store that does not work, or a revision that can no longer be read.
    pub async fn get(&self, id: &str, revision: u64) -> Result<Option<KnownProject>, StoreError> {
        let number = (revision > 0).then_some(revision);
        let Some((row, text)) = self.revisions.at(KIND, id, number).await? else {
            return Ok(None);
        };
        let damaged = StoreError::Damaged {
            table: "revisions",
            column: "text",
        };
        Ok(Some(KnownProject {
            project: project::read(&text).map_err(|_| damaged)?,
            revision: Some(row),
        }))
    }

    /// Returns projects by id, those after `after`: at most `limit`, and no more than about `most_bytes`.
    ///
    /// # Errors
    /// A store that does not work, or a revision that can no longer be read.
    pub async fn page(
        &self,
        after: Option<&str>,
        limit: usize,
        most_bytes: usize,
    ) -> Result<Vec<KnownProject>, StoreError> {
        let newest = self.revisions.newest(KIND).await?;
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = newest.range::<str, _>((after, Bound::Unbounded));
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (id, _) in ids.take(limit) {
            if let Some(known) = self.get(id, 0).await? {
                bytes += known.project.text.len();
                page.push(known);
            }
            if bytes > most_bytes {
                break;
            }
        }
        Ok(page)
    }

    /// Returns where the revisions are kept.
    pub fn revisions(&self) -> &Revisions {
        &self.revisions
    }

    /// Deletes a project. Returns whether there was one.
    ///
    /// # Errors
    /// Another etag, or a store that does not work.
    pub async fn delete(&self, id: &str, etag: &str) -> Result<bool, PutError> {
        let _one_at_a_time = self.changing.lock().await;
        let Some(known) = self.get(id, 0).await? else {
            return Ok(false);
        };
        PutError::check_etag(etag, known.project.etag())?;
        self.revisions.forget(KIND, id).await?;
        Ok(true)
    }

    /// Finds what a project names and is not there (rule G108).
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn remarks(&self, project: &Project) -> Result<Vec<LoadDiagnostic>, StoreError> {
        let mut remarks = Vec::new();
        let mut remark = |place: String, kind: ReferenceKind, id: &str| {
            remarks.push(Reference::new(place, kind, id).missing());
        };
        for (index, id) in project.profile_ids.iter().enumerate() {
            if self.profiles.get(id).is_none() {
                remark(
                    format!("/agent_profiles/{index}/id"),
                    ReferenceKind::Profile,
                    id,
                );
            }
        }
        for (index, id) in project.kb_ids.iter().enumerate() {
            if !self.knowledge.is_known(id) {
                let place = format!("/knowledgeBaseReferences/{index}/source_id");
                remark(place, ReferenceKind::Knowledge, id);
            }
        }
        let scene = project.default_scene_id.as_str();
        if !scene.is_empty() && self.scenes.get(scene).await?.is_none() {
            remark("/default_scene_id".to_owned(), ReferenceKind::Scene, scene);
        }
        remarks.truncate(LoadDiagnostic::MAX);
        Ok(remarks)
    }
}
