//! The agent runtime as a program: the parts that grpc-kit starts and ends.

use data_home::DataHome;
use grpc_kit::{Need, Program, ServerSettings, ServiceName, Services, neighbour};
use telemetry::TelemetrySettings;

use crate::{AgentRuntime, AgentSettings, Environment, Peers};

impl Program for AgentRuntime {
    type Settings = AgentSettings;

    const NAME: &'static str = "agent-runtime";

    const ABOUT: &'static str =
        "Holds profiles and conversations, and lets agents deliberate, act and observe";

    fn server(settings: &Self::Settings) -> &ServerSettings {
        &settings.server
    }

    fn telemetry(settings: &Self::Settings) -> &TelemetrySettings {
        &settings.telemetry
    }

    async fn build(settings: Self::Settings) -> anyhow::Result<Self> {
        // Clients of model endpoints need a TLS provider. This fails only if another was chosen
        // before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let peers = Peers::over(
            neighbour(&settings.registry, &settings.server, ServiceName::Registry)?,
            neighbour(&settings.workflow, &settings.server, ServiceName::Workflow)?,
        );
        let build = |home| crate::build_at(home, settings.clone(), peers, Environment::system());
        DataHome::of_program(settings.home(), build).await
    }

    fn services(&self) -> Services {
        AgentRuntime::services(self)
    }

    fn needs(&self, settings: &Self::Settings) -> anyhow::Result<Vec<Need>> {
        let registry = neighbour(&settings.registry, &settings.server, ServiceName::Registry)?;
        Ok(vec![Need::service("tool-registry", registry)])
    }

    async fn recover(&self) -> anyhow::Result<()> {
        let recovered = AgentRuntime::recover(self).await;
        Ok(recovered.map_err(tonic::Status::from)?)
    }

    async fn lost(&self) -> String {
        self.home().lost().await.to_string()
    }

    async fn shutdown(&self) {
        AgentRuntime::shutdown(self).await;
        self.home().close().await;
    }
}
