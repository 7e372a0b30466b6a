//! Tenants beside each other: names out of reach, a tenant that floods, and shares by weight.

mod flood;
mod names;
mod shares;

use anyhow::Context;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::{
    PutWorkflowRequest, StartRunRequest, workflow_service_client::WorkflowServiceClient,
};
use grpc_kit::Transport;

use crate::harness::Effort;
use crate::support::in_process;
use crate::table::Figure;

/// The name of the workflow that each tenant has.
const WORKFLOW: &str = "once";

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let mut figures = names::run(effort).await?;
    figures.extend(flood::run(effort).await?);
    figures.extend(shares::run(effort).await?);
    Ok(figures)
}

/// Stores a workflow of one node, which ends at once.
async fn put_workflow(transport: &Transport) -> anyhow::Result<()> {
    let definition =
        r#"{"name": "Once", "nodes": [{"id": "r", "type": "core:RandomNumber"}], "edges": []}"#;
    let put = PutWorkflowRequest {
        workflow_id: WORKFLOW.to_owned(),
        definition_json: definition.to_owned(),
        ..PutWorkflowRequest::default()
    };
    let mut workflows = WorkflowServiceClient::new(transport.outermost());
    workflows.put_workflow(put).await?;
    Ok(())
}

/// Starts a run of the workflow, in memory, and returns its id.
async fn start(transport: &Transport) -> Result<String, tonic::Status> {
    let request = StartRunRequest {
        target: Some(Target::WorkflowId(WORKFLOW.to_owned())),
        options: Some(in_process::in_memory()),
        ..StartRunRequest::default()
    };
    let mut workflows = WorkflowServiceClient::new(transport.outermost());
    let started = workflows.start_run(request).await?.into_inner();
    let run = started.run.context("a start has its run");
    run.map(|run| run.run_id)
        .map_err(|error| tonic::Status::internal(error.to_string()))
}
