//! The gateway as a program: what grpc-kit needs to start and end it.

use grpc_kit::{Need, Program, ServerSettings, Services};
use telemetry::TelemetrySettings;

use crate::{Gateway, GatewaySettings, Peers};

impl Program for Gateway {
    type Settings = GatewaySettings;

    const NAME: &'static str = "gateway";

    const ABOUT: &'static str = "Turns what language models write into work that really happens";

    fn server(settings: &Self::Settings) -> &ServerSettings {
        &settings.server
    }

    fn telemetry(settings: &Self::Settings) -> &TelemetrySettings {
        &settings.telemetry
    }

    async fn build(settings: Self::Settings) -> anyhow::Result<Self> {
        let peers = Peers::remote(&settings)?;
        Ok(crate::build(settings, peers))
    }

    fn services(&self) -> Services {
        Gateway::services(self)
    }

    fn needs(&self, settings: &Self::Settings) -> anyhow::Result<Vec<Need>> {
        Ok(vec![
            Need::service("tool-registry", grpc_kit::remote(&settings.registry)?),
            Need::service("workflow-execution", grpc_kit::remote(&settings.workflow)?),
            Need::service("agent-runtime", grpc_kit::remote(&settings.agent)?),
        ])
    }

    async fn shutdown(&self) {}
}
