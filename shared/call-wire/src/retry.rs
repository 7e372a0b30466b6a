//! The further attempts of a call that failed (rules T26 and W21).

use contracts::tavern::common::v1::{CallResult, CallStatus};

/// The most attempts after the first that a text is granted.
const MAX_RETRIES: u32 = 3;

/// Returns the granted number of attempts after the first, of a requested number.
pub fn granted_retries(asked: u32) -> u32 {
    asked.min(MAX_RETRIES)
}

/// The most attempts at one effect.
pub const MAX_ATTEMPTS: u32 = 32;

/// Returns the attempt with which a call is dispatched again under its effect id; zero if it is not
/// to be repeated.
pub fn next_attempt(result: &CallResult) -> u32 {
    let has_next = result.attempt > 0 && result.attempt < MAX_ATTEMPTS;
    match has_next && may_succeed_later(result) {
        true => result.attempt + 1,
        false => 0,
    }
}

/// Whether a call failed without effect, so that another attempt may succeed.
fn may_succeed_later(result: &CallResult) -> bool {
    let error = result.error.as_ref();
    result.status() == CallStatus::Failed && error.is_some_and(|error| error.retryable)
}
