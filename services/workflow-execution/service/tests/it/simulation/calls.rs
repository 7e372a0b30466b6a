//! The calls of a simulated process: tools that end by themselves, and workflows as runs below.

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use run_client::CallEnd;
use workflow_domain::plan::NodeIndex;
use workflow_runner::run_loop::{EffectEnd, Happening};

use super::children::{Asked, Step, workflow_of};
use super::outside::{Continue, Outside};
use super::process::{OfRun, Scope};

impl Scope {
    /// Makes the present attempt of the call of a node.
    pub(super) fn call(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex) {
        let call = self.nodes.state().calls().get(node, 0).unwrap().clone();
        let (effect_id, attempt) = (call.effect_id, self.nodes.attempt(node));
        let due = outside.retry_due(&self.nodes.state().path_of(node));
        assert!(outside.now >= due, "{effect_id} is tried early");
        match workflow_of(&call.tool_id) {
            Some(workflow_id) => {
                let asked = Box::new(Asked {
                    effect_id: effect_id.clone(),
                    attempt,
                    workflow_id: workflow_id.to_owned(),
                    arguments_json: call.arguments_json,
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
        self.calling.insert(node, call.tool_id);
    }

    /// Records the end of a call. Only its first end counts.
    pub(super) fn call_ended(
        &mut self,
        outside: &mut Outside,
        node: NodeIndex,
        result: &common::CallResult,
    ) {
        if self.calling.remove(&node).is_some() {
            let end = CallEnd::Settled(Box::new(result.clone()));
            self.take(outside, node, Happening::Ended(EffectEnd::Tool(end)));
        }
    }

    /// Decides how the present attempt of a call ends, which never differs.
    pub(super) fn tool_result(&self, run: &OfRun, node: NodeIndex) -> common::CallResult {
        let attempt = u64::from(self.nodes.attempt(node));
        let effect_id = self.nodes.effect_id(node, 0);
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
