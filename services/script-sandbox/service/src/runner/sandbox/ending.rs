//! Ends scripts when the service shuts down.

use std::{sync::Arc, time::Duration};

use grpc_kit::Shutdown;
use sandbox_engine::domain::{outcome::Outcome, verdict::Verdict};

use super::Sandbox;
use crate::error::Refusal;

/// The part of the grace period after which scripts are ended; the rest is for the answers.
const SCRIPTS_PART: f32 = 0.75;

impl Sandbox {
    /// Ends scripts that outlast a shutdown: once it has begun, and most of the server's grace
    /// period for open calls has passed. Returns when they have ended.
    pub async fn end_scripts_in_time(self: Arc<Self>, shutdown: Shutdown, grace: Duration) {
        shutdown.started().await;
        tokio::time::sleep(grace.mul_f32(SCRIPTS_PART)).await;
        self.end_scripts().await;
    }

    /// Ends every script and every session, and refuses further ones. Callers who stream receive
    /// that their script is cancelled, other callers that the service shuts down.
    pub async fn end_scripts(&self) {
        self.ending.send_replace(true);
        self.sessions.shutdown().await;
    }

    /// Waits for the order to end every script.
    pub(super) fn asked_to_end(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ending = self.ending.subscribe();
        async move {
            if ending.wait_for(|ending| *ending).await.is_err() {
                // Without a sandbox the sender is dropped, and no order to end comes.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Refuses a script that has not begun, once scripts are ordered to end.
    pub(super) fn still_serves(&self) -> Result<(), Refusal> {
        let serves = !*self.ending.borrow();
        serves
            .then_some(())
            .ok_or(Refusal::ShutDown { begun: false })
    }

    /// An outcome, unless it is that the service has ended the script for its own sake.
    pub(super) fn unless_shut_down(&self, outcome: Outcome) -> Result<Outcome, Refusal> {
        let cancelled = matches!(outcome.verdict, Verdict::Cancelled { .. });
        match cancelled && *self.ending.borrow() {
            true => Err(Refusal::ShutDown { begun: true }),
            false => Ok(outcome),
        }
    }
}
