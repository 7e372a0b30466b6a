//! The end of a call for its owner when the registry answers with a status instead of a result.

use contracts::tavern::common::v1::{CallError, CallStatus, ErrorCategory, Violation};
use grpc_kit::FailureClass;
use run_events::outcome;
use tonic::Status;

use crate::Tries;

/// A call that the registry has not answered with a result.
///
/// Its owner repeats the request until [`end`](Self::end) returns the end of the call. A status
/// ends it as *rejected* only if the call was surely not dispatched: the first request that could
/// dispatch it was refused. All other ends are *in doubt*.
#[derive(Debug)]
pub struct Unanswered {
    may_have_left: bool,
    tries: Tries,
}

impl Unanswered {
    /// Begins with whether an earlier process of the owner has requested the call.
    pub fn new(left_before: bool) -> Self {
        Self {
            may_have_left: left_before,
            tries: Tries::default(),
        }
    }

    /// Records the status of a request for the call. Returns the end of the call; `None` if the
    /// request is to be repeated, after a [`wait`](Self::wait).
    pub fn end(&mut self, status: &Status) -> Option<(CallStatus, CallError)> {
        // The status of one request does not show whether an earlier one took effect.
        let may_have_left = std::mem::replace(&mut self.may_have_left, true);
        if self.tries.has_next(status) {
            return None;
        }
        let is_refused = FailureClass::of(status) == FailureClass::Refused;
        Some(match is_refused && !may_have_left {
            true => (CallStatus::Rejected, refused(status)),
            false => (CallStatus::InDoubt, unknown(status)),
        })
    }

    /// Waits before the next request, longer from one to the next.
    pub async fn wait(&mut self, status: &Status) {
        self.tries.wait(status).await;
    }
}

fn refused(status: &Status) -> CallError {
    let violations = grpc_kit::violations(status).into_iter();
    let violations = violations.map(|(field, message)| Violation {
        code: "invalid".to_owned(),
        message: format!("{field}: {message}"),
        ..Violation::default()
    });
    let code = code_of(status, "refused");
    CallError {
        violations: violations.collect(),
        ..outcome::error(ErrorCategory::Validation, &code, status.message())
    }
}

fn unknown(status: &Status) -> CallError {
    let message = format!(
        "tool-registry cannot say how the call went: {}",
        status.message()
    );
    let code = code_of(status, "registry_failed");
    outcome::error(ErrorCategory::Dependency, &code, message)
}

fn code_of(status: &Status, otherwise: &str) -> String {
    let name = grpc_kit::reason(status).map(grpc_kit::failure::reason_name);
    name.map_or_else(|| otherwise.to_owned(), str::to_ascii_lowercase)
}
