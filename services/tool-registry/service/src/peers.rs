//! The services that this one calls.

use contracts::tavern::{
    agent::v1::{
        agent_service_client::AgentServiceClient,
        conversation_service_client::ConversationServiceClient,
        knowledge_service_client::KnowledgeServiceClient, scene_service_client::SceneServiceClient,
        state_service_client::StateServiceClient,
    },
    sandbox::v1::{
        script_sandbox_service_client::ScriptSandboxServiceClient,
        session_service_client::SessionServiceClient,
    },
};
use grpc_kit::Transport;

/// The services that this one calls.
#[derive(Clone, Debug)]
pub struct Peers {
    /// workflow-execution.
    pub workflow: Transport,
    /// agent-runtime.
    pub agent: Transport,
    /// script-sandbox.
    pub sandbox: ScriptSandboxServiceClient<Transport>,
    /// The sessions of script-sandbox.
    pub sessions: SessionServiceClient<Transport>,
    /// The states and scenes of agent-runtime.
    pub agents: AgentPeer,
}

impl Peers {
    /// Takes the services behind the given transports.
    pub fn over(workflow: Transport, sandbox: Transport, agent: Transport) -> Self {
        Self {
            workflow,
            agent: agent.clone(),
            sandbox: ScriptSandboxServiceClient::new(sandbox.clone()),
            sessions: SessionServiceClient::new(sandbox),
            agents: AgentPeer::over(agent),
        }
    }
}

/// What calls ask agent-runtime for.
#[derive(Clone, Debug)]
pub struct AgentPeer {
    /// Private states and world states.
    pub states: StateServiceClient<Transport>,
    /// The events of scenes.
    pub scenes: SceneServiceClient<Transport>,
    /// Knowledge bases.
    pub knowledge: KnowledgeServiceClient<Transport>,
    /// Turns of agents that are tools.
    pub turns: AgentServiceClient<Transport>,
    /// Conversations.
    pub conversations: ConversationServiceClient<Transport>,
}

impl AgentPeer {
    /// Takes agent-runtime behind a transport.
    pub fn over(agent: Transport) -> Self {
        Self {
            states: StateServiceClient::new(agent.clone()),
            scenes: SceneServiceClient::new(agent.clone()),
            knowledge: KnowledgeServiceClient::new(agent.clone()),
            turns: AgentServiceClient::new(agent.clone()),
            conversations: ConversationServiceClient::new(agent),
        }
    }
}
