//! The services that the gateway calls.

use contracts::tavern::access::v1::Peer;
use contracts::tavern::agent::v1::agent_service_client::AgentServiceClient;
use contracts::tavern::agent::v1::profile_service_client::ProfileServiceClient;
use contracts::tavern::registry::v1::{
    audit_service_client::AuditServiceClient, call_service_client::CallServiceClient,
    identity_service_client::IdentityServiceClient,
    tool_registry_service_client::ToolRegistryServiceClient,
};
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use core_types::RunOwner;
use grpc_kit::{CallContext, Outbound, Transport};

/// The ways to the services that the gateway talks to.
#[derive(Clone, Debug)]
pub struct Peers {
    registry: Transport,
    workflow: Transport,
    agent: Transport,
}

impl Peers {
    /// Makes clients for the services behind the given transports.
    pub fn over(registry: Transport, workflow: Transport, agent: Transport) -> Self {
        let own = |transport: Transport| transport.of_peer(Peer::Gateway);
        Self {
            registry: own(registry),
            workflow: own(workflow),
            agent: own(agent),
        }
    }

    /// Returns the tools of tool-registry for the calls of `context`.
    pub(crate) fn tools(&self, context: &CallContext) -> ToolRegistryServiceClient<Outbound> {
        ToolRegistryServiceClient::new(self.registry.with(context))
    }

    /// Returns the calls of tool-registry for the calls of `context`.
    pub(crate) fn calls(&self, context: &CallContext) -> CallServiceClient<Outbound> {
        CallServiceClient::new(self.registry.with(context))
    }

    /// Returns the identities of tool-registry for the calls of `context`.
    pub(crate) fn identities(&self, context: &CallContext) -> IdentityServiceClient<Outbound> {
        IdentityServiceClient::new(self.registry.with(context))
    }

    /// Returns the audit of tool-registry for the calls of `context`.
    pub(crate) fn audit(&self, context: &CallContext) -> AuditServiceClient<Outbound> {
        AuditServiceClient::new(self.registry.with(context))
    }

    /// Returns the turns of agent-runtime, and the tools of their agents, for the calls of `context`.
    pub(crate) fn agent(&self, context: &CallContext) -> AgentServiceClient<Outbound> {
        AgentServiceClient::new(self.agent.with(context))
    }

    /// Returns the profiles of agent-runtime for the calls of `context`.
    pub(crate) fn profiles(&self, context: &CallContext) -> ProfileServiceClient<Outbound> {
        ProfileServiceClient::new(self.agent.with(context))
    }

    /// Returns the way to the agents of A2A, which agent-runtime has, for the calls of `context`.
    pub(crate) fn a2a(&self, context: &CallContext) -> Outbound {
        self.agent.with(context)
    }

    /// Returns the run service of an owner for the calls of `context`.
    pub(crate) fn runs(
        &self,
        context: &CallContext,
        owner: RunOwner,
    ) -> RunServiceClient<Outbound> {
        let service = match owner {
            RunOwner::Registry => &self.registry,
            RunOwner::Workflow => &self.workflow,
            RunOwner::Agent | RunOwner::Scene => &self.agent,
        };
        RunServiceClient::new(service.with(context))
    }

    /// Returns the run service of every owner for the calls of `context`.
    pub(crate) fn all_runs(&self, context: &CallContext) -> [RunServiceClient<Outbound>; 3] {
        let owners = [RunOwner::Registry, RunOwner::Workflow, RunOwner::Agent];
        owners.map(|owner| self.runs(context, owner))
    }
}
