//! ProjectService: what belongs together.

use agent_store::{
    projects::{KnownProject, Projects},
    revisions::DocumentKind,
};
use contracts::tavern::agent::v1::{
    self as proto, DeleteProjectRequest, DeleteProjectResponse, GetProjectRequest,
    GetProjectResponse, ListProjectRevisionsRequest, ListProjectRevisionsResponse,
    ListProjectsRequest, ListProjectsResponse, PutProjectRequest, PutProjectResponse,
    StartProjectRequest, StartProjectResponse, StartSceneRequest,
    project_service_server::ProjectService,
};
use grpc_kit::Failure;
use tonic::{Request, Response, Status};

use super::{
    SceneRpc,
    documents::{diagnostics_of, revision_to_proto, revisions_page},
};
use crate::error::{no_such_document, store_failure};

/// The most bytes of the projects of a page, apart from the last one.
const MAX_PAGE_BYTES: usize = 2 << 20;

/// The server side of ProjectService.
#[derive(Clone, Debug)]
pub struct ProjectRpc {
    projects: Projects,
    scenes: SceneRpc,
}

impl ProjectRpc {
    /// Serves these projects.
    pub fn new(projects: Projects, scenes: SceneRpc) -> Self {
        Self { projects, scenes }
    }

    async fn write(&self, known: KnownProject) -> Result<proto::Project, Failure> {
        let project = known.project;
        let remarks = self.projects.remarks(&project).await;
        let remarks = remarks.map_err(|error| store_failure(&error))?;
        Ok(proto::Project {
            diagnostics: diagnostics_of(&remarks, known.revision.as_ref()),
            etag: project.etag(),
            revision: known.revision.as_ref().map(revision_to_proto),
            project_id: project.id,
            name: project.name,
            description: project.description,
            default_scene_id: project.default_scene_id,
            profile_ids: project.profile_ids,
            kb_ids: project.kb_ids,
            project_json: project.text,
        })
    }

    async fn find(&self, id: &str, revision: u64) -> Result<KnownProject, Failure> {
        let found = self.projects.get(id, revision).await;
        let found = found.map_err(|error| store_failure(&error))?;
        found.ok_or_else(|| no_such_document(DocumentKind::Project, id, revision))
    }

    async fn put(&self, request: PutProjectRequest) -> Result<PutProjectResponse, Failure> {
        let projects = &self.projects;
        let put = projects.put(&request.project_json, &request.etag, request.validate_only);
        let known = put.await;
        let known = known.map_err(|error| error.into_failure("project_json"))?;
        Ok(PutProjectResponse {
            project: Some(self.write(known).await?),
        })
    }

    async fn list(&self, request: ListProjectsRequest) -> Result<ListProjectsResponse, Failure> {
        const LIST: &str = "projects";
        let after = super::page_after(LIST, &request.page_token)?;
        let size = core_types::page::page_size(request.page_size);
        let page = self
            .projects
            .page(after.as_deref(), size + 1, MAX_PAGE_BYTES);
        let page = page.await.map_err(|error| store_failure(&error))?;
        let bytes: usize = page.iter().map(|known| known.project.text.len()).sum();
        let mut projects = Vec::new();
        for known in page {
            projects.push(self.write(known).await?);
        }
        // A page that ends early has one more behind it, or an empty one.
        let size = match bytes > MAX_PAGE_BYTES {
            true => size.min(projects.len().saturating_sub(1).max(1)),
            false => size,
        };
        let (projects, next_page_token) =
            super::page(LIST, projects, size, |project: &proto::Project| {
                project.project_id.clone()
            });
        Ok(ListProjectsResponse {
            projects,
            next_page_token,
        })
    }

    async fn revisions(
        &self,
        request: ListProjectRevisionsRequest,
    ) -> Result<ListProjectRevisionsResponse, Failure> {
        let (id, kind) = (request.project_id, DocumentKind::Project);
        let place = (request.page_size, request.page_token.as_str());
        let page = revisions_page(self.projects.revisions(), kind, &id, place).await?;
        let (revisions, next_page_token) =
            page.ok_or_else(|| no_such_document(DocumentKind::Project, &id, 0))?;
        Ok(ListProjectRevisionsResponse {
            revisions,
            next_page_token,
        })
    }

    async fn start(&self, request: StartProjectRequest) -> Result<StartProjectResponse, Failure> {
        let known = self.find(&request.project_id, 0).await?;
        let scene = StartSceneRequest {
            request_id: request.request_id,
            scene_id: known.project.default_scene_id,
            timeout: request.timeout,
        };
        let started = self.scenes.start(scene).await?;
        Ok(StartProjectResponse {
            run: started.run,
            replayed: started.replayed,
        })
    }
}

#[tonic::async_trait]
impl ProjectService for ProjectRpc {
    async fn put_project(
        &self,
        request: Request<PutProjectRequest>,
    ) -> Result<Response<PutProjectResponse>, Status> {
        Ok(Response::new(self.put(request.into_inner()).await?))
    }

    async fn get_project(
        &self,
        request: Request<GetProjectRequest>,
    ) -> Result<Response<GetProjectResponse>, Status> {
        let request = request.into_inner();
        let known = self.find(&request.project_id, request.revision).await?;
        let project = Some(self.write(known).await?);
        Ok(Response::new(GetProjectResponse { project }))
    }

    async fn list_projects(
        &self,
        request: Request<ListProjectsRequest>,
    ) -> Result<Response<ListProjectsResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn list_project_revisions(
        &self,
        request: Request<ListProjectRevisionsRequest>,
    ) -> Result<Response<ListProjectRevisionsResponse>, Status> {
        Ok(Response::new(self.revisions(request.into_inner()).await?))
    }

    async fn delete_project(
        &self,
        request: Request<DeleteProjectRequest>,
    ) -> Result<Response<DeleteProjectResponse>, Status> {
        let DeleteProjectRequest {
            project_id: id,
            etag,
        } = request.into_inner();
        let deleted = self.projects.delete(&id, &etag).await;
        match deleted.map_err(|error| error.into_failure(""))? {
            true => Ok(Response::new(DeleteProjectResponse {})),
            false => Err(no_such_document(DocumentKind::Project, &id, 0).into()),
        }
    }

    async fn start_project(
        &self,
        request: Request<StartProjectRequest>,
    ) -> Result<Response<StartProjectResponse>, Status> {
        Ok(Response::new(self.start(request.into_inner()).await?))
    }
}
