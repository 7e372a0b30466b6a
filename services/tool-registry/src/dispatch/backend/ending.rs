//! What the status of a backend means for the call.

use std::error::Error;

use tonic::{Code, ConnectError, Status};

use crate::{
    dispatch::Order,
    domain::ending::{Category, Ending, Failure},
};

const MAX_MESSAGE_CHARS: usize = 2_000;

/// Makes the failure of a backend that was never reached: nothing happened there.
pub(super) fn unreachable(service: &str, problem: &str) -> Failure {
    let message = format!(
        "the server '{service}' cannot be reached, so nothing happened there; try again later ({problem})"
    );
    Failure::new(Category::Dependency, "backend_unreachable", message).retryable()
}

/// Says how a call ended whose backend answered with an error, or whose connection broke.
pub(super) fn of_status(service: &str, order: &Order, status: &Status) -> Ending {
    if source_of::<ConnectError>(status) {
        return Ending::Failed(unreachable(service, status.message()));
    }
    let message: String = status.message().chars().take(MAX_MESSAGE_CHARS).collect();
    let answered = status.source().is_none() && status.code() != Code::DeadlineExceeded;
    // tonic's client gives its own timeout as CANCELLED, which no one else caused.
    let timed_out = matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled);
    let (category, code) = category_of(status.code());
    if answered && !timed_out {
        let said = if message.is_empty() {
            status.code().description().to_owned()
        } else {
            message
        };
        let failure = Failure::new(category, code, format!("{service}: {said}"));
        let transient = matches!(
            status.code(),
            Code::Unavailable | Code::ResourceExhausted | Code::Aborted
        );
        return Ending::Failed(if transient {
            failure.retryable()
        } else {
            failure
        });
    }
    let (category, code, what) = if timed_out {
        (
            Category::Timeout,
            "deadline_exceeded",
            "did not answer in time",
        )
    } else {
        (
            Category::Dependency,
            "backend_lost",
            "broke the connection before it answered",
        )
    };
    without_answer(service, order, category, code, what)
}

/// Says how a call ended that left for a backend and got no answer.
pub(in crate::dispatch) fn without_answer(
    service: &str,
    order: &Order,
    category: Category,
    code: &str,
    what: &str,
) -> Ending {
    if order.tool.may_repeat() {
        let message = format!(
            "the server '{service}' {what}; {} may be called again",
            order.tool.id()
        );
        return Ending::Failed(Failure::new(category, code, message).retryable());
    }
    let message = format!(
        "the server '{service}' {what}; whether {} took effect is unknown, and it was not repeated: \
         look at what it did, then decide",
        order.tool.id()
    );
    Ending::Unknown(Failure::new(category, code, message))
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

fn source_of<E: Error + 'static>(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<E>() {
            return true;
        }
        source = error.source();
    }
    false
}
