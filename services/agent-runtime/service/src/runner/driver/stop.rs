//! The reasons for ending a turn before the model stops.

use agent_domain::turn::Divergence;
use contracts::tavern::common::v1 as common;
use model_client::ModelError;
use run_events::{CancelReason, outcome};
use run_log::AppendError;
use serde_json::json;

/// The reason for ending a turn before the model stops.
#[derive(Debug)]
pub(super) enum TurnStop {
    /// It was cancelled or its time is over.
    Cancelled(CancelReason),
    /// It cannot continue.
    Failed(Box<common::CallError>),
    /// The storage does not work: the turn resumes later.
    Storage(AppendError),
}

impl From<Divergence> for TurnStop {
    fn from(error: Divergence) -> Self {
        tracing::error!(error = %error, "a turn went where it cannot go");
        let trace_id = telemetry::context::current_trace_id();
        let error = outcome::internal(&trace_id).error.unwrap_or_default();
        TurnStop::Failed(Box::new(error))
    }
}

/// The reason for which there is no answer.
pub(super) enum NoAnswer {
    /// The turn ends.
    Stopped(TurnStop),
    /// The model failed.
    Model(ModelError),
    /// The workflow began its answer again; its text before this event of its run is void.
    Void(u64),
    /// A person sent a message that the model shall read at once.
    Interrupted,
}

impl From<TurnStop> for NoAnswer {
    fn from(stop: TurnStop) -> Self {
        NoAnswer::Stopped(stop)
    }
}

/// The code of a turn that ends at a limit of its tenant.
pub(super) const TENANT_LIMIT: &str = "tenant_limit";

/// Ends a turn whose model gave no answer.
pub(super) fn without_answer(model: &str, error: &ModelError) -> TurnStop {
    if let ModelError::TenantLimit(reached) = error {
        let details = json!({"limit": reached.quantity.name(), "maximum": reached.maximum});
        return TurnStop::Failed(Box::new(common::CallError {
            retryable: error.is_retryable(),
            details_json: details.to_string(),
            ..outcome::error(
                common::ErrorCategory::Limit,
                TENANT_LIMIT,
                error.to_string(),
            )
        }));
    }
    let message = format!("the model `{model}` gave no answer: {error}");
    model_failure(error.code(), &message, error.is_retryable())
}

/// Reports that a model failed to answer.
pub(super) fn model_failure(code: &str, message: &str, retryable: bool) -> TurnStop {
    let mut error = outcome::error(common::ErrorCategory::Dependency, code, message);
    error.retryable = retryable;
    TurnStop::Failed(Box::new(error))
}
