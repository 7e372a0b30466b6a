//! The projects.

use agent_domain::{
    document::DocumentError,
    project::{self, Project},
};
use core_types::{LoadDiagnostic, Reference, ReferenceKind, Tenant};
use documents::{Documents, Kind, Known, StoreError};

use crate::{knowledge::Knowledge, profiles::Profiles, scenes::Scenes};

/// The projects, all put by clients.
pub type Projects = Documents<ProjectKind>;

/// A project in force.
pub type KnownProject = Known<Project>;

/// Projects as documents. No file holds one.
#[derive(Clone, Copy, Debug)]
pub struct ProjectKind;

impl Kind for ProjectKind {
    type Document = Project;
    type Invalid = DocumentError;

    const NAME: &'static str = "project";
    const MAX_BYTES: usize = 0;
    const REVISIONS: bool = true;

    fn id(project: &Project) -> &str {
        &project.id
    }

    fn text(project: &Project) -> &str {
        &project.text
    }

    fn etag(project: &Project) -> String {
        project.etag()
    }

    fn label(project: &Project) -> &str {
        &project.version
    }

    fn read(&self, _id: &str, text: &str) -> Result<Project, DocumentError> {
        project::read(text)
    }

    fn unreadable(&self, problem: String) -> DocumentError {
        DocumentError::whole(problem)
    }
}

/// The documents that projects name.
#[derive(Clone, Debug)]
pub struct ProjectParts {
    /// The profiles.
    pub profiles: Profiles,
    /// The scenes.
    pub scenes: Scenes,
    /// The knowledge bases.
    pub knowledge: Knowledge,
}

impl ProjectParts {
    /// Finds the documents that a project names and that its reader does not have (rule G108).
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn remarks(
        &self,
        tenant: Tenant,
        project: &Project,
    ) -> Result<Vec<LoadDiagnostic>, StoreError> {
        let mut remarks = Vec::new();
        let mut remark = |place: String, kind: ReferenceKind, id: &str| {
            remarks.push(Reference::new(place, kind, id).missing());
        };
        for (index, id) in project.profile_ids.iter().enumerate() {
            if self.profiles.get(tenant, id).await?.is_none() {
                let place = format!("/agent_profiles/{index}/id");
                remark(place, ReferenceKind::Profile, id);
            }
        }
        for (index, id) in project.kb_ids.iter().enumerate() {
            if !self.knowledge.is_known(tenant, id) {
                let place = format!("/knowledgeBaseReferences/{index}/source_id");
                remark(place, ReferenceKind::Knowledge, id);
            }
        }
        let scene = project.default_scene_id.as_str();
        if !scene.is_empty() && self.scenes.get(tenant, scene).await?.is_none() {
            remark("/default_scene_id".to_owned(), ReferenceKind::Scene, scene);
        }
        remarks.truncate(LoadDiagnostic::MAX);
        Ok(remarks)
    }
}
