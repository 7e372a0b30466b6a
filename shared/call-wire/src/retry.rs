//! When a call that failed is tried again (rules T26 and W21).

use contracts::tavern::common::v1::{CallResult, CallStatus};

/// The most attempts after the first that a text is granted.
const MAX_RETRIES: u32 = 3;

/// Returns how many attempts after the first a call is granted that asks for this many.
pub fn granted_retries(asked: u32) -> u32 {
    asked.min(MAX_RETRIES)
}

/// Whether a call failed without effect, so that another attempt may succeed.
pub fn may_succeed_later(result: &CallResult) -> bool {
    let error = result.error.as_ref();
    result.status() == CallStatus::Failed && error.is_some_and(|error| error.retryable)
}
