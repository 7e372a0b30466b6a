//! Clients of a stack, which send its key.

use contracts::tavern::agent::v1::agent_service_client::AgentServiceClient;
use contracts::tavern::agent::v1::model_service_client::ModelServiceClient;
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::registry::v1::call_service_client::CallServiceClient;
use contracts::tavern::registry::v1::identity_service_client::IdentityServiceClient;
use contracts::tavern::registry::v1::plugin_service_client::PluginServiceClient;
use contracts::tavern::registry::v1::tool_registry_service_client::ToolRegistryServiceClient;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::sandbox::v1::blob_service_client::BlobServiceClient;
use contracts::tavern::sandbox::v1::script_sandbox_service_client::ScriptSandboxServiceClient;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use grpc_kit::{Outbound, ServiceName};

use crate::Stack;

impl Stack {
    /// Returns a client of principals and keys, at the gateway.
    pub fn identities(&self) -> IdentityServiceClient<Outbound> {
        IdentityServiceClient::new(self.transport(ServiceName::Gateway).outermost())
    }

    /// Returns a client of the gateway.
    pub fn gateway(&self) -> GatewayServiceClient<Outbound> {
        GatewayServiceClient::new(self.transport(ServiceName::Gateway).outermost())
    }

    /// Returns a client of all runs, at the gateway.
    pub fn runs(&self) -> RunServiceClient<Outbound> {
        RunServiceClient::new(self.transport(ServiceName::Gateway).outermost())
    }

    /// Returns a client of tool-registry.
    pub fn registry(&self) -> ToolRegistryServiceClient<Outbound> {
        ToolRegistryServiceClient::new(self.transport(ServiceName::Registry).outermost())
    }

    /// Returns a client of plugins, at the gateway.
    pub fn plugins(&self) -> PluginServiceClient<Outbound> {
        PluginServiceClient::new(self.transport(ServiceName::Gateway).outermost())
    }

    /// Returns a client of calls, at the gateway.
    pub fn calls(&self) -> CallServiceClient<Outbound> {
        CallServiceClient::new(self.transport(ServiceName::Gateway).outermost())
    }

    /// Returns a client of workflow-execution.
    pub fn workflow(&self) -> WorkflowServiceClient<Outbound> {
        WorkflowServiceClient::new(self.transport(ServiceName::Workflow).outermost())
    }

    /// Returns a client of script-sandbox.
    pub fn sandbox(&self) -> ScriptSandboxServiceClient<Outbound> {
        ScriptSandboxServiceClient::new(self.transport(ServiceName::Sandbox).outermost())
    }

    /// Returns a client of the files of scripts, at the gateway.
    pub fn blobs(&self) -> BlobServiceClient<Outbound> {
        BlobServiceClient::new(self.transport(ServiceName::Gateway).outermost())
    }

    /// Returns a client of agent-runtime.
    pub fn agent(&self) -> AgentServiceClient<Outbound> {
        AgentServiceClient::new(self.transport(ServiceName::Agent).outermost())
    }

    /// Returns a client of the models of agent-runtime.
    pub fn models(&self) -> ModelServiceClient<Outbound> {
        ModelServiceClient::new(self.transport(ServiceName::Agent).outermost())
    }
}
