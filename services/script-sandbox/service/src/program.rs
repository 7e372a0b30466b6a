//! The script sandbox as a program that grpc-kit starts and ends.

use std::{sync::Arc, time::Duration};

use grpc_kit::{Need, Program, ServerSettings, Services, Shutdown};
use telemetry::TelemetrySettings;

use crate::{Sandbox, SandboxSettings, service};

/// The sandbox, shared by its sessions and calls.
#[derive(Debug)]
pub struct SandboxProgram(Arc<Sandbox>);

impl Program for SandboxProgram {
    type Settings = SandboxSettings;

    const NAME: &'static str = "script-sandbox";

    const ABOUT: &'static str = "Runs untrusted code at a stated isolation level";

    fn server(settings: &Self::Settings) -> &ServerSettings {
        &settings.server
    }

    fn telemetry(settings: &Self::Settings) -> &TelemetrySettings {
        &settings.telemetry
    }

    async fn build(settings: Self::Settings) -> anyhow::Result<Self> {
        Ok(Self(crate::build(settings).await?))
    }

    fn services(&self) -> Services {
        service::services(Arc::clone(&self.0))
    }

    fn needs(&self, _settings: &Self::Settings) -> anyhow::Result<Vec<Need>> {
        Ok(vec![service::scripts(&self.0)])
    }

    async fn drain(&self, shutdown: Shutdown, grace: Duration) {
        Arc::clone(&self.0)
            .end_scripts_in_time(shutdown, grace)
            .await;
    }

    async fn shutdown(&self) {
        self.0.shutdown().await;
    }
}
