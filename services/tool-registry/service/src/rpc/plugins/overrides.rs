//! Services that plugins override, for the services that ask them.

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        CallOverrideRequest, CallOverrideResponse, OverrideRefusal, call_override_response::Result,
    },
};
use grpc_kit::{CallContext, Failure};
use run_events::store_failure;
use tonic::{Code, Status};

use crate::overrides::{Answered, StandIns, Unanswered};

/// Asks the backend that stands in for a service.
pub(super) async fn call(
    stand_ins: &StandIns,
    context: &CallContext,
    request: CallOverrideRequest,
) -> std::result::Result<CallOverrideResponse, Status> {
    let named = (request.service.as_str(), request.method.as_str());
    let answered = stand_ins.ask(context, named, &request.message).await;
    let answered = answered.map_err(|error| unanswered(&error).into_status())?;
    Ok(CallOverrideResponse {
        result: answered.map(|answered| match answered {
            Answered::Message(message) => Result::Message(message),
            Answered::Refusal { code, message } => Result::Refusal(OverrideRefusal {
                code: code.into(),
                message,
            }),
        }),
    })
}

/// Returns the failure of a service whose override does not answer.
pub(in crate::rpc) fn unanswered(error: &Unanswered) -> Failure {
    match error {
        Unanswered::Invalid(field, problem) => Failure::invalid_fields().violation(*field, problem),
        Unanswered::Failed {
            service,
            plugin,
            backend,
            ..
        } => Failure::new(
            Code::Unavailable,
            ErrorReason::OverrideFailed,
            error.to_string(),
        )
        .metadata("service", service)
        .metadata("plugin", plugin)
        .metadata("backend", backend),
        Unanswered::Store(error) => store_failure(error),
    }
}
