//! How the loop of a run ends.

use contracts::tavern::common::v1 as common;
use futures::stream::StreamExt;
use run_client::cancel_words;
use run_events::{CancelReason, outcome};
use run_log::AppendError;

use workflow_domain::engine::Engine;

use super::super::settle::{outcome_to_proto, with_partial_result};
use super::super::zone::Unsettled;
use super::{Drive, DriveStop};

impl Drive {
    /// Returns the state of an iteration in which nothing is left to happen, or what is not known.
    pub(super) fn into_end(self, reached: DriveStop) -> Result<Engine, Unsettled> {
        let unsettled = Unsettled {
            unknown: self.unknown,
            unended: self.unended,
        };
        match reached {
            DriveStop::End if unsettled.is_empty() => Ok(self.engine),
            _ => Err(unsettled),
        }
    }

    /// Waits for everything running, which was cancelled, and ends the calls of an earlier process that
    /// still waited for a permit or for the end of a pause.
    pub(super) async fn stop(&mut self) -> Result<DriveStop, AppendError> {
        let earlier = std::mem::take(&mut self.earlier_calls).into_iter();
        let earlier = earlier.map(|(_, effect_id)| effect_id);
        let peers = self.runner.peers(&self.control.call_context());
        let reason = cancel_words(&self.control);
        let earlier = peers.calls.cancel_all(earlier, &reason, &peers.context);
        let running = async {
            while let Some((node, outcome)) = self.running.next().await {
                self.settle(node, outcome)?;
            }
            Ok::<(), AppendError>(())
        };
        let (stopped, left) = tokio::join!(running, earlier);
        stopped?;
        self.unended.extend(left);
        self.hand_over().await?;
        Ok(DriveStop::Stop)
    }

    /// Returns how the run ended from outside. What did not end is named.
    pub(super) fn stopped(&mut self) -> common::RunOutcome {
        let reason = self.control.why().unwrap_or(CancelReason::Deadline);
        let unknown = self.unknown.drain(..).map(|(effect_id, _)| effect_id);
        let unsettled = std::mem::take(&mut self.unended)
            .into_iter()
            .chain(unknown)
            .collect();
        let stopped = outcome::stopped(&reason, unsettled);
        let stopped = with_partial_result(&self.engine, stopped);
        self.allowance.with_used(stopped)
    }

    /// Returns how the run ended, and what it used.
    pub(super) fn outcome(&mut self) -> common::RunOutcome {
        let outcome = self.ended();
        self.allowance.with_used(outcome)
    }

    fn ended(&mut self) -> common::RunOutcome {
        if !self.unknown.is_empty() {
            let error = self
                .unknown
                .first()
                .map(|(_, error)| error.clone())
                .unwrap_or_default();
            let ids = self
                .unknown
                .drain(..)
                .map(|(effect_id, _)| effect_id)
                .collect();
            return outcome::in_doubt(ids, error);
        }
        match self.engine.outcome() {
            Some(outcome) => {
                let handled = self.waits.handled().list();
                outcome_to_proto(&self.engine, outcome, handled)
            }
            None => {
                tracing::error!(run = %self.recorder.run_id(), "a run has nothing left to do and is not over");
                outcome::internal(&telemetry::context::current_trace_id())
            }
        }
    }
}
