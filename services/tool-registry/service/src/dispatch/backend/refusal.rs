//! The outcome of a call whose backend returned an error status.

use call_outcome::{CallOutcome, Category, Failure};
use std::error::Error;

use tonic::{Code, ConnectError, Status, TimeoutExpired};

use super::exchange::Exchange;
use crate::dispatch::ResolvedCall;

const MAX_MESSAGE_CHARS: usize = 2_000;
/// The key in an answer's headers or trailers by which a server, or a proxy in front of it, says
/// that it has not started the call, so that it may be dispatched again.
const NOT_STARTED: &str = "tavern-not-started";

/// Makes the failure of a backend that never saw the call: nothing happened there.
pub(super) fn unreachable(service: &str, problem: &str) -> Failure {
    let message = format!(
        "the server '{service}' cannot be reached, so nothing happened there; try again later ({problem})"
    );
    Failure::new(Category::Dependency, "backend_unreachable", message).retryable()
}

/// Returns the problem of a server whose certificate was refused; `None` for any other status.
pub(super) fn distrust(status: &Status) -> Option<String> {
    let reason = grpc_kit::tls::refused_certificate(status)?;
    Some(format!(
        "it is not trusted: {reason}; correct its certificate, or the setting backend_ca"
    ))
}

/// Returns the outcome of a call whose backend answered with an error, or whose connection broke.
///
/// Once the request has left, only a definite refusal is a failure (rule R308): a proxy answers
/// UNAVAILABLE for a request that its server was carrying out as well as for one that it never saw.
pub(super) fn of_status(
    service: &str,
    resolved: &ResolvedCall,
    status: &Status,
    exchange: &Exchange,
) -> CallOutcome {
    let answered = exchange.answered();
    if !answered && !exchange.may_have_arrived(status) {
        let distrusted = distrust(status);
        let problem = distrusted.as_deref().unwrap_or(status.message());
        return CallOutcome::Failed(unreachable(service, problem));
    }
    let (category, code) = category_of(status.code());
    let said: String = match status.message() {
        "" => status.code().description().to_owned(),
        message => message.chars().take(MAX_MESSAGE_CHARS).collect(),
    };
    let not_started = answered && status.metadata().contains_key(NOT_STARTED);
    if not_started || (answered && is_refusal(status.code())) {
        let failure = Failure::new(category, code, format!("{service}: {said}"));
        let transient =
            not_started || matches!(status.code(), Code::ResourceExhausted | Code::Aborted);
        return CallOutcome::Failed(if transient {
            failure.retryable()
        } else {
            failure
        });
    }
    let timed_out = match answered {
        true => status.code() == Code::DeadlineExceeded,
        // tonic's client reports its own timeout as CANCELLED.
        false => has_timed_out(status),
    };
    if timed_out {
        return late(service, resolved);
    }
    if answered {
        let what = format!("answered '{said}', which does not say whether the call took effect");
        return without_answer(service, resolved, category, code, &what);
    }
    let what = "broke the connection before it answered";
    without_answer(
        service,
        resolved,
        Category::Dependency,
        "backend_lost",
        what,
    )
}

/// Returns the outcome of a call whose time is over.
pub(super) fn out_of_time(
    service: &str,
    resolved: &ResolvedCall,
    exchange: &Exchange,
) -> CallOutcome {
    match exchange.has_left() {
        true => late(service, resolved),
        false => CallOutcome::Failed(unreachable(service, "its time was over before it left")),
    }
}

fn late(service: &str, resolved: &ResolvedCall) -> CallOutcome {
    let (category, what) = (Category::Timeout, "did not answer in time");
    without_answer(service, resolved, category, "deadline_exceeded", what)
}

/// Whether a status that the peer did not write stands for the end of the call's time.
pub(super) fn has_timed_out(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded || caused_by::<TimeoutExpired>(status)
}

/// Whether there was no connection at all.
pub(super) fn found_no_peer(status: &Status) -> bool {
    caused_by::<ConnectError>(status)
}

/// Whether a server that answers with this code says by it that the call took no effect.
fn is_refusal(code: Code) -> bool {
    !matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::DataLoss
            | Code::Cancelled
            | Code::DeadlineExceeded
    )
}

/// Returns the outcome of a call that left for a backend and has no answer.
pub(super) fn without_answer(
    service: &str,
    resolved: &ResolvedCall,
    category: Category,
    code: &str,
    what: &str,
) -> CallOutcome {
    if resolved.tool.may_repeat() {
        let message = format!(
            "the server '{service}' {what}; {} may be called again",
            resolved.tool.id()
        );
        return CallOutcome::Failed(Failure::new(category, code, message).retryable());
    }
    let message = format!(
        "the server '{service}' {what}; whether {} took effect is unknown, and it was not repeated: \
         look at what it did, then decide",
        resolved.tool.id()
    );
    CallOutcome::InDoubt(Failure::new(category, code, message))
}

fn category_of(code: Code) -> (Category, &'static str) {
    match code {
        Code::InvalidArgument | Code::OutOfRange => {
            (Category::Validation, "backend_invalid_argument")
        }
        Code::NotFound => (Category::Domain, "backend_not_found"),
        Code::AlreadyExists => (Category::Domain, "backend_already_exists"),
        Code::FailedPrecondition => (Category::Domain, "backend_failed_precondition"),
        Code::Aborted => (Category::Domain, "backend_aborted"),
        Code::PermissionDenied => (Category::Policy, "backend_permission_denied"),
        Code::Unauthenticated => (Category::Policy, "backend_unauthenticated"),
        Code::ResourceExhausted => (Category::Limit, "backend_resource_exhausted"),
        Code::Unavailable => (Category::Dependency, "backend_unavailable"),
        Code::Unimplemented => (Category::Dependency, "backend_unimplemented"),
        Code::DataLoss => (Category::Dependency, "backend_data_loss"),
        _ => (Category::Dependency, "backend_failed"),
    }
}

fn caused_by<E: Error + 'static>(status: &Status) -> bool {
    grpc_kit::failure::causes(status).any(|cause| cause.is::<E>())
}
