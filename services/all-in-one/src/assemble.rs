//! Puts the five services together in one process.

use std::{sync::Arc, time::Duration};

use agent_runtime::AgentRuntime;
use anyhow::Context;
use contracts::tavern::agent::v1::agent_service_client::AgentServiceClient;
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::sandbox::v1::script_sandbox_service_client::ScriptSandboxServiceClient;
use core_types::{Clock, IdSource, SystemClock, SystemIds};
use data_home::DataHome;
use gateway::Gateway;
use grpc_kit::{Door, Outbound, ServerSettings, Services, Shutdown};
use script_sandbox::Sandbox;
use tool_registry::ToolRegistry;
use workflow_execution::WorkflowExecution;

use crate::settings::{ServiceSettings, TavernSettings};

/// All five services, which reach each other in memory.
#[derive(Debug)]
pub struct Tavern {
    home: DataHome,
    gateway: Gateway,
    registry: ToolRegistry,
    workflow: WorkflowExecution,
    sandbox: Arc<Sandbox>,
    agent: AgentRuntime,
    services: Services,
}

/// Returns the bounds of a service that is reached in memory: no narrower than the server's, so
/// that a raised limit holds on the whole way.
fn room(server: &ServerSettings) -> ServerSettings {
    let usual = ServerSettings::default();
    ServerSettings {
        max_calls: usual.max_calls.max(server.max_calls),
        max_streams: usual.max_streams.max(server.max_streams),
        ..usual
    }
}

impl Tavern {
    /// Builds every service on the data directory, or the database, of the settings.
    ///
    /// # Errors
    /// The failure of the first service that cannot be built.
    pub async fn build(settings: &TavernSettings) -> anyhow::Result<Self> {
        let service = settings.services()?;
        let room = room(&settings.server);
        let build = |home| Self::assemble(home, service, room);
        DataHome::of_program(settings.home(), build).await
    }

    async fn assemble(
        home: DataHome,
        service: ServiceSettings,
        room: ServerSettings,
    ) -> anyhow::Result<Self> {
        let system: (Arc<dyn Clock>, Arc<dyn IdSource>) =
            (Arc::new(SystemClock), Arc::new(SystemIds));
        let local = |services: &Services| grpc_kit::local_with(services, &room);
        let sandbox = script_sandbox::build_with(service.sandbox, home.files())
            .await
            .context("script-sandbox")?;
        let sandbox_transport = local(&script_sandbox::services(Arc::clone(&sandbox)));

        // The registry calls workflows and states of agents, workflows call tools and models, and
        // the agent runtime calls tools: some have to be built before the services that they call.
        let (workflow_transport, workflow_slot) = grpc_kit::late();
        let (agent_transport, agent_slot) = grpc_kit::late();
        let registry = tool_registry::build_at(
            home.clone(),
            &service.registry,
            tool_registry::Peers::over(
                workflow_transport.clone(),
                sandbox_transport.clone(),
                agent_transport.clone(),
            )
            .proven(true),
            system.clone(),
        );
        let registry = registry.await.context("tool-registry")?;
        let registry_transport = local(&registry.services());

        let workflow = workflow_execution::build_at(
            home.clone(),
            service.workflow,
            workflow_execution::Peers::over(
                registry_transport.clone(),
                sandbox_transport,
                agent_transport.clone(),
            ),
            system,
        );
        let workflow = workflow.await.context("workflow-execution")?;
        workflow_slot.fill(local(&workflow.services()));

        let agent = agent_runtime::build_at(
            home.clone(),
            service.agent,
            agent_runtime::Peers::over(registry_transport.clone(), workflow_transport.clone()),
            agent_runtime::Environment::system(),
        );
        let agent = agent.await.context("agent-runtime")?;
        agent_slot.fill(local(&agent.services()));

        let peers = gateway::Peers::over(registry_transport, workflow_transport, agent_transport);
        let gateway = gateway::build(service.gateway, peers);
        let services = gateway
            .services()
            .merge(registry.services_beside_gateway())
            .merge(workflow.services_beside_gateway())
            .merge(script_sandbox::services_beside_gateway(Arc::clone(
                &sandbox,
            )))
            .merge(agent.services_beside_gateway());
        Ok(Self {
            home,
            gateway,
            registry,
            workflow,
            sandbox,
            agent,
            services,
        })
    }

    /// Returns the services of a server: all of them.
    pub fn services(&self) -> Services {
        self.services.clone()
    }

    /// Returns the router for requests other than gRPC.
    pub fn http(&self) -> axum::Router {
        self.gateway.http(&self.services)
    }

    /// Returns the door of a server that clients call.
    pub fn door(&self) -> Arc<dyn Door> {
        self.gateway.door()
    }

    /// Whether no key exists, so that everyone who reaches the server is `local`.
    pub fn is_open(&self) -> bool {
        self.registry.identities().is_open()
    }

    /// Returns the gateway, in memory.
    pub fn gateway(&self) -> GatewayServiceClient<Outbound> {
        GatewayServiceClient::new(grpc_kit::local(&self.gateway.services()).outermost())
    }

    /// Returns the agent runtime, in memory.
    pub fn agent(&self) -> AgentServiceClient<Outbound> {
        AgentServiceClient::new(grpc_kit::local(&self.agent.services()).outermost())
    }

    /// Returns the sandbox, in memory.
    pub fn sandbox(&self) -> ScriptSandboxServiceClient<Outbound> {
        let services = script_sandbox::services(Arc::clone(&self.sandbox));
        ScriptSandboxServiceClient::new(grpc_kit::local(&services).outermost())
    }

    /// Continues every run that the process before this one left. A failure of one service keeps no
    /// other from continuing its runs.
    ///
    /// # Errors
    /// A storage failure, of the first such service.
    pub async fn recover(&self) -> anyhow::Result<()> {
        // From the bottom up: a parent finds its children already running.
        let workflow = self.workflow.recover().await;
        let registry = self.registry.recover().await;
        let agent = self.agent.recover().await;
        workflow.context("workflow-execution")?;
        registry.context("tool-registry")?;
        agent.map_err(tonic::Status::from).context("agent-runtime")
    }

    /// Returns the home of the tables and logs.
    pub fn home(&self) -> &DataHome {
        &self.home
    }

    /// Returns the need of the process to run scripts.
    pub fn scripts(&self) -> grpc_kit::Need {
        script_sandbox::service::scripts(&self.sandbox)
    }

    /// Ends scripts that outlast a shutdown, in time for the answers to their callers.
    pub fn end_scripts_in_time(
        &self,
        shutdown: Shutdown,
        grace: Duration,
    ) -> impl Future<Output = ()> + Send + use<> {
        let sandbox = Arc::clone(&self.sandbox);
        sandbox.end_scripts_in_time(shutdown, grace)
    }

    /// Ends all tasks. Runs continue at the next start.
    pub async fn shutdown(&self) {
        self.agent.shutdown().await;
        self.registry.shutdown().await;
        self.workflow.shutdown().await;
        self.sandbox.shutdown().await;
        self.home.close().await;
    }
}
