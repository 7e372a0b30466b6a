//! The services that this one calls.

use std::time::Duration;

use contracts::tavern::{
    registry::v1::{
        call_service_client::CallServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
    run::v1::run_service_client::RunServiceClient,
    workflow::v1::{GetWorkflowRequest, workflow_service_client::WorkflowServiceClient},
};
use core_types::RunOwner;
use grpc_kit::{Patience, Transport};
use run_events::Neighbours;
use serde_json::Value;
use tokio::time::Instant;
use tonic::Status;

/// How long to wait for a service that is not there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The services that agent-runtime calls.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The tools of tool-registry.
    pub registry: ToolRegistryServiceClient<Transport>,
    /// The calls of tool-registry.
    pub calls: CallServiceClient<Transport>,
    /// The workflows of workflow-execution.
    pub workflows: WorkflowServiceClient<Transport>,
    /// The runs of workflow-execution.
    pub workflow_runs: RunServiceClient<Transport>,
    /// Services that know whether a run that ended is still needed.
    pub neighbours: Neighbours,
}

impl Peers {
    /// Takes tool-registry and workflow-execution, each behind a transport.
    pub fn over(registry: Transport, workflow: Transport) -> Self {
        Self {
            neighbours: Neighbours::new(registry.clone())
                .with(RunOwner::Workflow, RunServiceClient::new(workflow.clone())),
            registry: ToolRegistryServiceClient::new(registry.clone()),
            calls: CallServiceClient::new(registry),
            workflows: WorkflowServiceClient::new(workflow.clone()),
            workflow_runs: RunServiceClient::new(workflow),
        }
    }

    /// Reads the definition of a workflow.
    ///
    /// # Errors
    /// What workflow-execution answers, if it does not become available in time.
    pub(crate) async fn workflow_definition(
        &self,
        workflow_id: &str,
        deadline: Instant,
    ) -> Result<Value, Status> {
        let mut patience = Patience::new(PATIENCE, deadline);
        loop {
            let request = GetWorkflowRequest {
                workflow_id: workflow_id.to_owned(),
            };
            match self.workflows.clone().get_workflow(request).await {
                Ok(found) => {
                    let workflow = found.into_inner().workflow.unwrap_or_default();
                    return serde_json::from_str(&workflow.definition_json).map_err(|error| {
                        Status::data_loss(format!("its definition cannot be read: {error}"))
                    });
                }
                Err(status) if patience.wait_after(&status).await => {}
                Err(status) => return Err(status),
            }
        }
    }
}
