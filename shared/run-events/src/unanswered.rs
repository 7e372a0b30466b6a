//! The end of a call for its owner when the registry answers with a status instead of a result.

use contracts::tavern::common::v1::{CallError, CallStatus, ErrorCategory, Violation};
use grpc_kit::FailureClass;
use tonic::Status;

use crate::outcome;

/// The most times that a registry that fails inside is asked about a call.
const TRIES_AFTER_FAILURES: u32 = 5;

/// A call that the registry has not answered with a result.
///
/// Its owner asks again until [`end`](Self::end) returns how the call has ended. A status ends it as
/// *rejected* only if the call has surely not left: the first request that could take it was refused.
/// All other ends are *in doubt*.
#[derive(Debug)]
pub struct Unanswered {
    may_have_left: bool,
    failures: u32,
}

impl Unanswered {
    /// Takes whether an earlier process of the owner has asked for the call.
    pub fn new(left_before: bool) -> Self {
        Self {
            may_have_left: left_before,
            failures: 0,
        }
    }

    /// Takes the status of a request for the call. Returns how the call has ended; nothing if the
    /// registry is to be asked again.
    pub fn end(&mut self, status: &Status) -> Option<(CallStatus, CallError)> {
        // The status of one request does not show whether an earlier one took effect.
        let may_have_left = std::mem::replace(&mut self.may_have_left, true);
        match FailureClass::of(status) {
            FailureClass::Transient => None,
            FailureClass::Refused if !may_have_left => {
                Some((CallStatus::Rejected, refused(status)))
            }
            FailureClass::Refused => Some((CallStatus::InDoubt, unknown(status))),
            FailureClass::Broken => {
                self.failures += 1;
                (self.failures == TRIES_AFTER_FAILURES)
                    .then(|| (CallStatus::InDoubt, unknown(status)))
            }
        }
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

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    /// Asks until the call ends; returns after how many requests it does, and how.
    fn ended(left_before: bool, codes: &[Code]) -> Option<(usize, CallStatus)> {
        let mut unanswered = Unanswered::new(left_before);
        let requests = codes.iter().zip(1..);
        requests
            .filter_map(|(code, count)| {
                let (status, _) = unanswered.end(&Status::new(*code, "x"))?;
                Some((count, status))
            })
            .next()
    }

    #[test]
    fn a_call_is_rejected_only_if_it_has_surely_not_left() {
        use Code::{DataLoss, Internal, InvalidArgument, NotFound, Unavailable};
        const LEFT: bool = true;
        let (doubt, rejected) = (CallStatus::InDoubt, CallStatus::Rejected);
        for (left_before, codes, end) in [
            (!LEFT, vec![InvalidArgument], Some((1, rejected))),
            (!LEFT, vec![NotFound], Some((1, rejected))),
            (LEFT, vec![InvalidArgument], Some((1, doubt))),
            (!LEFT, vec![Unavailable, InvalidArgument], Some((2, doubt))),
            (!LEFT, vec![Internal, NotFound], Some((2, doubt))),
            (!LEFT, vec![Unavailable; 20], None),
            (LEFT, vec![Unavailable; 20], None),
            (!LEFT, vec![Internal; 4], None),
            (!LEFT, vec![DataLoss; 5], Some((5, doubt))),
            (LEFT, vec![Internal; 5], Some((5, doubt))),
            (
                !LEFT,
                [vec![Internal; 4], vec![Unavailable; 9], vec![Internal]].concat(),
                Some((14, doubt)),
            ),
        ] {
            assert_eq!(ended(left_before, &codes), end, "{left_before} {codes:?}");
        }
    }
}
