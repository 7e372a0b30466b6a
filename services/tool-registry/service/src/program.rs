//! The tool registry as a program: the parts that grpc-kit starts and ends.

use grpc_kit::{Need, Program, ServerSettings, Services, program::Misplaced};
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
            grpc_kit::remote(&settings.workflow)?,
            grpc_kit::remote(&settings.sandbox)?,
            grpc_kit::remote(&settings.agent)?,
        );
        let built = crate::build(settings, peers).await;
        built.map_err(|error| match error {
            Error::KeysNeedOneProcess { .. } => Misplaced(error.into()).into(),
            error => error.into(),
        })
    }

    fn services(&self) -> Services {
        ToolRegistry::services(self)
    }

    fn broken_parts(&self) -> Vec<String> {
        let skipped = self.skipped_plugins().iter();
        skipped
            .map(|plugin| format!("plugin:{}", plugin.directory))
            .collect()
    }

    fn needs(&self, settings: &Self::Settings) -> anyhow::Result<Vec<Need>> {
        Ok(vec![
            Need::service("workflow-execution", grpc_kit::remote(&settings.workflow)?),
            Need::service("script-sandbox", grpc_kit::remote(&settings.sandbox)?),
        ])
    }

    async fn recover(&self) -> anyhow::Result<()> {
        Ok(ToolRegistry::recover(self).await?)
    }

    async fn shutdown(&self) {
        ToolRegistry::shutdown(self).await;
    }
}
