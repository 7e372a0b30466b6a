//! When a request to another service is sent again.

use grpc_kit::{Backoff, FailureClass};
use tonic::Status;

use crate::policy::TRIES;

/// The tries at one request: a service that is away or busy is asked again and again, one that fails inside
/// [`TRIES`] times, and one that refuses the request once.
#[derive(Debug, Default)]
pub struct Tries {
    backoff: Backoff,
    failures: u32,
}

impl Tries {
    /// Waits before the next try. Returns false, at once, if there is to be none after `status`.
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

    /// Waits as long as the service asks for, and longer from try to try.
    pub(crate) async fn wait(&mut self, status: &Status) {
        tokio::time::sleep(self.backoff.after(status)).await;
    }
}
