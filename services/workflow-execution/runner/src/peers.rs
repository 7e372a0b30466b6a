//! The services that nodes need.

use contracts::tavern::access::v1::Peer;
use contracts::tavern::agent::v1::{
    ListModelsRequest, conversation_service_client::ConversationServiceClient,
    model_service_client::ModelServiceClient,
};
use contracts::tavern::registry::v1::{
    CallState, identity_service_client::IdentityServiceClient,
    plugin_service_client::PluginServiceClient,
    tool_registry_service_client::ToolRegistryServiceClient,
};
use contracts::tavern::sandbox::v1::{
    ListRuntimesRequest, script_sandbox_service_client::ScriptSandboxServiceClient,
};
use core_types::RunOwner;
use grpc_kit::{CallContext, Outbound, Transport};
use plugin_client::HookClient;
use run_client::CallClient;
use run_events::Neighbours;
use tonic::Status;

/// The transports to the services that nodes need.
#[derive(Clone, Debug)]
pub struct Peers {
    registry: Transport,
    /// Makes calls, each with a context of its own.
    pub calls: CallClient,
    /// The hooks of plugins, of which the registry decides.
    pub hooks: HookClient,
    sandbox: Transport,
    /// agent-runtime, for the turns of agents.
    pub agent: Transport,
    /// The services that know whether an ended run is still needed.
    pub neighbours: Neighbours,
}

/// The services that nodes need, for the calls of one context.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The context of the calls.
    pub context: CallContext,
    /// Calls tools.
    pub calls: CallClient,
    /// Describes tools.
    pub tools: ToolRegistryServiceClient<Outbound>,
    /// The sandbox, which runs scripts.
    pub sandbox: Transport,
    /// Asks models.
    pub models: ModelServiceClient<Outbound>,
    /// Reads and extends conversations.
    pub conversations: ConversationServiceClient<Outbound>,
}

impl Peers {
    /// Reaches the registry, the sandbox and the agent runtime over transports.
    pub fn over(registry: Transport, sandbox: Transport, agent: Transport) -> Self {
        let own = |transport: Transport| transport.of_peer(Peer::WorkflowExecution);
        let (registry, sandbox, agent) = (own(registry), own(sandbox), own(agent));
        Self {
            neighbours: Neighbours::new(registry.clone()).with(RunOwner::Agent, agent.clone()),
            calls: CallClient::new(registry.clone()),
            hooks: HookClient::new(registry.clone()),
            registry,
            sandbox,
            agent,
        }
    }

    /// Returns the registry's knowledge of principals, for the service's own questions about them.
    pub fn identities(&self) -> IdentityServiceClient<Outbound> {
        IdentityServiceClient::new(self.registry.outermost())
    }

    /// Returns the registry's knowledge of the node types of plugins, for the calls of `context`.
    pub fn plugins(&self, context: &CallContext) -> PluginServiceClient<Outbound> {
        PluginServiceClient::new(self.registry.with(context))
    }

    /// Returns the services for the calls of `context`.
    pub fn with(&self, context: &CallContext) -> Clients {
        Clients {
            context: context.clone(),
            calls: self.calls.clone(),
            tools: ToolRegistryServiceClient::new(self.registry.with(context)),
            sandbox: self.sandbox.clone(),
            models: ModelServiceClient::new(self.agent.with(context)),
            conversations: ConversationServiceClient::new(self.agent.with(context)),
        }
    }
}

impl Clients {
    /// Whether the end of a call is unknown, in the run's log as in the registry's ledger.
    pub async fn is_undecided(&self, effect_id: &str) -> bool {
        let call = self.calls.find(effect_id, &self.context).await;
        !call.ok().flatten().is_some_and(|call| {
            let ended = [
                CallState::Succeeded,
                CallState::Failed,
                CallState::Rejected,
                CallState::Cancelled,
            ];
            ended.contains(&call.state())
        })
    }

    /// Returns the names in `names` that no model of the settings has.
    ///
    /// # Errors
    /// The service with the models does not answer.
    pub async fn unknown_models(&self, mut names: Vec<String>) -> Result<Vec<String>, Status> {
        let mut page_token = String::new();
        while !names.is_empty() {
            let request = ListModelsRequest {
                page_token,
                ..ListModelsRequest::default()
            };
            let page = self.models.clone().list_models(request).await?;
            let page = page.into_inner();
            names.retain(|name| page.models.iter().all(|model| model.name != *name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        Ok(names)
    }

    /// Returns the names in `names` that no language of the sandbox has.
    ///
    /// # Errors
    /// The sandbox does not answer.
    pub async fn unknown_languages(&self, mut names: Vec<String>) -> Result<Vec<String>, Status> {
        if names.is_empty() {
            return Ok(names);
        }
        let mut sandbox = ScriptSandboxServiceClient::new(self.sandbox.with(&self.context));
        let runtimes = sandbox.list_runtimes(ListRuntimesRequest {}).await?;
        for runtime in runtimes.into_inner().runtimes {
            if runtime.usable {
                names.retain(|name| runtime.name != *name && !runtime.aliases.contains(name));
            }
        }
        Ok(names)
    }
}
