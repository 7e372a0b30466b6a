//! Asking another service again while it is not there.

use std::time::Duration;

use grpc_kit::Backoff;
use tokio::time::Instant;
use tonic::{Code, Status};

/// How long to continue asking a service that is not there, and how long to wait in between.
#[derive(Debug)]
pub(crate) struct Patience {
    limit: Duration,
    deadline: Instant,
    until: Instant,
    backoff: Backoff,
}

impl Patience {
    /// Continues for `limit`, but not past `deadline`.
    pub(crate) fn new(limit: Duration, deadline: Instant) -> Self {
        Self {
            limit,
            deadline,
            until: deadline.min(Instant::now() + limit),
            backoff: Backoff::default(),
        }
    }

    /// Waits before the next try. Returns false if there should be none: because the failure is of
    /// another kind, or because it has lasted too long.
    pub(crate) async fn wait_after(&mut self, status: &Status) -> bool {
        let overloaded =
            status.code() == Code::ResourceExhausted && grpc_kit::retry_after(status).is_some();
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

    /// Begins again, after something went well.
    pub(crate) fn reset(&mut self) {
        self.until = self.deadline.min(Instant::now() + self.limit);
        self.backoff = Backoff::default();
    }
}
