//! `tavern projects`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use contracts::tavern::agent::v1::project_service_client::ProjectServiceClient;
use contracts::tavern::agent::v1::{
    DeleteProjectRequest, GetProjectRequest, ListProjectRevisionsRequest, ListProjectsRequest,
    Project, PutProjectRequest, StartProjectRequest,
};

use super::{Remote, documents, json, list, print, refusal, runs};

/// The commands about projects.
#[derive(Subcommand)]
pub enum Command {
    /// List projects by id.
    List,
    /// Print a project as it was written.
    Show {
        /// The id of the project.
        project_id: String,
        /// The revision. Default: the one in force.
        #[arg(long)]
        revision: Option<u64>,
    },
    /// List the revisions of a project that are kept, the newest first.
    Revisions {
        /// The id of the project.
        project_id: String,
    },
    /// Store a `project.json`, in place of the project with the same id, and print its missing
    /// documents.
    Put {
        /// A project file.
        file: PathBuf,
    },
    /// Start the scene of a project, and print its run.
    Start {
        /// The id of the project.
        project_id: String,
        /// The request id; the same id returns the same run.
        #[arg(long)]
        request_id: Option<String>,
        /// Follow the scene to its end.
        #[arg(long)]
        follow: bool,
    },
    /// Delete a project. The documents that it names stay.
    Delete {
        /// The id of the project.
        project_id: String,
    },
}

type Projects = ProjectServiceClient<grpc_kit::Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut projects = Projects::new(remote.connect()?);
        let refused = |status: tonic::Status| refusal(&status);
        match self {
            Self::List => list(&mut projects, remote.json).await?,
            Self::Show {
                project_id,
                revision,
            } => {
                let request = GetProjectRequest {
                    project_id,
                    revision: revision.unwrap_or_default(),
                };
                let found = projects.get_project(request).await.map_err(refused)?;
                let project = found.into_inner().project;
                let project = project.context("the answer has no project")?;
                documents::show(remote.json, &project, &project.project_json)?;
            }
            Self::Revisions { project_id } => {
                documents::print_revisions(remote.json, async |page_token| {
                    let request = ListProjectRevisionsRequest {
                        project_id: project_id.clone(),
                        page_token,
                        ..ListProjectRevisionsRequest::default()
                    };
                    let page = projects.list_project_revisions(request).await?.into_inner();
                    Ok((page.revisions, page.next_page_token))
                })
                .await?;
            }
            Self::Put { file } => {
                let request = PutProjectRequest {
                    project_json: documents::read(&file)?,
                    ..PutProjectRequest::default()
                };
                let stored = projects.put_project(request).await.map_err(refused)?;
                let project = stored.into_inner().project;
                let project = project.context("the answer has no project")?;
                if remote.json {
                    json::print_line(&project)?;
                } else {
                    print(&format!("{}\n", project.project_id));
                    documents::remarks(&project.diagnostics);
                }
            }
            Self::Start {
                project_id,
                request_id,
                follow,
            } => {
                let request = StartProjectRequest {
                    request_id: request_id.unwrap_or_default(),
                    project_id,
                    timeout: None,
                };
                let started = projects.start_project(request).await.map_err(refused)?;
                return runs::started(remote, started.into_inner().run, follow).await;
            }
            Self::Delete { project_id } => {
                let request = DeleteProjectRequest {
                    project_id,
                    etag: String::new(),
                };
                projects.delete_project(request).await.map_err(refused)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(projects: &mut Projects, as_json: bool) -> anyhow::Result<()> {
    let row = |project: &Project| {
        [
            project.project_id.clone(),
            project.name.clone(),
            project.default_scene_id.clone(),
            project.profile_ids.join(", "),
            project.kb_ids.join(", "),
        ]
    };
    let head = ["PROJECT", "NAME", "SCENE", "PROFILES", "KNOWLEDGE"];
    list::print_all(as_json, head, row, async |page_token| {
        let request = ListProjectsRequest {
            page_token,
            ..ListProjectsRequest::default()
        };
        let page = projects.list_projects(request).await?.into_inner();
        Ok((page.projects, page.next_page_token))
    })
    .await
}
