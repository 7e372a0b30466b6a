//! The outcomes with which a run ends.

use contracts::tavern::common::v1::{CallError, ErrorCategory, RunOutcome, RunState, StopReason};

use crate::control::CancelReason;

/// The run fulfilled its request; `result_json` is its result.
pub fn succeeded(result_json: String) -> RunOutcome {
    RunOutcome {
        result_json,
        ..of(RunState::Succeeded)
    }
}

/// The run ended with an error.
pub fn failed(error: CallError) -> RunOutcome {
    RunOutcome {
        error: Some(error),
        ..of(RunState::Failed)
    }
}

/// Marks the span of a run that failed, or whose effects are in doubt.
pub(crate) fn mark(span: &tracing::Span, outcome: &RunOutcome) {
    if matches!(outcome.state(), RunState::Failed | RunState::InDoubt) {
        let error = outcome.error.clone().unwrap_or_default();
        telemetry::spans::fail(span, &error.code, &error.message);
    }
}

/// Calls were dispatched of which it is not known whether they took effect.
pub fn in_doubt(unsettled_effect_ids: Vec<String>, error: CallError) -> RunOutcome {
    RunOutcome {
        unsettled_effect_ids,
        error: Some(error),
        ..of(RunState::InDoubt)
    }
}

/// The run ended before it was decided whether these calls took effect: it is in doubt, unless it succeeded.
pub(crate) fn with_undecided(
    outcome: RunOutcome,
    effects: Vec<String>,
    why: CallError,
) -> RunOutcome {
    if outcome.state() == RunState::Succeeded {
        return outcome;
    }
    let unsettled = outcome.unsettled_effect_ids.iter();
    let others = unsettled
        .filter(|effect| !effects.contains(effect))
        .cloned();
    let unsettled_effect_ids = effects.iter().cloned().chain(others).collect();
    RunOutcome {
        state: RunState::InDoubt.into(),
        stop_reason: StopReason::InDoubt.into(),
        error: Some(why),
        unsettled_effect_ids,
        ..outcome
    }
}

/// The run was ended from outside: by a request it is cancelled, by its deadline it failed.
pub fn stopped(reason: &CancelReason, unsettled_effect_ids: Vec<String>) -> RunOutcome {
    let (state, category, code, message, stop) = match reason {
        CancelReason::Requested(words) => (
            RunState::Cancelled,
            ErrorCategory::Cancelled,
            "cancelled",
            if words.is_empty() {
                "the run was cancelled".to_owned()
            } else {
                words.clone()
            },
            StopReason::Cancelled,
        ),
        CancelReason::Deadline => (
            RunState::Failed,
            ErrorCategory::Timeout,
            "deadline_exceeded",
            "the run's deadline passed; start it again with a longer timeout".to_owned(),
            StopReason::Deadline,
        ),
    };
    let error = error(category, code, message);
    let stopped = RunOutcome {
        unsettled_effect_ids,
        error: Some(error),
        ..of(state)
    };
    with_stop(stopped, stop)
}

/// Adds the reason for which the run stopped.
pub fn with_stop(mut outcome: RunOutcome, stop: StopReason) -> RunOutcome {
    outcome.stop_reason = stop.into();
    outcome
}

/// A failure of Tavern itself, with details in the log.
pub fn internal(trace_id: &str) -> RunOutcome {
    let message = format!("something went wrong inside the server; its log has trace {trace_id}");
    failed(error(ErrorCategory::Internal, "internal", message))
}

/// Makes an error that cannot be retried and has no further details.
pub fn error(category: ErrorCategory, code: &str, message: impl Into<String>) -> CallError {
    CallError {
        category: category.into(),
        code: code.to_owned(),
        message: message.into(),
        ..CallError::default()
    }
}

fn of(state: RunState) -> RunOutcome {
    RunOutcome {
        state: state.into(),
        ..RunOutcome::default()
    }
}
