//! The services that this one calls.

use contracts::tavern::{
    registry::v1::{
        call_service_client::CallServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
    run::v1::run_service_client::RunServiceClient,
    workflow::v1::workflow_service_client::WorkflowServiceClient,
};
use grpc_kit::Transport;

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
}

impl Peers {
    /// Takes tool-registry and workflow-execution, each behind a transport.
    pub fn over(registry: Transport, workflow: Transport) -> Self {
        Self {
            registry: ToolRegistryServiceClient::new(registry.clone()),
            calls: CallServiceClient::new(registry),
            workflows: WorkflowServiceClient::new(workflow.clone()),
            workflow_runs: RunServiceClient::new(workflow),
        }
    }
}
