//! The stopping of a cancelled run by its process.

use contracts::tavern::common::v1::CancelRequested;
use contracts::tavern::common::v1::run_event::Kind;
use run_client::CallEnd;
use workflow_runner::effect_end::EffectEnd;
use workflow_runner::run_loop::Happening as Happened;
use workflow_runner::run_state::RunState;

use super::children::{Step, workflow_of};
use super::outside::{Continue, Happening, Outside};
use super::process::{OfRun, Scope};

/// The time for which the calls of a cancelled run may take to end, in milliseconds.
const GRACE: u64 = 1_200;

/// A run that was cancelled.
pub(super) struct Stopping {
    pub(super) reason: String,
    /// The calls of which it is not known how they ended, if an earlier process was to stop the run.
    pub(super) recovered: Option<Vec<String>>,
    /// The calls that were in doubt before.
    pub(super) in_doubt: Vec<String>,
}

impl Stopping {
    /// Begins to stop a run: the request is durable before anything follows it.
    pub(super) fn begin(run: &OfRun, outside: &mut Outside, reason: &str) -> Self {
        outside.submit(Kind::CancelRequested(CancelRequested {
            reason: reason.to_owned(),
        }));
        outside.commit();
        Self::within(GRACE, run, outside, reason, None)
    }

    /// Continues to stop a run that was cancelled before the process ended.
    pub(super) fn recovered(run: &OfRun, outside: &mut Outside, state: &RunState) -> Option<Self> {
        let reason = state.cancelled()?;
        let unsettled = state.unsettled();
        let mut unsettled: Vec<String> = unsettled.map(|(_, id)| id.to_owned()).collect();
        unsettled.sort();
        for effect_id in &unsettled {
            let cancel = Step::Cancel(reason.to_owned());
            outside.schedule_call(run.number, effect_id, cancel);
        }
        let grace = GRACE * unsettled.len() as u64;
        Some(Self {
            in_doubt: state.in_doubt().map(str::to_owned).collect(),
            ..Self::within(grace, run, outside, reason, Some(unsettled))
        })
    }

    fn within(
        grace: u64,
        run: &OfRun,
        outside: &mut Outside,
        reason: &str,
        recovered: Option<Vec<String>>,
    ) -> Self {
        let over = Happening::GraceOver {
            process: run.number,
            run_id: run.run_id.clone(),
        };
        outside.schedule(outside.now + grace, over);
        Self {
            reason: reason.to_owned(),
            recovered,
            in_doubt: Vec::new(),
        }
    }
}

impl Scope {
    /// Asks for the end of every call. Some tools do not follow.
    pub(super) fn cancel(&mut self, run: &OfRun, outside: &mut Outside, reason: &str) {
        self.nodes.cancel();
        self.earlier = self.nodes.take_earlier_calls();
        for effect_id in &self.earlier {
            let cancel = Step::Cancel(reason.to_owned());
            outside.schedule_call(run.number, effect_id, cancel);
        }
        for (node, tool_id) in &self.calling {
            match workflow_of(tool_id) {
                Some(_) => {
                    let cancel = Step::Cancel(reason.to_owned());
                    let effect_id = self.nodes.effect_id(*node, 0);
                    outside.schedule_call(run.number, &effect_id, cancel);
                }
                None if outside.random.bool() => {
                    let at = outside.now + outside.random.u64(0..GRACE);
                    self.continue_at(run, outside, at, *node, Continue::ToolCancelled);
                }
                None => {}
            }
        }
        for zone in self.zones.values_mut() {
            for scope in zone.running.values_mut() {
                scope.cancel(run, outside, reason);
            }
        }
    }

    /// Returns whether nothing of a cancelled run is under way here any more. Calls have a while to end.
    pub(super) fn stop(&mut self, run: &OfRun, outside: &mut Outside) -> bool {
        if run.grace_is_over {
            for node in std::mem::take(&mut self.calling).into_keys() {
                let end = EffectEnd::Tool(CallEnd::NotEnded);
                self.take(outside, node, Happened::Ended(end));
            }
        }
        self.advance_zones(run, outside);
        let followed = |effect_id: &String| !outside.registry.has_followed_cancel(effect_id);
        self.earlier.retain(followed);
        let is_over = run.grace_is_over || self.earlier.is_empty();
        if !is_over || !self.nodes.is_stopped() {
            return false;
        }
        self.nodes.leave_unended(std::mem::take(&mut self.earlier));
        while let Some(action) = self.nodes.begin(false, outside.now()) {
            self.carry_out(run, outside, action);
        }
        true
    }
}
