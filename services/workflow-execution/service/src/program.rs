//! The workflow execution as a program: the parts that grpc-kit starts and ends.

use grpc_kit::{Need, Program, ServerSettings, Services};
use telemetry::TelemetrySettings;

use crate::{Peers, WorkflowExecution, WorkflowSettings};

impl Program for WorkflowExecution {
    type Settings = WorkflowSettings;

    const NAME: &'static str = "workflow-execution";

    const ABOUT: &'static str = "Holds workflow definitions and executes them";

    fn server(settings: &Self::Settings) -> &ServerSettings {
        &settings.server
    }

    fn telemetry(settings: &Self::Settings) -> &TelemetrySettings {
        &settings.telemetry
    }

    async fn build(settings: Self::Settings) -> anyhow::Result<Self> {
        let peers = Peers::over(
            grpc_kit::remote(&settings.registry)?,
            grpc_kit::remote(&settings.sandbox)?,
            grpc_kit::remote(&settings.agent)?,
        );
        Ok(crate::build(settings, peers).await?)
    }

    fn services(&self) -> Services {
        WorkflowExecution::services(self)
    }

    fn needs(&self, settings: &Self::Settings) -> anyhow::Result<Vec<Need>> {
        Ok(vec![
            Need::service("tool-registry", grpc_kit::remote(&settings.registry)?),
            Need::service("script-sandbox", grpc_kit::remote(&settings.sandbox)?),
            Need::service("agent-runtime", grpc_kit::remote(&settings.agent)?),
        ])
    }

    async fn recover(&self) -> anyhow::Result<()> {
        Ok(WorkflowExecution::recover(self).await?)
    }

    async fn shutdown(&self) {
        WorkflowExecution::shutdown(self).await;
    }
}
