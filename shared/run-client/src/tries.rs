//! Retries of requests to other services.

use grpc_kit::{Backoff, FailureClass};
use tonic::Status;

use crate::policy::TRIES;

/// The tries at one request: repeated while the service is away or busy, [`TRIES`] in all if the
/// service fails inside, and one if it refuses the request.
#[derive(Debug, Default)]
pub struct Tries {
    backoff: Backoff,
    failures: u32,
}

impl Tries {
    /// Waits before the next try. Returns false, at once, if no try follows `status`.
    pub async fn wait_after(&mut self, status: &Status) -> bool {
        let again = self.has_next(status);
        if again {
            self.wait(status).await;
        }
        again
    }

    /// Counts a try that ended with `status`; returns whether another follows.
    pub(crate) fn has_next(&mut self, status: &Status) -> bool {
        match FailureClass::of(status) {
            FailureClass::Transient => true,
            FailureClass::Refused => false,
            FailureClass::Broken => {
                self.failures += 1;
                self.failures < TRIES
            }
        }
    }

    /// Waits for the time that the service requests, and longer from try to try.
    pub(crate) async fn wait(&mut self, status: &Status) {
        tokio::time::sleep(self.backoff.after(status)).await;
    }
}
