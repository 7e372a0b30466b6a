//! The gateway as a program that grpc-kit starts and ends.

use std::sync::Arc;

use grpc_kit::{Door, Need, Program, ServerSettings, ServiceName, Services};
use telemetry::TelemetrySettings;

use crate::door::OpenDoor;
use crate::forward::ForwardedServices;
use crate::{Gateway, GatewaySettings, Peers};

/// The gateway as a program of its own, which forwards the methods of the other services.
#[derive(Debug)]
pub struct GatewayProgram {
    gateway: Gateway,
    others: ForwardedServices,
    /// Whether the gateway proves itself to the registry, without which no key can exist.
    is_proven: bool,
}

impl Program for GatewayProgram {
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
        let others = ForwardedServices::remote(&settings)?;
        let (registry, workflow) = (others.registry.clone(), others.workflow.clone());
        let peers = Peers::over(registry, workflow, others.agent.clone());
        let registry = settings
            .registry
            .beside(&settings.server, ServiceName::Registry);
        let gateway = crate::build(settings, peers);
        Ok(Self {
            gateway,
            others,
            is_proven: registry.proves_caller(),
        })
    }

    fn services(&self) -> Services {
        self.gateway.services().merge(self.others.services())
    }

    fn http(&self) -> Option<axum::Router> {
        Some(self.gateway.http(&self.services()))
    }

    fn door(&self) -> Option<Arc<dyn Door>> {
        Some(match self.is_proven {
            true => self.gateway.door(),
            false => Arc::new(OpenDoor),
        })
    }

    fn needs(&self, _settings: &Self::Settings) -> anyhow::Result<Vec<Need>> {
        let others = &self.others;
        Ok(vec![
            Need::service("tool-registry", others.registry.clone()),
            Need::service("workflow-execution", others.workflow.clone()),
            Need::service("agent-runtime", others.agent.clone()),
        ])
    }

    async fn shutdown(&self) {}
}
