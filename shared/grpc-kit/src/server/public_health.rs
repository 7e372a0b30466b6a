//! The health that clients of other hosts see: that of the server and its services, and not that of its parts.
//!
//! A part is a plugin, say, or the files of certificates; no credential is needed for health.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use tonic_health::{
    pb::{HealthCheckRequest, HealthCheckResponse, health_server::Health},
    server::HealthService,
};

use crate::health::LIVENESS;

/// A name that nothing has.
const UNKNOWN: &str = "unknown";

/// The health of a server.
#[derive(Debug, Clone)]
pub(super) struct PublicHealth {
    health: Arc<HealthService>,
    services: Arc<[&'static str]>,
}

impl PublicHealth {
    pub(super) fn new(health: HealthService, services: &[&'static str]) -> Self {
        Self {
            health: Arc::new(health),
            services: services.into(),
        }
    }

    /// Hides parts from a client of another host: they are answered as if they were not there.
    fn hide(&self, mut request: Request<HealthCheckRequest>) -> Request<HealthCheckRequest> {
        let peer = request.remote_addr();
        let is_near = peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback());
        let name = &*request.get_ref().service;
        let is_public = name.is_empty() || name == LIVENESS || self.services.contains(&name);
        if !is_near && !is_public {
            request.get_mut().service = UNKNOWN.to_owned();
        }
        request
    }
}

#[tonic::async_trait]
impl Health for PublicHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.health.check(self.hide(request)).await
    }

    type WatchStream = <HealthService as Health>::WatchStream;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.health.watch(self.hide(request)).await
    }
}
