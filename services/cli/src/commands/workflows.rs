//! `tavern workflows`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use contracts::tavern::common::v1::{LoadDiagnostic, NodeCache};
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use contracts::tavern::workflow::v1::{
    DeleteWorkflowRequest, GetWorkflowRequest, ListNodeTypesRequest, ListWorkflowsRequest,
    NodeType, OnConflict, PutWorkflowRequest, RunConcurrency, StartRunRequest,
    ValidateWorkflowRequest, Workflow, WorkflowForecast, start_run_request::Target,
};

use super::documents::{read, remarks, source};
use super::{Remote, documents, json, list, print, print_table, refusal, runs};
use crate::timeline::name;

/// The commands about workflows.
#[derive(Subcommand)]
pub enum Command {
    /// List workflows by id.
    List,
    /// Print the definition of a workflow.
    Show {
        /// The id of the workflow.
        workflow_id: String,
    },
    /// Check a file and print every fault.
    Check {
        /// A workflow file.
        file: PathBuf,
        /// The inputs of a run, a JSON object: also print the results that it would reuse.
        #[arg(long)]
        inputs: Option<String>,
        /// The workflow whose cached results count.
        #[arg(long, requires = "inputs")]
        id: Option<String>,
    },
    /// Store a file as a workflow, in place of the workflow with the same id.
    Put {
        /// A workflow file.
        file: PathBuf,
        /// The id. Default: the file's name without its ending.
        #[arg(long)]
        id: Option<String>,
    },
    /// Run a workflow and follow the run to its end.
    Run {
        /// The id of the workflow.
        workflow_id: String,
        /// The inputs: a JSON object.
        #[arg(default_value = "{}")]
        inputs: String,
        /// The request id; the same id with the same inputs returns the same run.
        #[arg(long)]
        request_id: Option<String>,
        /// A concurrency key: runs with the same key run one at a time.
        #[arg(long)]
        key: Option<String>,
        /// The action while another run holds the key.
        #[arg(long, value_enum, default_value_t, requires = "key")]
        on_conflict: Conflict,
        /// The priority among the runs that are queued, 0 to 9.
        #[arg(long, default_value_t = 0)]
        priority: u32,
    },
    /// Delete a stored workflow.
    Delete {
        /// The id of the workflow.
        workflow_id: String,
    },
    /// List the types of nodes.
    Nodes,
}

/// The action while another run holds the key.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub enum Conflict {
    /// Queue the run.
    #[default]
    Queue,
    /// Refuse the run.
    Reject,
    /// Cancel the other runs.
    CancelRunning,
}

type Workflows = WorkflowServiceClient<grpc_kit::Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut workflows = Workflows::new(remote.connect()?);
        match self {
            Self::List => list(&mut workflows, remote.json).await,
            Self::Show { workflow_id } => {
                let request = GetWorkflowRequest { workflow_id };
                let response = workflows.get_workflow(request).await;
                let response = response.map_err(|status| refusal(&status))?.into_inner();
                let workflow = response.workflow.context("the answer has no workflow")?;
                show(&workflow, remote.json)
            }
            Self::Check { file, inputs, id } => {
                let request = ValidateWorkflowRequest {
                    definition_json: read(&file)?,
                    inputs_json: inputs.unwrap_or_default(),
                    workflow_id: id.unwrap_or_default(),
                };
                check(&mut workflows, &file, request, remote.json).await
            }
            Self::Put { file, id } => {
                let stem = file.file_stem().unwrap_or_default().to_string_lossy();
                let request = PutWorkflowRequest {
                    workflow_id: id.unwrap_or_else(|| stem.into_owned()),
                    definition_json: read(&file)?,
                    ..PutWorkflowRequest::default()
                };
                let response = workflows.put_workflow(request).await;
                let response = response.map_err(|status| refusal(&status))?.into_inner();
                let workflow = response.workflow.context("the answer has no workflow")?;
                if remote.json {
                    return show(&workflow, true);
                }
                print(&format!("{}\n", workflow.workflow_id));
                remarks(&workflow.diagnostics);
                Ok(ExitCode::SUCCESS)
            }
            Self::Run {
                workflow_id,
                inputs,
                request_id,
                key,
                on_conflict,
                priority,
            } => {
                let on_conflict = match on_conflict {
                    Conflict::Queue => OnConflict::Queue,
                    Conflict::Reject => OnConflict::Reject,
                    Conflict::CancelRunning => OnConflict::CancelRunning,
                };
                let request = StartRunRequest {
                    request_id: request_id.unwrap_or_default(),
                    target: Some(Target::WorkflowId(workflow_id)),
                    inputs_json: inputs,
                    concurrency: key.map(|key| RunConcurrency {
                        key,
                        on_conflict: on_conflict.into(),
                    }),
                    priority,
                    ..StartRunRequest::default()
                };
                let response = workflows.start_run(request).await;
                let response = response.map_err(|status| refusal(&status))?.into_inner();
                let run = response.run.context("the answer has no run")?;
                if !remote.json {
                    print(&format!("{}\n", run.run_id));
                }
                runs::follow(remote, run.run_id).await
            }
            Self::Delete { workflow_id } => {
                let request = DeleteWorkflowRequest {
                    workflow_id,
                    ..DeleteWorkflowRequest::default()
                };
                let response = workflows.delete_workflow(request).await;
                response.map_err(|status| refusal(&status))?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Nodes => nodes(&mut workflows, remote.json).await,
        }
    }
}

fn show(workflow: &Workflow, as_json: bool) -> anyhow::Result<ExitCode> {
    match as_json {
        true => json::print_line(workflow)?,
        false => print(&format!("{}\n", workflow.definition_json.trim_end())),
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(workflows: &mut Workflows, as_json: bool) -> anyhow::Result<ExitCode> {
    let row = |workflow: &Workflow| {
        let description = workflow.description.lines().next().unwrap_or_default();
        [
            workflow.workflow_id.clone(),
            workflow.name.clone(),
            source(workflow.from_file, workflow.shared),
            description.to_owned(),
        ]
    };
    let head = ["WORKFLOW", "NAME", "SOURCE", "DESCRIPTION"];
    documents::print_all(as_json, head, row, async |page_token| {
        let request = ListWorkflowsRequest {
            page_token,
            with_references: true,
            ..ListWorkflowsRequest::default()
        };
        let mut page = workflows.list_workflows(request).await?.into_inner();
        let missing = page.workflows.iter().flat_map(missing_references);
        page.diagnostics.extend(missing);
        Ok((page.workflows, page.diagnostics, page.next_page_token))
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the findings about names in a workflow without a target, with the workflow in front.
fn missing_references(workflow: &Workflow) -> impl Iterator<Item = LoadDiagnostic> {
    let found = workflow.diagnostics.iter();
    let missing = found.filter(|found| found.code == "missing_reference");
    missing.map(|found| LoadDiagnostic {
        path: format!("{}{}", workflow.workflow_id, found.path),
        ..found.clone()
    })
}

async fn check(
    workflows: &mut Workflows,
    file: &Path,
    request: ValidateWorkflowRequest,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let response = workflows.validate_workflow(request).await;
    let response = response.map_err(|status| refusal(&status))?.into_inner();
    if as_json {
        json::print_line(&response)?;
    } else {
        for violation in &response.violations {
            let place = match violation.pointer.as_str() {
                "" => file.display().to_string(),
                pointer => pointer.to_owned(),
            };
            print(&format!("{place}: {}\n", violation.message));
        }
        remarks(&response.diagnostics);
        if let Some(forecast) = &response.forecast {
            print_forecast(forecast);
        }
    }
    Ok(match response.violations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Prints the most that a run may do.
fn print_forecast(forecast: &WorkflowForecast) {
    let head = ["NODE", "TYPE", "EFFECTS", "USES", "AT MOST", "CACHE"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    rows.extend(forecast.nodes.iter().map(|node| {
        let effects = match (node.bypassed, node.pure, node.read_only) {
            (true, ..) => "bypassed",
            (_, true, _) => "none",
            (_, _, true) => "reads",
            _ => "changes",
        };
        vec![
            node.node_id.clone(),
            node.node_type.clone(),
            effects.to_owned(),
            node.uses.clone(),
            format!("{} ×", node.max_executions),
            node.cache.as_ref().map(reused).unwrap_or_default(),
        ]
    }));
    print_table(&rows, None);
    print(&format!(
        "valid; at most {} executions, {} of which may change something\n",
        forecast.max_executions, forecast.max_effects
    ));
}

/// Returns the text for a node's cached result.
fn reused(cache: &NodeCache) -> String {
    if !cache.source_run_id.is_empty() {
        return format!("from {}", cache.source_run_id);
    }
    let miss = name(cache.miss().as_str_name(), "CACHE_MISS_");
    let changed = cache.changed.iter().map(|part| {
        let kind = name(part.kind().as_str_name(), "RESULT_PART_KIND_");
        format!("{kind} {}", part.name).trim_end().to_owned()
    });
    let changed: Vec<String> = changed.collect();
    format!("{} {}", miss.replace('_', " "), changed.join(", "))
}

async fn nodes(workflows: &mut Workflows, as_json: bool) -> anyhow::Result<ExitCode> {
    let row = |node: &NodeType| {
        let description = node.description.lines().next().unwrap_or_default();
        [
            node.full_type.clone(),
            node.category.clone(),
            description.to_owned(),
        ]
    };
    let head = ["TYPE", "CATEGORY", "DESCRIPTION"];
    list::print_all(as_json, head, row, async |page_token| {
        let request = ListNodeTypesRequest {
            page_token,
            ..ListNodeTypesRequest::default()
        };
        let page = workflows.list_node_types(request).await?.into_inner();
        Ok((page.node_types, page.next_page_token))
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}
