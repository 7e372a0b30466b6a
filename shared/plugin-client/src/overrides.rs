//! Backends that stand in for services.

use std::sync::Arc;

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        CallOverrideRequest, call_override_response::Result as Answer,
        plugin_service_client::PluginServiceClient,
    },
};
use grpc_kit::{CallContext, Failure, Patience};
use prost::Message;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{PATIENCE, Service, asked::Followed};

/// Asks backends that stand in for services. Clone, cheap.
#[derive(Clone, Debug)]
pub struct OverrideClient {
    followed: Arc<Followed>,
}

/// A refusal by a backend.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// One of the codes that the contract of the service names.
    pub code: Code,
    /// The message of the backend.
    pub message: String,
}

impl OverrideClient {
    pub(crate) fn new(followed: Arc<Followed>) -> Self {
        Self { followed }
    }

    /// Whether a backend may stand in for a service. The first question begins to follow the overrides.
    pub fn may_override(&self, service: Service) -> bool {
        self.followed.may_override(service)
    }

    /// Calls a method of the backend that stands in for a service; `None` where none does for the tenant of the
    /// context. A service that no plugin overrides costs one atomic read.
    ///
    /// # Errors
    /// The registry or the backend does not answer, or the answer is none of the contract.
    pub async fn call<R: Message, A: Message + Default>(
        &self,
        context: &CallContext,
        (service, method): (Service, &str),
        request: impl FnOnce() -> R,
    ) -> Result<Option<Result<A, Refusal>>, Failure> {
        if !self.may_override(service) {
            return Ok(None);
        }
        let request = CallOverrideRequest {
            service: service.as_str().to_owned(),
            method: method.to_owned(),
            message: request().encode_to_vec(),
        };
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        let answer = loop {
            let mut plugins = PluginServiceClient::new(self.followed.registry.with(context));
            match plugins.call_override(request.clone()).await {
                Ok(answer) => break answer.into_inner().result,
                // A registry of an earlier version has no overrides.
                Err(status) if status.code() == Code::Unimplemented => break None,
                Err(status) if grpc_kit::reason(&status) == Some(ErrorReason::OverrideFailed) => {
                    return Err(of_backend(&status));
                }
                Err(status) if status.code() == Code::InvalidArgument => {
                    let message = format!("cannot be sent to the backend: {}", status.message());
                    return Err(Failure::invalid_fields().violation("", message));
                }
                Err(status) if status.code() == Code::DeadlineExceeded => {
                    return Err(Failure::deadline_exceeded());
                }
                // A request that may have arrived is not repeated here, as the backend may have carried it out.
                Err(status)
                    if !grpc_kit::may_have_arrived(&status)
                        && patience.wait_after(&status).await => {}
                Err(status) => {
                    tracing::warn!(%status, service = service.as_str(), "an override cannot be asked");
                    return Err(Failure::dependency_unavailable("tool-registry"));
                }
            }
        };
        Ok(match answer {
            None => None,
            Some(Answer::Refusal(refusal)) => Some(Err(Refusal {
                code: Code::from_i32(refusal.code),
                message: refusal.message,
            })),
            Some(Answer::Message(message)) => {
                let read = A::decode(message.as_slice());
                Some(Ok(read.map_err(|_| malformed(service))?))
            }
        })
    }
}

/// Returns the failure of a backend as the registry reports it.
fn of_backend(status: &Status) -> Failure {
    let failure = Failure::new(
        Code::Unavailable,
        ErrorReason::OverrideFailed,
        status.message(),
    );
    let metadata = grpc_kit::failure::metadata(status).into_iter();
    metadata.fold(failure, |failure, (key, value)| {
        failure.metadata(key, value)
    })
}

/// Returns the failure of an answer that is none of the contract of a service.
pub fn malformed(service: Service) -> Failure {
    let service = service.as_str();
    let message = format!(
        "the backend that overrides {service} answers otherwise than its contract says; have the operator look at it"
    );
    Failure::new(Code::Unavailable, ErrorReason::OverrideFailed, message)
        .metadata("service", service)
}
