//! The tool registry as a program: the parts that grpc-kit starts and ends.

use std::sync::Arc;

use core_types::{SystemClock, SystemIds};
use data_home::DataHome;
use grpc_kit::{
    Need, Program, ServerSettings, ServiceName, Services, neighbour, program::Misplaced,
};
use telemetry::TelemetrySettings;

use crate::{Error, Peers, RegistrySettings, ToolRegistry};

impl Program for ToolRegistry {
    type Settings = RegistrySettings;

    const NAME: &'static str = "tool-registry";

    const ABOUT: &'static str = "Knows every tool and dispatches calls";

    fn server(settings: &Self::Settings) -> &ServerSettings {
        &settings.server
    }

    fn telemetry(settings: &Self::Settings) -> &TelemetrySettings {
        &settings.telemetry
    }

    async fn build(settings: Self::Settings) -> anyhow::Result<Self> {
        let peers = Peers::over(
            neighbour(&settings.workflow, &settings.server, ServiceName::Workflow)?,
            neighbour(&settings.sandbox, &settings.server, ServiceName::Sandbox)?,
            neighbour(&settings.agent, &settings.server, ServiceName::Agent)?,
        );
        let peers = peers.proven(settings.server.tls.proves_peers());
        let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
        let build = async |home| {
            let built = crate::build_at(home, &settings, peers, (clock, ids)).await;
            built.map_err(|error| match error {
                Error::KeysNeedProof { .. } => Misplaced(error.into()).into(),
                error => anyhow::Error::from(error),
            })
        };
        DataHome::of_program(settings.home(), build).await
    }

    fn services(&self) -> Services {
        ToolRegistry::services(self)
    }

    fn broken_parts(&self) -> Vec<String> {
        let skipped = self.skipped_plugins();
        skipped
            .iter()
            .map(|plugin| format!("plugin:{}", plugin.directory))
            .collect()
    }

    fn needs(&self, settings: &Self::Settings) -> anyhow::Result<Vec<Need>> {
        Ok(vec![
            Need::service(
                "workflow-execution",
                neighbour(&settings.workflow, &settings.server, ServiceName::Workflow)?,
            ),
            Need::service(
                "script-sandbox",
                neighbour(&settings.sandbox, &settings.server, ServiceName::Sandbox)?,
            ),
        ])
    }

    async fn recover(&self) -> anyhow::Result<()> {
        Ok(ToolRegistry::recover(self).await?)
    }

    async fn lost(&self) -> String {
        self.home().lost().await.to_string()
    }

    async fn shutdown(&self) {
        ToolRegistry::shutdown(self).await;
        self.home().close().await;
    }
}
