//! The services that this one calls.

use contracts::tavern::access::v1::Peer;
use contracts::tavern::agent::v1::{
    knowledge_service_client::KnowledgeServiceClient, scene_service_client::SceneServiceClient,
    state_service_client::StateServiceClient,
};
use grpc_kit::{CallContext, Outbound, Transport};

/// The services that this one calls.
#[derive(Clone, Debug)]
pub struct Peers {
    /// workflow-execution.
    pub workflow: Transport,
    /// agent-runtime.
    pub agent: Transport,
    /// script-sandbox.
    pub sandbox: Transport,
    /// Whether services prove themselves to this one, without which there are no keys: they are parts of its process,
    /// or have certificates.
    pub proven: bool,
}

impl Peers {
    /// Takes the services behind the given transports.
    pub fn over(workflow: Transport, sandbox: Transport, agent: Transport) -> Self {
        let own = |transport: Transport| transport.of_peer(Peer::ToolRegistry);
        Self {
            workflow: own(workflow),
            agent: own(agent),
            sandbox: own(sandbox),
            proven: false,
        }
    }

    /// Marks them as proven where they are parts of this process or have certificates: only there can keys be used.
    #[must_use]
    pub fn proven(mut self, proven: bool) -> Self {
        self.proven = proven;
        self
    }
}

/// The services of agent-runtime that methods of the platform use, for the calls of one context.
#[derive(Clone, Debug)]
pub(crate) struct AgentClients {
    /// Private states and world states.
    pub(crate) states: StateServiceClient<Outbound>,
    /// The events of scenes.
    pub(crate) scenes: SceneServiceClient<Outbound>,
    /// Knowledge bases.
    pub(crate) knowledge: KnowledgeServiceClient<Outbound>,
}

impl AgentClients {
    /// Takes agent-runtime for the calls of `context`.
    pub(crate) fn over(agent: &Transport, context: &CallContext) -> Self {
        let agent = agent.with(context);
        Self {
            states: StateServiceClient::new(agent.clone()),
            scenes: SceneServiceClient::new(agent.clone()),
            knowledge: KnowledgeServiceClient::new(agent),
        }
    }
}
