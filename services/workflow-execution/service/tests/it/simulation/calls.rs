//! The calls of a simulated process: tools that end by themselves, and workflows as runs below.

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use workflow_domain::plan::NodeIndex;
use workflow_runner::settle::settled_tool;

use super::children::{Asked, Step, workflow_of};
use super::outside::{Continue, Outside};
use super::process::{OfRun, Scope, millis_of};

impl Scope {
    pub(super) fn call(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        tool_id: String,
        arguments_json: String,
    ) {
        let effect_id = self.effect_id(run, node);
        self.start(outside, node);
        match self.dispatched.get(&node) {
            Some(before) => assert_eq!(*before, arguments_json, "{effect_id} is another call"),
            None => {
                outside.submit(Kind::CallDispatched(common::CallDispatched {
                    effect_id: effect_id.clone(),
                    tool_id: tool_id.clone(),
                    arguments_json: arguments_json.clone(),
                    node_id: self.id(node),
                    ..common::CallDispatched::default()
                }));
                self.dispatched.insert(node, arguments_json.clone());
            }
        }
        outside.commit();
        if let Some(result) = self.settled.remove(&node) {
            return self.take_result(run, outside, node, &result);
        }
        let attempt = self.attempts.get(&node);
        let due = attempt.map(|attempt| millis_of(attempt.due));
        assert!(
            due.is_none_or(|due| outside.now >= due),
            "{effect_id} is tried early"
        );
        let attempt = self.attempt(node);
        match workflow_of(&tool_id) {
            Some(workflow_id) => {
                let asked = Box::new(Asked {
                    effect_id: effect_id.clone(),
                    attempt,
                    workflow_id: workflow_id.to_owned(),
                    arguments_json,
                    caller: self.node_of_run(run, node),
                });
                outside.schedule_call(run.number, &effect_id, Step::Ask(asked));
            }
            None => {
                let last = outside.last_attempt(&effect_id);
                assert!(attempt <= last + 1, "{effect_id}: no attempt is left out");
                let ends = outside.call_tool(&effect_id, attempt);
                self.continue_at(run, outside, ends, node, Continue::ToolEnded);
            }
        }
        self.not_taken_up.remove(&node);
        self.calling.insert(node, tool_id);
    }

    /// Records the end of a call. Only its first end counts.
    pub(super) fn call_ended(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        result: &common::CallResult,
    ) {
        if self.calling.remove(&node).is_some() {
            outside.submit(Kind::CallSettled(common::CallSettled {
                result: Some(result.clone()),
            }));
            self.take_result(run, outside, node, result);
        }
    }

    fn take_result(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        result: &common::CallResult,
    ) {
        self.settle_result(run, outside, node, settled_tool(result));
    }

    /// Decides on the end of a call's present attempt, which never differs.
    pub(super) fn tool_result(&self, run: &OfRun, node: NodeIndex) -> common::CallResult {
        let attempt = u64::from(self.attempt(node));
        let effect_id = self.effect_id(run, node);
        let of_effect = effect_id.bytes().fold(run.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = fastrand::Rng::with_seed(of_effect ^ attempt);
        let error = (random.u8(0..3) == 0).then(|| {
            let failure = Failure::new(Category::Domain, "injected", "the tool failed");
            call_wire::failure_to_proto(&failure)
        });
        let status = match &error {
            None => common::CallStatus::Succeeded,
            Some(_) => common::CallStatus::Failed,
        };
        common::CallResult {
            effect_id,
            status: status.into(),
            output_json: random.u16(..).to_string(),
            error,
            ..common::CallResult::default()
        }
    }
}
