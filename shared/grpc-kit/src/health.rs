//! Health per service.

use contracts::tavern::common::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_check_response, health_client::HealthClient},
    server::HealthReporter,
};

use crate::{ClientSettings, Failure, remote};

/// The name for health checks of liveness: the process serves it from the start to the end,
/// regardless of its needs. Every other name, the empty one included, is for checks of readiness.
pub const LIVENESS: &str = "live";

/// Checks the readiness of a server as a whole.
///
/// # Errors
/// UNAVAILABLE when the server does not answer, or answers that it does not serve.
pub async fn check_health(settings: &ClientSettings) -> Result<(), Status> {
    check(settings, "").await
}

/// Checks the liveness of a server, regardless of its needs.
///
/// # Errors
/// UNAVAILABLE when the server does not answer.
pub async fn check_liveness(settings: &ClientSettings) -> Result<(), Status> {
    check(settings, LIVENESS).await
}

async fn check(settings: &ClientSettings, service: &str) -> Result<(), Status> {
    let refused = |message: String| {
        Failure::new(
            Code::Unavailable,
            ErrorReason::DependencyUnavailable,
            message,
        )
        .into_status()
    };
    let transport = remote(settings).map_err(|error| refused(error.to_string()))?;
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = HealthClient::new(transport.outermost())
        .check(request)
        .await?
        .into_inner();
    match answer.status() {
        health_check_response::ServingStatus::Serving => Ok(()),
        status => Err(refused(format!("the server says {}", status.as_str_name()))),
    }
}

/// Says which services can serve. Clones belong together.
#[derive(Clone, Debug)]
pub struct Health {
    reporter: HealthReporter,
    names: Vec<&'static str>,
}

impl Health {
    pub(crate) fn new(names: Vec<&'static str>) -> Self {
        Self {
            reporter: HealthReporter::new(),
            names,
        }
    }

    /// Returns whether a service (`package.Service`) can serve.
    pub async fn set(&self, service: &str, serving: bool) {
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        self.reporter.set_service_status(service, status).await;
    }

    /// Says the same of every service and of the server as a whole.
    pub(crate) async fn set_all(&self, serving: bool) {
        for name in self.names.iter().chain([&""]) {
            self.set(name, serving).await;
        }
    }

    pub(crate) fn reporter(&self) -> HealthReporter {
        self.reporter.clone()
    }
}
