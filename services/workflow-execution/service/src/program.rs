//! The workflow execution as a program: the parts that grpc-kit starts and ends.

use std::sync::Arc;

use core_types::{SystemClock, SystemIds};
use data_home::DataHome;
use grpc_kit::{Need, Program, ServerSettings, ServiceName, Services, neighbour};
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
            neighbour(&settings.registry, &settings.server, ServiceName::Registry)?,
            neighbour(&settings.sandbox, &settings.server, ServiceName::Sandbox)?,
            neighbour(&settings.agent, &settings.server, ServiceName::Agent)?,
        );
        let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
        let build = |home| crate::build_at(home, settings.clone(), peers, (clock, ids));
        DataHome::of_program(settings.home(), build).await
    }

    fn services(&self) -> Services {
        WorkflowExecution::services(self)
    }

    fn needs(&self, settings: &Self::Settings) -> anyhow::Result<Vec<Need>> {
        Ok(vec![
            Need::service(
                "tool-registry",
                neighbour(&settings.registry, &settings.server, ServiceName::Registry)?,
            ),
            Need::service(
                "script-sandbox",
                neighbour(&settings.sandbox, &settings.server, ServiceName::Sandbox)?,
            ),
            Need::service(
                "agent-runtime",
                neighbour(&settings.agent, &settings.server, ServiceName::Agent)?,
            ),
        ])
    }

    async fn recover(&self) -> anyhow::Result<()> {
        Ok(WorkflowExecution::recover(self).await?)
    }

    async fn lost(&self) -> String {
        self.home().lost().await.to_string()
    }

    async fn shutdown(&self) {
        WorkflowExecution::shutdown(self).await;
        self.home().close().await;
    }
}
