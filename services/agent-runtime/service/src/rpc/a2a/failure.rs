//! Refusals in the words of A2A.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of the reasons of the protocol.
const DOMAIN: &str = "a2a-protocol.org";

/// A task that does not exist, or belongs to another agent.
pub(super) fn no_such_task(id: &str) -> Status {
    let shown: String = id.chars().take(80).collect();
    let message = format!("the agent has no task `{shown}`");
    refused(
        Code::NotFound,
        "TASK_NOT_FOUND",
        message,
        &[("task_id", &shown)],
    )
}

/// A task that has ended.
pub(super) fn not_cancelable(id: &str) -> Status {
    refused(
        Code::FailedPrecondition,
        "TASK_NOT_CANCELABLE",
        "the task has ended; read it with GetTask",
        &[("task_id", id)],
    )
}

/// An operation that a task in its state, or this service, does not support.
pub(super) fn unsupported(message: &str) -> Status {
    refused(Code::Unimplemented, "UNSUPPORTED_OPERATION", message, &[])
}

/// A push configuration.
pub(super) fn no_push() -> Status {
    refused(
        Code::Unimplemented,
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "no notifications are pushed; follow the task with SubscribeToTask",
        &[],
    )
}

/// A part whose content cannot be read.
pub(super) fn content_not_supported(place: &str, content: &str) -> Status {
    let message = format!("{place} is a {content}; send text or data");
    refused(
        Code::InvalidArgument,
        "CONTENT_TYPE_NOT_SUPPORTED",
        message,
        &[("field", place)],
    )
}

/// A client of another version of the protocol.
pub(super) fn version_not_supported(asked: &str) -> Status {
    let shown: String = asked.chars().take(20).collect();
    let message = format!(
        "version `{shown}` of A2A is not spoken here; send the header `a2a-version: {}`",
        super::VERSION
    );
    refused(
        Code::Unimplemented,
        "VERSION_NOT_SUPPORTED",
        message,
        &[("supported", super::VERSION)],
    )
}

fn refused(
    code: Code,
    reason: &str,
    message: impl Into<String>,
    metadata: &[(&str, &str)],
) -> Status {
    let entries = metadata
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let metadata: HashMap<String, String> = entries.collect();
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    Status::with_error_details(code, message, details)
}
