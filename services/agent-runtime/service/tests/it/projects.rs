//! Projects: stored byte for byte, with their references (rule G101).

use contracts::tavern::{
    agent::v1::{
        DeleteProjectRequest, GetProjectRequest, ListProjectRevisionsRequest, ListProjectsRequest,
        Project, PutProjectRequest, StartProjectRequest,
        project_service_client::ProjectServiceClient,
    },
    common::v1::ErrorReason,
};
use grpc_kit::Outbound;
use serde_json::{Value, json};
use tonic::Status;

use crate::{scenes, world::Running};

const WHISPERWOOD: &str = include_str!("../fixtures/whisperwood.project.json");

impl Running {
    fn projects(&self) -> ProjectServiceClient<Outbound> {
        ProjectServiceClient::new(grpc_kit::local(&self.runtime.services()).outermost())
    }

    async fn put_project(&self, text: &str, etag: &str) -> Result<Project, Status> {
        let request = PutProjectRequest {
            project_json: text.to_owned(),
            etag: etag.to_owned(),
            validate_only: false,
        };
        let put = self.projects().put_project(request).await?;
        Ok(put.into_inner().project.unwrap())
    }

    async fn project(&self, id: &str, revision: u64) -> Result<Project, Status> {
        let request = GetProjectRequest {
            project_id: id.to_owned(),
            revision,
        };
        let got = self.projects().get_project(request).await?;
        Ok(got.into_inner().project.unwrap())
    }

    async fn start_project(&self, id: &str) -> Result<String, Status> {
        let request = StartProjectRequest {
            project_id: id.to_owned(),
            ..StartProjectRequest::default()
        };
        let started = self.projects().start_project(request).await?;
        Ok(started.into_inner().run.unwrap().run_id)
    }
}

fn reason<T: std::fmt::Debug>(refused: Result<T, Status>) -> Option<ErrorReason> {
    grpc_kit::reason(&refused.unwrap_err())
}

#[tokio::test]
async fn g101_a_project_is_stored_as_the_bytes_that_came_and_what_is_missing_is_remarked() {
    let world = scenes::world(&scenes::scene(), &json!([]), &json!([]));
    let running = world.build().await;
    let stored = running.put_project(WHISPERWOOD, "").await.unwrap();
    assert_eq!(stored.project_json, WHISPERWOOD);
    assert_eq!(stored.profile_ids, ["elara_herbalist", "gm_storyteller"]);
    let missing: Vec<&str> = stored
        .diagnostics
        .iter()
        .map(|finding| finding.path.as_str())
        .collect();
    assert_eq!(
        missing,
        [
            "/agent_profiles/0/id",
            "/agent_profiles/1/id",
            "/knowledgeBaseReferences/0/source_id",
            "/knowledgeBaseReferences/1/source_id",
            "/default_scene_id"
        ]
    );
    let id = stored.project_id.as_str();
    assert_eq!(
        reason(running.start_project(id).await),
        Some(ErrorReason::SceneNotFound)
    );
    running.runtime.shutdown().await;
    let running = world.build().await;
    assert_eq!(running.project(id, 0).await.unwrap(), stored);
}

#[tokio::test]
async fn a_project_has_revisions_starts_its_scene_and_is_deleted_whole() {
    let running = scenes::world(&scenes::scene(), &json!([]), &json!([]));
    let running = running.build().await;
    let project = |name: &str| -> Value {
        json!({"id": "p", "name": name, "version": "1", "default_scene_id": "wood",
            "agent_profiles": [{"id": "gm", "path": "agent_profiles/gm.json"}]})
    };
    let first = running
        .put_project(&project("One").to_string(), "")
        .await
        .unwrap();
    assert_eq!(first.diagnostics, []);
    let stale = running
        .put_project(&project("Two").to_string(), "other")
        .await;
    assert_eq!(reason(stale), Some(ErrorReason::EtagMismatch));
    let second = running
        .put_project(&project("Two").to_string(), &first.etag)
        .await
        .unwrap();
    assert_eq!(second.diagnostics[0].code, "same_version");
    let list = ListProjectRevisionsRequest {
        project_id: "p".to_owned(),
        ..ListProjectRevisionsRequest::default()
    };
    let mut projects = running.projects();
    let list = projects
        .list_project_revisions(list)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(list.revisions.len(), 2);
    assert_eq!(running.project("p", 1).await.unwrap().name, "One");

    let run_id = running.start_project("p").await.unwrap();
    assert_eq!(running.status(&run_id).await.len(), 2);
    running.end_scene(&run_id).await;
    let mut delete = DeleteProjectRequest {
        project_id: "p".to_owned(),
        etag: "other".to_owned(),
    };
    let stale = projects.delete_project(delete.clone()).await;
    assert_eq!(reason(stale), Some(ErrorReason::EtagMismatch));
    delete.etag = running.project("p", 0).await.unwrap().etag;
    projects.delete_project(delete.clone()).await.unwrap();
    let again = projects.delete_project(delete).await;
    assert_eq!(reason(again), Some(ErrorReason::ProjectNotFound));
    assert_eq!(
        reason(running.project("p", 1).await),
        Some(ErrorReason::ProjectNotFound)
    );
}

#[tokio::test]
async fn projects_are_listed_by_page_also_where_they_are_large() {
    let running = scenes::world(&scenes::scene(), &json!([]), &json!([]));
    let running = running.build().await;
    for id in ["c", "a", "b", "d"] {
        let project = json!({"id": id, "description": "x".repeat(900_000)});
        running.put_project(&project.to_string(), "").await.unwrap();
    }
    let (mut ids, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListProjectsRequest {
            page_size: 3,
            page_token,
        };
        let page = running.projects().list_projects(request).await.unwrap();
        let page = page.into_inner();
        ids.extend(page.projects.into_iter().map(|project| project.project_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(ids, ["a", "b", "c", "d"]);
}
