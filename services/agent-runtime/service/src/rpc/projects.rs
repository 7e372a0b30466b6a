//! ProjectService: profiles, knowledge bases and a first scene under one name.

use agent_store::projects::{KnownProject, ProjectParts, Projects};
use contracts::tavern::agent::v1::{
    self as proto, DeleteProjectRequest, DeleteProjectResponse, GetProjectRequest,
    GetProjectResponse, ListProjectRevisionsRequest, ListProjectRevisionsResponse,
    ListProjectsRequest, ListProjectsResponse, PutProjectRequest, PutProjectResponse,
    StartProjectRequest, StartProjectResponse, StartSceneRequest,
    project_service_server::ProjectService,
};
use core_types::Tenant;
use documents::Put;
use grpc_kit::{CallContext, Failure};
use tonic::{Request, Response, Status};

use super::{
    SceneRpc,
    documents::{change_failure, diagnostics_of, revision_to_proto, revisions_page},
};
use crate::error::{no_such_document, store_failure};

/// The kind of document.
const PROJECT: &str = "project";

/// The server side of ProjectService.
#[derive(Clone, Debug)]
pub struct ProjectRpc {
    projects: Projects,
    parts: ProjectParts,
    scenes: SceneRpc,
}

impl ProjectRpc {
    /// Serves these projects.
    pub fn new(projects: Projects, parts: ProjectParts, scenes: SceneRpc) -> Self {
        Self {
            projects,
            parts,
            scenes,
        }
    }

    async fn write(&self, tenant: Tenant, known: KnownProject) -> Result<proto::Project, Failure> {
        let project = known.document.as_ref().clone();
        let remarks = self.parts.remarks(tenant, &project).await;
        let remarks = remarks.map_err(|error| store_failure(&error))?;
        Ok(proto::Project {
            diagnostics: diagnostics_of(&remarks, known.revision.as_ref()),
            etag: project.etag(),
            shared: known.is_shared,
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

    async fn find(&self, tenant: Tenant, id: &str, revision: u64) -> Result<KnownProject, Failure> {
        let found = self.projects.at(tenant, id, revision).await;
        let found = found.map_err(|error| store_failure(&error))?;
        found.ok_or_else(|| no_such_document(PROJECT, id, revision))
    }

    async fn put(
        &self,
        tenant: Tenant,
        request: PutProjectRequest,
    ) -> Result<PutProjectResponse, Failure> {
        let put = Put {
            id: "",
            text: &request.project_json,
            etag: &request.etag,
            validate_only: request.validate_only,
            request: None,
        };
        let put = self.projects.put(tenant, put).await;
        let (known, _) = put.map_err(|error| change_failure(PROJECT, "", "", error))?;
        Ok(PutProjectResponse {
            project: Some(self.write(tenant, known).await?),
        })
    }

    async fn list(
        &self,
        tenant: Tenant,
        request: ListProjectsRequest,
    ) -> Result<ListProjectsResponse, Failure> {
        let listed = self
            .projects
            .list(tenant, &request.page_token, request.page_size);
        let listed = listed.await?;
        let mut projects = Vec::with_capacity(listed.entries.len());
        for known in listed.entries {
            projects.push(self.write(tenant, known).await?);
        }
        Ok(ListProjectsResponse {
            projects,
            next_page_token: listed.next_page_token,
        })
    }

    async fn revisions(
        &self,
        tenant: Tenant,
        request: ListProjectRevisionsRequest,
    ) -> Result<ListProjectRevisionsResponse, Failure> {
        let id = request.project_id;
        let place = (request.page_size, request.page_token.as_str());
        let page = revisions_page(&self.projects, tenant, &id, place).await?;
        let (revisions, next_page_token) = page.ok_or_else(|| no_such_document(PROJECT, &id, 0))?;
        Ok(ListProjectRevisionsResponse {
            revisions,
            next_page_token,
        })
    }

    async fn start(
        &self,
        context: CallContext,
        request: StartProjectRequest,
    ) -> Result<StartProjectResponse, Failure> {
        let known = self.find(context.tenant(), &request.project_id, 0).await?;
        let scene = StartSceneRequest {
            request_id: request.request_id,
            scene_id: known.document.default_scene_id.clone(),
            timeout: request.timeout,
        };
        let started = self.scenes.start(context, scene).await?;
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
        let tenant = CallContext::of(&request).tenant();
        Ok(Response::new(self.put(tenant, request.into_inner()).await?))
    }

    async fn get_project(
        &self,
        request: Request<GetProjectRequest>,
    ) -> Result<Response<GetProjectResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let request = request.into_inner();
        let known = self
            .find(tenant, &request.project_id, request.revision)
            .await?;
        let project = Some(self.write(tenant, known).await?);
        Ok(Response::new(GetProjectResponse { project }))
    }

    async fn list_projects(
        &self,
        request: Request<ListProjectsRequest>,
    ) -> Result<Response<ListProjectsResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let listed = self.list(tenant, request.into_inner()).await?;
        Ok(Response::new(listed))
    }

    async fn list_project_revisions(
        &self,
        request: Request<ListProjectRevisionsRequest>,
    ) -> Result<Response<ListProjectRevisionsResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let revisions = self.revisions(tenant, request.into_inner()).await?;
        Ok(Response::new(revisions))
    }

    async fn delete_project(
        &self,
        request: Request<DeleteProjectRequest>,
    ) -> Result<Response<DeleteProjectResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let DeleteProjectRequest {
            project_id: id,
            etag,
        } = request.into_inner();
        let deleted = self.projects.delete(tenant, &id, &etag).await;
        deleted.map_err(|error| change_failure(PROJECT, &id, "", error))?;
        Ok(Response::new(DeleteProjectResponse {}))
    }

    async fn start_project(
        &self,
        request: Request<StartProjectRequest>,
    ) -> Result<Response<StartProjectResponse>, Status> {
        let context = CallContext::of(&request);
        let started = self.start(context, request.into_inner()).await?;
        Ok(Response::new(started))
    }
}
