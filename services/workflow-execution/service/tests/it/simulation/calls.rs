//! The calls of a simulated process: tools that end by themselves, and workflows as runs below.

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use run_client::CallEnd;
use workflow_domain::plan::NodeIndex;
use workflow_runner::effect_end::EffectEnd;
use workflow_runner::run_loop::Happening;

use super::children::{Asked, Step, workflow_of};
use super::outside::{Continue, Outside};
use super::process::{OfRun, Scope};

impl Scope {
    /// Makes the present attempt of the call of a node.
    pub(super) fn call(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex) {
        let call = self.nodes.state().calls().get(node, 0).unwrap();
        let (effect_id, tool_id) = (call.effect_id.clone(), call.tool_id.clone());
        let due = outside.retry_due(&self.nodes.state().path_of(node));
        assert!(outside.now >= due, "{effect_id} is tried early");
        if workflow_of(&tool_id).is_some() {
            self.ask(run, outside, node);
        } else {
            let (attempt, last) = (self.nodes.attempt(node), outside.last_attempt(&effect_id));
            assert!(attempt <= last + 1, "{effect_id}: no attempt is left out");
            let ends = outside.call_tool(&effect_id, attempt);
            self.continue_at(run, outside, ends, node, Continue::ToolEnded);
        }
        self.calling.insert(node, tool_id);
    }

    /// Asks the registry for the workflow that a node calls.
    fn ask(&self, run: &OfRun, outside: &mut Outside, node: NodeIndex) {
        let call = self.nodes.state().calls().get(node, 0).unwrap();
        let asked = Box::new(Asked {
            effect_id: call.effect_id.clone(),
            attempt: self.nodes.attempt(node),
            workflow_id: workflow_of(&call.tool_id).unwrap().to_owned(),
            arguments_json: call.arguments_json.clone(),
            caller: self.node_of_run(run, node),
        });
        outside.schedule_call(run.number, &call.effect_id, Step::Ask(asked));
    }

    /// Asks for the workflows again that were called. A call of a run that was cancelled, for this reason, is
    /// cancelled once more and given up.
    pub(super) fn ask_again(&mut self, run: &OfRun, outside: &mut Outside, reason: Option<&str>) {
        let calling = self.calling.iter();
        let calling = calling.filter(|(_, tool_id)| workflow_of(tool_id).is_some());
        let calling: Vec<NodeIndex> = calling.map(|(node, _)| *node).collect();
        for node in calling {
            if let Some(reason) = reason {
                let cancel = Step::Cancel(reason.to_owned());
                outside.schedule_call(run.number, &self.nodes.effect_id(node, 0), cancel);
                self.calling.remove(&node);
                let end = EffectEnd::Tool(CallEnd::NotEnded);
                self.take(outside, node, Happening::Ended(end));
            } else {
                self.ask(run, outside, node);
            }
        }
        for zone in self.zones.values_mut() {
            for scope in zone.running.values_mut() {
                scope.ask_again(run, outside, reason);
            }
        }
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
        let status = match random.u8(0..12) {
            0..4 => common::CallStatus::Failed,
            4 if run.doubts => common::CallStatus::InDoubt,
            _ => common::CallStatus::Succeeded,
        };
        let error = (status != common::CallStatus::Succeeded).then(|| {
            let failure = Failure::new(Category::Domain, "injected", "the tool failed");
            call_wire::failure_to_proto(&failure)
        });
        common::CallResult {
            effect_id,
            status: status.into(),
            output_json: random.u16(..).to_string(),
            error,
            ..common::CallResult::default()
        }
    }
}
