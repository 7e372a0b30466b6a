//! The end of the run.

use contracts::tavern::common::v1 as common;
use run_events::{CancelReason, outcome};

use workflow_domain::engine::Engine;

use super::super::effect_end::Unsettled;
use super::super::settle::{outcome_to_proto, with_partial_result};
use super::RunLoop;

impl RunLoop {
    /// Returns the calls of an earlier process that this one has not taken up, which are to be cancelled
    /// with the run.
    pub fn take_earlier_calls(&mut self) -> Vec<String> {
        let earlier = std::mem::take(&mut self.earlier_calls);
        earlier
            .into_iter()
            .map(|(_, effect_id)| effect_id)
            .collect()
    }

    /// Notes calls of an earlier process that have not followed the cancel of the run.
    pub fn leave_unended(&mut self, effect_ids: Vec<String>) {
        self.unsettled.unended.extend(effect_ids);
    }

    /// Returns the state of an iteration in which nothing is left to happen.
    ///
    /// # Errors
    /// The calls of which the ends are not known, if its nodes stopped before.
    pub fn into_end(self) -> Result<Engine, Unsettled> {
        let (engine, unknown) = self.state.into_end();
        let mut unsettled = Unsettled {
            unknown,
            unended: Vec::new(),
        };
        unsettled.extend(self.unsettled);
        if !unsettled.is_empty() {
            let earlier = self.earlier_calls.into_iter();
            let earlier = earlier.map(|(_, effect_id)| effect_id);
            unsettled.unended.extend(earlier);
        }
        match !self.is_cancelled && unsettled.is_empty() {
            true => Ok(engine),
            false => Err(unsettled),
        }
    }

    /// Returns how the run ended from outside. The calls whose ends are not known are named.
    pub fn stopped(&self, reason: &CancelReason) -> common::RunOutcome {
        let stopped = outcome::stopped(reason, self.unknown().collect());
        let stopped = with_partial_result(self.state.engine(), stopped);
        self.of_run.allowance.with_used(stopped)
    }

    /// Returns the outcome of the run with its usage; `None` while it has not ended by itself.
    pub fn outcome(&self) -> Option<common::RunOutcome> {
        let outcome = match self.is_in_doubt() {
            true => self.in_doubt(),
            false => {
                let ended = self.state.engine().outcome()?;
                outcome_to_proto(self.state.engine(), ended, self.state.handled().list())
            }
        };
        Some(self.of_run.allowance.with_used(outcome))
    }

    fn in_doubt(&self) -> common::RunOutcome {
        let mut known = self.state.doubts().iter().chain(&self.unsettled.unknown);
        let error = known.next().map(|(_, error)| error.clone());
        let unended = || {
            let message = "calls had not ended when the time of their zone was over";
            outcome::error(common::ErrorCategory::Timeout, "calls_unended", message)
        };
        outcome::in_doubt(self.unknown().collect(), error.unwrap_or_else(unended))
    }

    /// Returns the ids of the calls of which the ends are not known.
    fn unknown(&self) -> impl Iterator<Item = String> {
        let Unsettled { unknown, unended } = &self.unsettled;
        let inside = unknown.iter().map(|(effect_id, _)| effect_id.as_str());
        let unended = unended.iter().map(String::as_str);
        // Another attempt of an earlier process is not taken up: it may not have left.
        let earlier = self.earlier_calls.iter();
        let earlier = earlier.map(|(_, effect_id)| effect_id.as_str());
        let own = self.state.in_doubt().chain(inside).chain(unended);
        own.chain(earlier).map(str::to_owned)
    }
}
