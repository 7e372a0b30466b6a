//! The services that the gateway talks to.

use contracts::tavern::agent::v1::agent_service_client::AgentServiceClient;
use contracts::tavern::registry::v1::{
    call_service_client::CallServiceClient, tool_registry_service_client::ToolRegistryServiceClient,
};
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use core_types::RunOwner;
use grpc_kit::Transport;

/// The services that the gateway talks to.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The tools of tool-registry.
    pub registry: ToolRegistryServiceClient<Transport>,
    /// The calls of tool-registry.
    pub calls: CallServiceClient<Transport>,
    /// workflow-execution.
    pub workflow: WorkflowServiceClient<Transport>,
    /// The turns of agent-runtime, and what their agents may call.
    pub agent: AgentServiceClient<Transport>,
    /// The runs of each service.
    pub runs: Runs,
}

/// The run services of the services that own runs.
#[derive(Clone, Debug)]
pub struct Runs {
    registry: RunServiceClient<Transport>,
    workflow: RunServiceClient<Transport>,
    agent: RunServiceClient<Transport>,
}

impl Runs {
    /// Returns the run service of an owner.
    pub fn of(&self, owner: RunOwner) -> RunServiceClient<Transport> {
        match owner {
            RunOwner::Registry => self.registry.clone(),
            RunOwner::Workflow => self.workflow.clone(),
            RunOwner::Agent | RunOwner::Scene => self.agent.clone(),
        }
    }

    /// Returns the run service of every owner.
    pub fn all(&self) -> [RunServiceClient<Transport>; 3] {
        [RunOwner::Registry, RunOwner::Workflow, RunOwner::Agent].map(|owner| self.of(owner))
    }
}

impl Peers {
    /// Takes the services behind the given transports.
    pub fn over(registry: Transport, workflow: Transport, agent: Transport) -> Self {
        Self {
            runs: Runs {
                registry: RunServiceClient::new(registry.clone()),
                workflow: RunServiceClient::new(workflow.clone()),
                agent: RunServiceClient::new(agent.clone()),
            },
            registry: ToolRegistryServiceClient::new(registry.clone()),
            calls: CallServiceClient::new(registry),
            workflow: WorkflowServiceClient::new(workflow),
            agent: AgentServiceClient::new(agent),
        }
    }
}
