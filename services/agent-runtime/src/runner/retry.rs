//! Asking another service again while it does not answer.

use std::time::Duration;

use contracts::tavern::common::v1::ErrorReason;
use tonic::{Code, Status};

/// The longest wait between two attempts.
const LONGEST: Duration = Duration::from_secs(5);

/// Waits that grow.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self {
            next: Duration::from_millis(50),
        }
    }

    /// Returns how long to wait before the next attempt: what the peer asks for, or a growing
    /// time of our own.
    pub(super) fn after(&mut self, status: &Status) -> Duration {
        let own = self.next;
        self.next = (self.next * 2).min(LONGEST);
        grpc_kit::retry_after(status).unwrap_or(own).min(LONGEST)
    }
}

/// What a failure of a request to another service means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The service is not there or busy: the same request may work later.
    NotNow,
    /// The service refused the request: nothing happened.
    Refused,
    /// The service failed: nobody can tell what happened.
    Broken,
}

pub(super) fn meaning(status: &Status) -> Meaning {
    match status.code() {
        Code::Unavailable
        | Code::Aborted
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unknown => Meaning::NotNow,
        Code::ResourceExhausted
            if matches!(
                grpc_kit::reason(status),
                Some(
                    ErrorReason::Overloaded
                        | ErrorReason::StorageUnavailable
                        | ErrorReason::Draining
                )
            ) =>
        {
            Meaning::NotNow
        }
        Code::InvalidArgument
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::OutOfRange
        | Code::ResourceExhausted
        | Code::Unimplemented => Meaning::Refused,
        _ => Meaning::Broken,
    }
}
