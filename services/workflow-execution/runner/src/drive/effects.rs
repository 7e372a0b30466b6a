//! The futures that carry effects out.

use std::sync::Arc;

use call_outcome::Failure;
use futures::FutureExt;
use futures::future::BoxFuture;
use run_log::AppendError;

use workflow_domain::data_flow::Values;
use workflow_domain::flatten::RUN_WORKFLOW;
use workflow_domain::node_type::{Effect, Settled};
use workflow_domain::plan::NodeIndex;
use workflow_domain::tool::ToolRequest;

use super::super::effect_end::EffectEnd;
use super::super::inline_zone;
use super::super::model_call::Asker;
use super::super::node_output::NodeOutput;
use super::super::run_loop::RunLoop;
use super::super::run_state::RecordedCall;
use super::super::script_call::{self, ScriptCall};
use super::super::tool_batch::{BatchCall, ToolBatch};
use super::super::tool_call::ToolCall;
use super::super::zone::Zone;
use super::super::zone_loop::ZoneLoop;
use super::super::{describe_tools, history_call, model_call, within};
use super::Drive;

/// The end of an effect; nothing if the run's log does not take events, so the run cannot continue now.
type Ended = Result<EffectEnd, AppendError>;

fn answered(ended: Result<Result<Settled, Failure>, AppendError>) -> Ended {
    ended.map(EffectEnd::Answered)
}

impl Drive {
    /// Makes the future of an effect.
    pub(super) fn effect(
        &mut self,
        node: NodeIndex,
        effect: Effect,
        began_before: bool,
    ) -> BoxFuture<'static, Ended> {
        let control = self.control.clone();
        let peers = self.of_run.runner.peers(&control.call_context());
        let time_left = self.nodes.time_left(node, self.now());
        match effect {
            Effect::CallTool { .. } => {
                let call = self.nodes.state().calls().get(node, 0).cloned();
                let call = call.expect("the call was noted when the node was started");
                let ended = self.tool_call(node, call).execute();
                ended.map(|ended| ended.map(EffectEnd::Tool)).boxed()
            }
            Effect::CallTools(requests) => {
                let ended = self.batch(node, &requests).execute();
                ended.map(|ended| ended.map(EffectEnd::Batch)).boxed()
            }
            Effect::DescribeTools(tool_ids) => {
                let work = describe_tools::execute(peers, control, tool_ids);
                within(time_left, work.map(Ok)).map(answered).boxed()
            }
            Effect::RunScript {
                language,
                code,
                input,
                wall_millis,
                yields,
            } => {
                let call = ScriptCall {
                    // Only names the attempt for the script: the sandbox runs a repeated id again.
                    effect_id: self.nodes.attempt_id(node),
                    conversation_id: self.of_run.conversation_id.clone(),
                    language,
                    code,
                    input_json: input.to_string(),
                    wall_millis,
                    yields,
                };
                let output = self.output(node, &call.effect_id, began_before);
                let work = script_call::execute(peers, output, control, call);
                within(time_left, work).map(answered).boxed()
            }
            Effect::History(request) => {
                let request = request.in_run(&self.of_run.conversation_id);
                let effect_id = self.nodes.effect_id(node, 0);
                let work = history_call::execute(peers, control, request, effect_id);
                within(time_left, work.map(Ok)).map(answered).boxed()
            }
            Effect::RunZone { inputs } => self.zone(node, inputs),
            Effect::AskModel(request) => {
                let output = self.output(node, &self.nodes.effect_id(node, 0), began_before);
                let asker = Asker {
                    recorder: self.recorder().clone(),
                    allowance: Arc::clone(&self.of_run.allowance),
                    node_id: self.nodes.state().path_of(node),
                };
                let work = model_call::execute(peers, output, control, request, asker);
                within(time_left, work).map(answered).boxed()
            }
        }
    }

    /// Makes the work of a zone, with its recorded state from before a restart.
    fn zone(&mut self, node: NodeIndex, inputs: Values) -> BoxFuture<'static, Ended> {
        let control = self.control.clone();
        let timeout = self.nodes.time_left(node, self.now());
        let (planned, seed) = (self.engine().node(node), self.engine().seed_of(node));
        if !planned.repeats_effects() {
            return inline_zone::execute(planned, seed, &inputs, control, timeout)
                .map(|end| Ok(EffectEnd::InlineZone(end)))
                .boxed();
        }
        let of_run = self.of_run.clone();
        let drive = move |nodes: RunLoop, control| {
            let mut drive = Drive::new(nodes, of_run.clone(), control);
            let work = async move { drive.reach_end().await.map(|_| drive.nodes.into_end()) };
            work.boxed()
        };
        let zone = Zone {
            drive: Box::new(drive),
            recorder: self.recorder().clone(),
            control,
            busy: Some(self.of_run.activity.begin()),
            activity: self.of_run.activity.clone(),
            zone: ZoneLoop::begin(&mut self.nodes, node, &inputs),
        };
        zone.execute(timeout)
            .map(|ended| ended.map(EffectEnd::Zone))
            .boxed()
    }

    fn tool_call(&self, node: NodeIndex, call: RecordedCall) -> ToolCall {
        let definition = self.engine().node(node).definition();
        let plugin = definition.plugin.as_ref();
        ToolCall {
            package_digest: plugin
                .map_or_else(String::new, |plugin| plugin.package_digest.to_string()),
            calls: self.of_run.runner.calls().clone(),
            recorder: self.recorder().clone(),
            control: self.control.clone(),
            conversation_id: self.of_run.conversation_id.clone(),
            call,
            attempt: self.nodes.attempt(node),
            timeout: self.nodes.time_left(node, self.now()),
            streams: self.nodes.streams_of(node),
            of_child: definition.full_type == RUN_WORKFLOW,
            allowance: Arc::clone(&self.of_run.allowance),
        }
    }

    /// Makes the calls of a list, with their recorded state from before a restart.
    fn batch(&mut self, node: NodeIndex, requests: &[ToolRequest]) -> ToolBatch {
        let calls = self.nodes.begin_batch(node, requests).into_iter();
        let calls = calls.zip(requests);
        let calls = calls.map(|((call, dispatched), request)| BatchCall {
            call: self.tool_call(node, call),
            dispatched,
            parallel_safe: request.parallel_safe,
            continue_on_error: request.continue_on_error,
        });
        ToolBatch {
            node_id: self.nodes.state().path_of(node),
            calls: calls.collect(),
            runner: Arc::clone(&self.of_run.runner),
        }
    }

    fn output(&self, node: NodeIndex, effect_id: &str, began_before: bool) -> NodeOutput {
        let node_id = self.nodes.state().path_of(node);
        let streams = self.nodes.streams_of(node);
        let recorder = self.recorder().clone();
        NodeOutput::new(recorder, effect_id, &node_id, streams, began_before)
    }
}
