//! The stopping of a cancelled run by its process.

use contracts::tavern::common::v1::CancelRequested;
use contracts::tavern::common::v1::run_event::Kind;
use workflow_runner::history::Replayed;

use super::children::{Step, workflow_of};
use super::outside::{Continue, Happening, Outside};
use super::process::{OfRun, Process, Scope};

/// The time for which the calls of a cancelled run may take to end, in milliseconds.
const GRACE: u64 = 1_200;

/// A run that was cancelled.
pub(super) struct Stopping {
    pub(super) reason: String,
    /// The calls of an earlier process whose outcome is unknown.
    unsettled: Vec<String>,
    pub(super) grace_is_over: bool,
}

impl Process {
    /// Begins to stop a run: the request is durable before any event follows it.
    pub(super) fn stop(run: &OfRun, root: &Scope, outside: &mut Outside, reason: &str) -> Stopping {
        let reason = reason.to_owned();
        outside.submit(Kind::CancelRequested(CancelRequested {
            reason: reason.clone(),
        }));
        outside.commit();
        let mut earlier = Vec::new();
        root.cancel_calls(run, outside, &reason, &mut earlier);
        Stopping::within(GRACE, run, outside, reason, earlier)
    }

    /// Continues to stop a run that was cancelled before the process ended.
    pub(super) fn continue_stopping(
        run: &OfRun,
        outside: &mut Outside,
        replayed: &Replayed,
    ) -> Option<Stopping> {
        let reason = replayed.cancelled.clone()?;
        let mut unsettled = replayed.unsettled();
        unsettled.sort();
        for effect_id in &unsettled {
            outside.schedule_call(run.number, effect_id, Step::Cancel(reason.clone()));
        }
        let grace = GRACE * unsettled.len() as u64;
        Some(Stopping::within(grace, run, outside, reason, unsettled))
    }
}

impl Stopping {
    fn within(
        grace: u64,
        run: &OfRun,
        outside: &mut Outside,
        reason: String,
        unsettled: Vec<String>,
    ) -> Self {
        let over = Happening::GraceOver {
            process: run.number,
            run_id: run.run_id.clone(),
        };
        outside.schedule(outside.now + grace, over);
        Self {
            reason,
            unsettled,
            grace_is_over: false,
        }
    }

    /// Returns the calls that have not ended.
    pub(super) fn left(&self, run: &OfRun, root: &Scope, outside: &Outside) -> Vec<String> {
        let of_earlier = self.unsettled.iter();
        let of_earlier =
            of_earlier.filter(|effect_id| !outside.registry.has_followed_cancel(effect_id));
        let mut left: Vec<String> = of_earlier.cloned().collect();
        root.calls_left(run, &mut left);
        left
    }
}

impl Scope {
    /// Requests the end of every call, and returns the calls that this process has not taken up.
    /// Some tools do not follow.
    fn cancel_calls(
        &self,
        run: &OfRun,
        outside: &mut Outside,
        reason: &str,
        earlier: &mut Vec<String>,
    ) {
        for node in &self.not_taken_up {
            let (effect_id, cancel) = (self.effect_id(run, *node), Step::Cancel(reason.to_owned()));
            outside.schedule_call(run.number, &effect_id, cancel);
            earlier.push(effect_id);
        }
        for (node, tool_id) in &self.calling {
            match workflow_of(tool_id) {
                Some(_) => {
                    let cancel = Step::Cancel(reason.to_owned());
                    outside.schedule_call(run.number, &self.effect_id(run, *node), cancel);
                }
                None if outside.random.bool() => {
                    let at = outside.now + outside.random.u64(0..GRACE);
                    self.continue_at(run, outside, at, *node, Continue::ToolCancelled);
                }
                None => {}
            }
        }
        for scope in self.inside_zones() {
            scope.cancel_calls(run, outside, reason, earlier);
        }
    }

    fn calls_left(&self, run: &OfRun, left: &mut Vec<String>) {
        left.extend(self.calling.keys().map(|node| self.effect_id(run, *node)));
        for scope in self.inside_zones() {
            scope.calls_left(run, left);
        }
    }

    fn inside_zones(&self) -> impl Iterator<Item = &Self> {
        self.zones.values().flat_map(|zone| zone.running.values())
    }
}
