//! The outcome of a call, to the contract and back.

use call_outcome::{
    CallOutcome, Category, Failure, FailureInner, LongOutput as KeptOutput, Violation,
};
use contracts::tavern::common::v1::{
    self as common, CallError, CallResult, CallStatus, ErrorCategory, LongOutput,
};
use serde_json::Value;

/// Converts an outcome to the result's status, output and error; the other fields are empty.
pub fn outcome_to_proto(outcome: &CallOutcome) -> CallResult {
    let status = match outcome {
        CallOutcome::Succeeded(_) | CallOutcome::SucceededLong(_) => CallStatus::Succeeded,
        CallOutcome::Failed(_) => CallStatus::Failed,
        CallOutcome::Rejected(_) => CallStatus::Rejected,
        CallOutcome::Cancelled(_) => CallStatus::Cancelled,
        CallOutcome::InDoubt(_) => CallStatus::InDoubt,
    };
    CallResult {
        status: status.into(),
        output_json: match outcome {
            CallOutcome::Succeeded(output) => output.to_string(),
            _ => String::new(),
        },
        long_output: match outcome {
            CallOutcome::SucceededLong(output) => Some(LongOutput {
                head: output.head.clone(),
                total_bytes: output.total_bytes,
            }),
            _ => None,
        },
        error: outcome.failure().map(failure_to_proto),
        ..CallResult::default()
    }
}

/// Converts an outcome from its message. An output that is not JSON is a text.
pub fn outcome_from_proto(result: &CallResult) -> CallOutcome {
    let failure = || failure_from_proto(&result.error.clone().unwrap_or_default());
    match (result.status(), &result.long_output) {
        (CallStatus::Succeeded, Some(long)) => CallOutcome::SucceededLong(KeptOutput {
            head: long.head.clone(),
            total_bytes: long.total_bytes,
        }),
        (CallStatus::Succeeded, None) => {
            let output = serde_json::from_str(&result.output_json);
            CallOutcome::Succeeded(output.unwrap_or_else(|_| result.output_json.clone().into()))
        }
        (CallStatus::Failed, _) => CallOutcome::Failed(failure()),
        (CallStatus::InDoubt, _) => CallOutcome::InDoubt(failure()),
        (CallStatus::Cancelled, _) => CallOutcome::Cancelled(failure()),
        (CallStatus::Rejected | CallStatus::Skipped | CallStatus::Unspecified, _) => {
            CallOutcome::Rejected(failure())
        }
    }
}

/// Converts a failure to its message.
pub fn failure_to_proto(failure: &Failure) -> CallError {
    let details_json = match failure.details.is_empty() {
        true => String::new(),
        false => Value::Object(failure.details.clone()).to_string(),
    };
    CallError {
        category: category_to_proto(failure.category).into(),
        code: failure.code.clone(),
        message: failure.message.clone(),
        retryable: failure.retryable,
        violations: failure.violations.iter().map(violation_to_proto).collect(),
        details_json,
    }
}

/// Converts a failure from its message. An unknown category is an internal failure; details that
/// are not a JSON object are left out.
pub fn failure_from_proto(error: &CallError) -> Failure {
    let details = match json_schema::parse_json_strict(&error.details_json) {
        Ok(Value::Object(details)) => details,
        _ => serde_json::Map::new(),
    };
    Failure::from(FailureInner {
        category: category_from_proto(error.category()),
        code: error.code.clone(),
        message: error.message.clone(),
        retryable: error.retryable,
        violations: error.violations.iter().map(violation_from_proto).collect(),
        details,
    })
}

/// Converts a violation to its message.
pub fn violation_to_proto(violation: &Violation) -> common::Violation {
    common::Violation {
        pointer: violation.pointer.clone(),
        code: violation.code.to_string(),
        message: violation.message.clone(),
        expected: violation.expected.clone(),
        received: violation.received.clone(),
        suggestions: violation.suggestions.clone(),
    }
}

/// Converts a violation from its message.
pub fn violation_from_proto(violation: &common::Violation) -> Violation {
    Violation {
        pointer: violation.pointer.clone(),
        code: violation.code.clone().into(),
        message: violation.message.clone(),
        expected: violation.expected.clone(),
        received: violation.received.clone(),
        suggestions: violation.suggestions.clone(),
    }
}

fn category_to_proto(category: Category) -> ErrorCategory {
    match category {
        Category::Validation => ErrorCategory::Validation,
        Category::Domain => ErrorCategory::Domain,
        Category::Policy => ErrorCategory::Policy,
        Category::Runtime => ErrorCategory::Runtime,
        Category::Dependency => ErrorCategory::Dependency,
        Category::Timeout => ErrorCategory::Timeout,
        Category::Cancelled => ErrorCategory::Cancelled,
        Category::Limit => ErrorCategory::Limit,
        Category::Internal => ErrorCategory::Internal,
    }
}

pub(crate) fn category_from_proto(category: ErrorCategory) -> Category {
    match category {
        ErrorCategory::Validation => Category::Validation,
        ErrorCategory::Domain => Category::Domain,
        ErrorCategory::Policy => Category::Policy,
        ErrorCategory::Runtime => Category::Runtime,
        ErrorCategory::Dependency => Category::Dependency,
        ErrorCategory::Timeout => Category::Timeout,
        ErrorCategory::Cancelled => Category::Cancelled,
        ErrorCategory::Limit => Category::Limit,
        ErrorCategory::Internal | ErrorCategory::Unspecified => Category::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_back_as_it_was_written() {
        for category in Category::ALL {
            let mut failure = Failure::new(category, "code", "message").detail("exit_code", 3);
            failure
                .violations
                .push(Violation::new("/a", "missing_parameter", "give `a`").nearest("b", ["ab"]));
            assert_eq!(failure_from_proto(&failure_to_proto(&failure)), failure);
        }
        let plain = Failure::invalid("code", "message").retryable();
        assert_eq!(failure_to_proto(&plain).details_json, "");
        assert_eq!(failure_from_proto(&failure_to_proto(&plain)), plain);
    }

    #[test]
    fn an_outcome_is_a_status_with_either_an_output_or_an_error() {
        let succeeded = outcome_to_proto(&CallOutcome::Succeeded(serde_json::json!({"a": 1})));
        assert_eq!(succeeded.status(), CallStatus::Succeeded);
        assert_eq!(
            (&*succeeded.output_json, succeeded.error),
            (r#"{"a":1}"#, None)
        );
        let long = outcome_to_proto(&CallOutcome::SucceededLong(call_outcome::LongOutput {
            head: "[1".into(),
            total_bytes: 9,
        }));
        assert_eq!(
            (long.status(), &*long.output_json),
            (CallStatus::Succeeded, "")
        );
        let failure = Failure::invalid("code", "message").detail("x", 1);
        type Make = fn(Failure) -> CallOutcome;
        for (make, status) in [
            (CallOutcome::Failed as Make, CallStatus::Failed),
            (CallOutcome::Rejected, CallStatus::Rejected),
            (CallOutcome::Cancelled, CallStatus::Cancelled),
            (CallOutcome::InDoubt, CallStatus::InDoubt),
        ] {
            let written = outcome_to_proto(&make(failure.clone()));
            assert_eq!((written.status(), &*written.output_json), (status, ""));
            assert_eq!(failure_from_proto(&written.error.unwrap()), failure);
        }
    }

    #[test]
    fn an_unknown_category_is_internal_and_foreign_details_are_left_out() {
        let error = CallError {
            category: 99,
            details_json: "[1]".to_owned(),
            ..CallError::default()
        };
        let failure = failure_from_proto(&error);
        assert_eq!(failure.category, Category::Internal);
        assert!(failure.details.is_empty());
    }
}
