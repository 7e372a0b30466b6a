//! The services that this one calls.

use contracts::tavern::{
    agent::v1::{
        agent_service_client::AgentServiceClient,
        conversation_service_client::ConversationServiceClient,
        knowledge_service_client::KnowledgeServiceClient,
        profile_service_client::ProfileServiceClient, scene_service_client::SceneServiceClient,
        state_service_client::StateServiceClient,
    },
    run::v1::run_service_client::RunServiceClient,
    sandbox::v1::{
        script_sandbox_service_client::ScriptSandboxServiceClient,
        session_service_client::SessionServiceClient,
    },
    workflow::v1::workflow_service_client::WorkflowServiceClient,
};
use grpc_kit::Transport;

/// The services that this one calls.
#[derive(Clone, Debug)]
pub struct Peers {
    /// workflow-execution.
    pub workflow: WorkflowServiceClient<Transport>,
    /// The runs of workflow-execution.
    pub workflow_runs: RunServiceClient<Transport>,
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
            workflow: WorkflowServiceClient::new(workflow.clone()),
            workflow_runs: RunServiceClient::new(workflow),
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
    /// Profiles, as tools.
    pub profiles: ProfileServiceClient<Transport>,
    /// Turns of agents that are tools.
    pub turns: AgentServiceClient<Transport>,
    /// The runs of these turns.
    pub runs: RunServiceClient<Transport>,
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
            profiles: ProfileServiceClient::new(agent.clone()),
            turns: AgentServiceClient::new(agent.clone()),
            conversations: ConversationServiceClient::new(agent.clone()),
            runs: RunServiceClient::new(agent),
        }
    }
}
