//! The gateway as a program that grpc-kit starts and ends.

use std::sync::Arc;

use grpc_kit::{Door, Need, Program, ServerSettings, Services};
use telemetry::TelemetrySettings;

use crate::door::OpenDoor;
use crate::forward::ForwardedServices;
use crate::{Gateway, GatewaySettings, Peers};

/// The gateway as a program of its own, which forwards the methods of the other services.
#[derive(Debug)]
pub struct GatewayProgram {
    gateway: Gateway,
    others: ForwardedServices,
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
        let gateway = crate::build(settings, peers);
        Ok(Self { gateway, others })
    }

    fn services(&self) -> Services {
        self.gateway.services().merge(self.others.services())
    }

    fn http(&self) -> Option<axum::Router> {
        Some(self.gateway.http(&self.services()))
    }

    fn door(&self) -> Option<Arc<dyn Door>> {
        Some(Arc::new(OpenDoor))
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
