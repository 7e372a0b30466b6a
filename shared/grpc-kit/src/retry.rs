//! Retries of requests to another service, and the waits before them.

use std::time::Duration;

use contracts::tavern::common::v1::ErrorReason;
use tokio::time::Instant;
use tonic::{Code, Status};

/// The wait before the second attempt, before jitter.
const FIRST: Duration = Duration::from_millis(50);

/// The longest wait between two attempts.
const LONGEST: Duration = Duration::from_secs(5);

/// The wait for each attempt at a call that has failed so far, before jitter.
const ATTEMPT: Duration = Duration::from_millis(500);

/// The class of a failed request, which decides about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// The service is away or busy: the same request may succeed later. Retry it.
    Transient,
    /// The service refused the request: nothing happened, and a retry gets the same answer.
    Refused,
    /// The service failed: the effect is unknown. Retry a few times at most.
    Broken,
}

impl FailureClass {
    /// Classifies the status with which a request failed.
    pub fn of(status: &Status) -> Self {
        match status.code() {
            Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled => {
                Self::Transient
            }
            Code::ResourceExhausted if is_busy(status) => Self::Transient,
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::OutOfRange
            | Code::ResourceExhausted
            | Code::Unimplemented => Self::Refused,
            _ => Self::Broken,
        }
    }
}

/// Whether the server is busy, and the request not too large.
fn is_busy(status: &Status) -> bool {
    let reason = crate::reason(status);
    reason != Some(ErrorReason::LimitExceeded)
        && (crate::retry_after(status).is_some()
            || matches!(
                reason,
                Some(
                    ErrorReason::Overloaded
                        | ErrorReason::StorageUnavailable
                        | ErrorReason::Draining
                )
            ))
}

/// Waits between attempts: 50 ms, then twice as long each time, up to 5 s, each shortened by up to
/// a half at random, so that clients of a service that comes back do not all arrive at once.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// Returns the wait after a failure: at least the time that the server asked for, if that is
    /// not longer than 5 s.
    pub fn after(&mut self, status: &Status) -> Duration {
        let asked = crate::retry_after(status).unwrap_or_default();
        self.next_wait().max(asked.min(LONGEST))
    }

    /// Returns the wait before the next attempt.
    pub fn next_wait(&mut self) -> Duration {
        let wait = jittered(self.next);
        self.next = (self.next * 2).min(LONGEST);
        wait
    }
}

/// The time limit of retries to an unreachable service, and the waits in between.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    deadline: Instant,
    until: Instant,
    backoff: Backoff,
}

impl Patience {
    /// Allows retries for `limit`, but not past `deadline`.
    pub fn new(limit: Duration, deadline: Instant) -> Self {
        Self {
            limit,
            deadline,
            until: deadline.min(Instant::now() + limit),
            backoff: Backoff::default(),
        }
    }

    /// Waits before the next try. Returns false if none should follow: because the failure is of
    /// another kind, or because it has lasted too long.
    pub async fn wait_after(&mut self, status: &Status) -> bool {
        let overloaded =
            status.code() == Code::ResourceExhausted && crate::retry_after(status).is_some();
        if status.code() != Code::Unavailable && !overloaded {
            return false;
        }
        let wait = self.backoff.after(status);
        if Instant::now() + wait >= self.until {
            return false;
        }
        tokio::time::sleep(wait).await;
        true
    }

    /// Begins again, after a success.
    pub fn reset(&mut self) {
        self.until = self.deadline.min(Instant::now() + self.limit);
        self.backoff = Backoff::default();
    }
}

/// Returns the wait before the next attempt at a call that failed without effect: up to half a
/// second for each attempt so far, at least half of that.
pub fn wait_after_attempt(attempt: u32) -> Duration {
    jittered(ATTEMPT * attempt)
}

/// Returns a random time between half of `wait` and `wait`.
pub fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(1.0 - fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn waits_double_up_to_the_longest_and_differ_by_at_most_a_half() {
        let mut backoff = Backoff::default();
        let mut full = FIRST;
        for _ in 0..20 {
            let wait = backoff.next_wait();
            assert!(wait <= full && wait >= full / 2, "{wait:?} of {full:?}");
            full = (full * 2).min(LONGEST);
        }
        let waits: std::collections::HashSet<_> = (0..100).map(|_| jittered(LONGEST)).collect();
        assert!(waits.len() > 50);
    }

    #[test]
    fn a_server_that_names_a_time_is_not_asked_before() {
        let busy = |delay| {
            Failure::new(Code::ResourceExhausted, ErrorReason::Overloaded, "busy")
                .retry_after(delay)
                .into_status()
        };
        let after = |delay| Backoff::default().after(&busy(delay));
        assert_eq!(after(Duration::from_secs(2)), Duration::from_secs(2));
        assert_eq!(after(Duration::from_secs(60)), LONGEST);
        assert!(after(Duration::ZERO) >= FIRST / 2);
    }

    #[test]
    fn only_what_may_succeed_later_is_transient() {
        let class = |code, reason| {
            let failure = Failure::new(code, reason, "x");
            FailureClass::of(&failure.into_status())
        };
        let cases = [
            (
                Code::Unavailable,
                ErrorReason::DependencyUnavailable,
                FailureClass::Transient,
            ),
            (
                Code::ResourceExhausted,
                ErrorReason::Overloaded,
                FailureClass::Transient,
            ),
            (
                Code::ResourceExhausted,
                ErrorReason::LimitExceeded,
                FailureClass::Refused,
            ),
            (
                Code::InvalidArgument,
                ErrorReason::InvalidFields,
                FailureClass::Refused,
            ),
            (Code::Internal, ErrorReason::Internal, FailureClass::Broken),
        ];
        for (code, reason, expected) in cases {
            assert_eq!(class(code, reason), expected, "{code:?} {reason:?}");
        }
    }
}
