//! Failures as `google.rpc.Status`, written and read.
//!
//! Every failure has a reason from `tavern.common.v1.ErrorReason` in its `ErrorInfo`, with the
//! domain `tavern`. Bad input names every violated field at once. What happened inside goes to
//! the log with the trace id ([`internal`]); the caller gets only the id.

use std::{collections::HashMap, error::Error, iter, time::Duration};

use contracts::tavern::common::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

/// The domain of every `ErrorInfo`.
pub const DOMAIN: &str = contracts::ERROR_DOMAIN;
const MAY_HAVE_ARRIVED: &str = "may_have_arrived";

/// The common prefix of the reasons' names in the proto, which does not travel.
const REASON_PREFIX: &str = "ERROR_REASON_";

/// The most bytes of violations and metadata that are reported, but for one violation that always
/// is. A status travels in the trailers of an answer, of which clients accept 8 KiB at the least,
/// and is a third larger there; a client that receives more may report the trailers instead of the
/// error.
const MAX_DETAIL_BYTES: usize = 3 << 10;

/// The size of a violation without its texts, in bytes.
const VIOLATION_BYTES: usize = 8;

/// The most bytes of one field's path, of one description, of one value of the metadata, and of a
/// message.
const MAX_TEXT_BYTES: usize = 512;

/// A failure on its way to becoming a status.
#[derive(Clone, Debug)]
pub struct Failure {
    code: Code,
    reason: ErrorReason,
    message: String,
    metadata: HashMap<String, String>,
    violations: Vec<FieldViolation>,
    retry_after: Option<Duration>,
}

impl Failure {
    /// Begins a failure. The message is for the caller and reveals nothing about the inside.
    pub fn new(code: Code, reason: ErrorReason, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            metadata: HashMap::new(),
            violations: Vec::new(),
            retry_after: None,
        }
    }

    /// Begins a refusal of bad input; add every [`Failure::violation`].
    pub fn invalid_fields() -> Self {
        Self::new(
            Code::InvalidArgument,
            ErrorReason::InvalidFields,
            "the request is not valid",
        )
    }

    /// Begins the answer of a server that sheds load.
    pub fn overloaded(retry_after: Duration) -> Self {
        Self::new(
            Code::ResourceExhausted,
            ErrorReason::Overloaded,
            "the server is busy; try again shortly",
        )
        .retry_after(retry_after)
    }

    /// Begins the answer for a passed limit.
    pub fn limit_exceeded(limit: &str, maximum: usize, observed: usize) -> Self {
        Self::new(
            Code::ResourceExhausted,
            ErrorReason::LimitExceeded,
            format!("{limit}: {observed}, and at most {maximum}"),
        )
        .metadata("limit", limit)
        .metadata("maximum", maximum.to_string())
        .metadata("observed", observed.to_string())
    }

    /// Begins the answer for a needed service that does not answer.
    pub fn dependency_unavailable(service: &str) -> Self {
        Self::new(
            Code::Unavailable,
            ErrorReason::DependencyUnavailable,
            format!("the service `{service}` does not answer"),
        )
        .metadata("service", service)
    }

    /// Begins the answer where a needed service does not prove that it is the one that is called.
    pub(crate) fn dependency_refused(service: &str, reason: &str) -> Self {
        Self::new(
            Code::Unavailable,
            ErrorReason::DependencyUnavailable,
            format!("the server of `{service}` is not trusted: {reason}"),
        )
        .metadata("service", service)
    }

    /// Begins the answer to a change with another etag than the current one, which is empty for a resource
    /// that does not exist.
    pub fn etag_mismatch(current: impl Into<String>) -> Self {
        Self::new(
            Code::Aborted,
            ErrorReason::EtagMismatch,
            "the etag is not the current one: the resource was changed since it was read, or does not \
             exist; read it again and repeat the change",
        )
        .metadata("etag", current)
    }

    /// Marks that the request left before the connection broke, so that it may have been carried out.
    #[must_use]
    pub fn after_sending(self) -> Self {
        self.metadata(MAY_HAVE_ARRIVED, "true")
    }

    /// Begins the answer of a call whose deadline passed.
    pub fn deadline_exceeded() -> Self {
        Self::new(
            Code::DeadlineExceeded,
            ErrorReason::DeadlineExceeded,
            "the deadline passed before the answer",
        )
    }

    /// Adds an entry to the metadata of the `ErrorInfo`.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Adds a violated field by its path in the request.
    #[must_use]
    pub fn violation(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        self.violations
            .push(FieldViolation::new(field, description));
        self
    }

    /// Adds a violated field to a failure that is being collected.
    pub fn add_violation(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.violations
            .push(FieldViolation::new(field, description));
    }

    /// Returns whether no field is violated so far.
    pub fn is_empty(&self) -> bool {
        self.violations.is_empty()
    }

    /// Refuses if a field is violated.
    ///
    /// # Errors
    /// The status that names them all.
    pub fn refuse_if_any(self) -> Result<(), Status> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.into_status())
        }
    }

    /// Adds the time after which a retry can help.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Returns the reason.
    pub fn reason(&self) -> ErrorReason {
        self.reason
    }

    /// Makes the status. Details that would make it too long to travel are cut, and the last
    /// violation then states how many more there are.
    pub fn into_status(self) -> Status {
        let mut details = ErrorDetails::new();
        let mut metadata = self.metadata;
        metadata.values_mut().for_each(cut);
        let taken = metadata.iter().map(|(key, value)| key.len() + value.len());
        let room = MAX_DETAIL_BYTES.saturating_sub(taken.sum());
        let room = room.max(2 * MAX_TEXT_BYTES + VIOLATION_BYTES);
        details.set_error_info(reason_name(self.reason), DOMAIN, metadata);
        let mut message = self.message;
        cut(&mut message);
        let count = self.violations.len();
        let violations = reported(self.violations, room);
        // Clients that show only the message shall see the first violation at least.
        if let Some(first) = violations.first() {
            message.push_str(": ");
            // A problem of the whole request has no field.
            if !first.field.is_empty() {
                message.push_str(&format!("{}: ", first.field));
            }
            message.push_str(&first.description);
            cut(&mut message);
            if count > 1 {
                message.push_str(&format!(" (and {} more)", count - 1));
            }
            details.set_bad_request(violations);
        }
        if self.retry_after.is_some() {
            details.set_retry_info(self.retry_after);
        }
        Status::with_error_details(self.code, message, details)
    }
}

/// Cuts a text that is too long, and marks the cut.
fn cut(text: &mut String) {
    const MARK: &str = "...";
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES - MARK.len()));
        text.push_str(MARK);
    }
}

/// Returns the violations that fit into `room` bytes, followed by the number of the others.
fn reported(mut violations: Vec<FieldViolation>, mut room: usize) -> Vec<FieldViolation> {
    let fits = |violation: &mut FieldViolation| {
        cut(&mut violation.field);
        cut(&mut violation.description);
        let texts = violation.field.len() + violation.description.len();
        let left = room.checked_sub(texts + VIOLATION_BYTES);
        room = left.unwrap_or(0);
        left.is_some()
    };
    let count = violations.len();
    let fitting = violations.iter_mut().map(fits).take_while(|fits| *fits);
    let fitting = fitting.count();
    violations.truncate(fitting);
    if fitting < count {
        let more = format!(
            "{} more are wrong, and are not listed here",
            count - fitting
        );
        violations.push(FieldViolation::new("", more));
    }
    violations
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        failure.into_status()
    }
}

/// Logs `error` with all its causes and makes the status for the caller, with only the trace id.
pub fn internal(error: &(dyn Error + 'static)) -> Status {
    let trace_id = telemetry::context::current_trace_id();
    tracing::error!(trace_id, error = chain(error), "internal error");
    internal_status(&trace_id)
}

/// The status of a failure inside that is logged already.
pub(crate) fn internal_status(trace_id: &str) -> Status {
    Failure::new(
        Code::Internal,
        ErrorReason::Internal,
        format!("internal error; the log has it under trace id {trace_id}"),
    )
    .metadata("trace_id", trace_id)
    .into_status()
}

/// Returns an error and its causes, each behind its effect.
pub fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |&cause| cause.source())
}

/// Joins an error and its causes with ": ".
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let words: Vec<String> = causes(error).map(ToString::to_string).collect();
    words.join(": ")
}

/// Returns the reason as it travels in an `ErrorInfo`.
pub fn reason_name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(REASON_PREFIX).unwrap_or(name)
}

/// Returns the reason of a status; `None` if it has none of ours.
pub fn reason(status: &Status) -> Option<ErrorReason> {
    let info = status
        .get_details_error_info()
        .filter(|info| info.domain == DOMAIN)?;
    ErrorReason::from_str_name(&format!("{REASON_PREFIX}{}", info.reason))
}

/// Returns the metadata of a status's `ErrorInfo`; empty if it has none of ours.
pub fn metadata(status: &Status) -> HashMap<String, String> {
    status
        .get_details_error_info()
        .filter(|info| info.domain == DOMAIN)
        .map(|info| info.metadata)
        .unwrap_or_default()
}

/// Returns whether a request that was not answered may have been carried out: its connection broke
/// after it had left. A service that was not reachable, or that refused, did nothing.
pub fn may_have_arrived(status: &Status) -> bool {
    metadata(status).contains_key(MAY_HAVE_ARRIVED)
}

/// Returns the violated fields of a status with their descriptions.
pub fn violations(status: &Status) -> Vec<(String, String)> {
    status
        .get_details_bad_request()
        .map(|request| request.field_violations)
        .unwrap_or_default()
        .into_iter()
        .map(|violation| (violation.field, violation.description))
        .collect()
}

/// Returns the time after which a retry can help; `None` if the status has none.
pub fn retry_after(status: &Status) -> Option<Duration> {
    status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_the_whole_request_is_named_without_a_field() {
        let failure = Failure::invalid_fields().violation("", "it is not JSON");
        let status = failure.into_status();
        assert_eq!(status.message(), "the request is not valid: it is not JSON");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let status = Failure::invalid_fields()
            .violation("tool_id", "is empty")
            .violation("arguments_json", "is not a JSON object")
            .metadata("tool_id", "x")
            .retry_after(Duration::from_secs(2))
            .into_status();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(
            status.message(),
            "the request is not valid: tool_id: is empty (and 1 more)"
        );
        assert_eq!(reason(&status), Some(ErrorReason::InvalidFields));
        assert_eq!(metadata(&status)["tool_id"], "x");
        assert_eq!(violations(&status)[1].0, "arguments_json");
        assert_eq!(retry_after(&status), Some(Duration::from_secs(2)));
    }

    #[test]
    fn whatever_is_wrong_the_status_fits_into_small_trailers() {
        let long = "ä".repeat(4000);
        let many = |count: usize, field: &str, metadata: usize| {
            let fields = (0..count).map(|number| format!("{field}[{number}]"));
            let keys = ["wanted", "available", "missing", "level"];
            let failure = Failure::invalid_fields();
            let failure = keys.iter().take(metadata).fold(failure, |failure, key| {
                failure.metadata(*key, long.as_str())
            });
            fields.fold(failure, |failure, field| {
                failure.violation(field, "must not be absolute")
            })
        };
        for (count, field, metadata, expected) in [
            (1, long.as_str(), 1, 1),
            (3, long.as_str(), 1, 3),
            (100, long.as_str(), 1, 4),
            (100, long.as_str(), 4, 1),
            (50, "files", 1, 50),
            (1000, "files", 1, 69),
        ] {
            let status = many(count, field, metadata).into_status();
            let trailers = status.details().len() * 4 / 3 + status.message().len() * 3;
            assert!(trailers < 8 << 10, "{count} {trailers}");
            let violations = violations(&status);
            let last = violations.last().unwrap();
            let more = last.0.is_empty().then_some(last.1.as_str());
            let listed = violations.len() - usize::from(more.is_some());
            assert_eq!(listed, expected);
            let rest = (listed < count)
                .then(|| format!("{} more are wrong, and are not listed here", count - listed));
            assert_eq!(more, rest.as_deref());
        }
    }

    #[test]
    fn a_foreign_status_has_no_reason() {
        let status = Status::not_found("x");
        assert_eq!(reason(&status), None);
        assert!(violations(&status).is_empty() && metadata(&status).is_empty());
    }

    #[test]
    fn the_inside_stays_inside() {
        #[derive(Debug, thiserror::Error)]
        #[error("the outer sentence")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("disk /dev/sda1 is broken"));
        assert_eq!(
            chain(&error),
            "the outer sentence: disk /dev/sda1 is broken"
        );
        let status = internal(&error);
        assert_eq!(status.code(), Code::Internal);
        assert!(!status.message().contains("sda1"));
    }
}
