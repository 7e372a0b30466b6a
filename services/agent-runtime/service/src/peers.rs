//! The services that agent-runtime calls.

use contracts::tavern::{
    access::v1::Peer,
    registry::v1::{
        identity_service_client::IdentityServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
    workflow::v1::{GetWorkflowRequest, workflow_service_client::WorkflowServiceClient},
};
use core_types::RunOwner;
use grpc_kit::{CallContext, Outbound, Patience, Transport};
use plugin_client::HookClient;
use run_client::{CallClient, policy::START_PATIENCE};
use run_events::Neighbours;
use serde_json::Value;
use tokio::time::Instant;
use tonic::Status;

/// The services that agent-runtime calls.
#[derive(Clone, Debug)]
pub struct Peers {
    /// tool-registry, for its tools.
    pub registry: Transport,
    /// The calls of tool-registry.
    pub calls: CallClient,
    /// The hooks of plugins, of which tool-registry decides.
    pub hooks: HookClient,
    /// workflow-execution, for its workflows and runs.
    pub workflow: Transport,
    /// The services that know whether an ended run is still needed.
    pub neighbours: Neighbours,
}

impl Peers {
    /// Uses tool-registry and workflow-execution, each behind a transport.
    pub fn over(registry: Transport, workflow: Transport) -> Self {
        let own = |transport: Transport| transport.of_peer(Peer::AgentRuntime);
        let (registry, workflow) = (own(registry), own(workflow));
        Self {
            neighbours: Neighbours::new(registry.clone())
                .with(RunOwner::Workflow, workflow.clone()),
            calls: CallClient::new(registry.clone()),
            hooks: HookClient::new(registry.clone()),
            registry,
            workflow,
        }
    }

    /// Returns the tools of tool-registry for the calls of `context`.
    pub fn tools(&self, context: &CallContext) -> ToolRegistryServiceClient<Outbound> {
        ToolRegistryServiceClient::new(self.registry.with(context))
    }

    /// Returns the identities of tool-registry for the calls of `context`.
    pub fn identities(&self, context: &CallContext) -> IdentityServiceClient<Outbound> {
        IdentityServiceClient::new(self.registry.with(context))
    }

    /// Returns the workflows of workflow-execution for the calls of `context`.
    pub fn workflows(&self, context: &CallContext) -> WorkflowServiceClient<Outbound> {
        WorkflowServiceClient::new(self.workflow.with(context))
    }

    /// Reads the definition of a workflow.
    ///
    /// # Errors
    /// The status of workflow-execution, if it does not become available in time.
    pub(crate) async fn workflow_definition(
        &self,
        context: &CallContext,
        workflow_id: &str,
        deadline: Instant,
    ) -> Result<Value, Status> {
        let mut patience = Patience::new(START_PATIENCE, deadline);
        loop {
            let request = GetWorkflowRequest {
                workflow_id: workflow_id.to_owned(),
            };
            match self.workflows(context).get_workflow(request).await {
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
