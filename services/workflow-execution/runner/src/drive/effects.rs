//! The futures that carry effects out, and what they end with.

use std::collections::HashMap;
use std::sync::Arc;

use call_outcome::Failure;
use contracts::tavern::common::v1::{CallResult, CallStatus};
use futures::FutureExt;
use futures::future::BoxFuture;
use run_client::CallEnd;
use run_log::AppendError;
use serde_json::{Map, Value};

use workflow_domain::data_flow::Values;
use workflow_domain::flatten::RUN_WORKFLOW;
use workflow_domain::node_type::{Effect, Settled};
use workflow_domain::plan::NodeIndex;
use workflow_domain::tool::ToolRequest;
use workflow_domain::zone::settings::RESULT_STREAM;

use super::super::history::RecordedCall;
use super::super::inline_zone::{self, InlineEnd};
use super::super::model_call::Asker;
use super::super::node_output::NodeOutput;
use super::super::script_call::{self, ScriptCall};
use super::super::settle::{call_settled, settled_batch};
use super::super::slot_stream::SlotStream;
use super::super::tool_batch::{BatchCall, BatchEnd, ToolBatch};
use super::super::tool_call::ToolCall;
use super::super::tool_text::ToolText;
use super::super::zone::{Zone, ZoneEnd};
use super::super::{Prepared, describe_tools, history_call, model_call, within};
use super::Drive;

/// How an effect ended.
pub(super) enum EffectOutcome {
    Tool(CallEnd),
    /// A list of calls ended.
    Batch(BatchEnd),
    /// A zone whose nodes have effects ended.
    Zone(ZoneEnd),
    /// A zone whose nodes have none ended.
    InlineZone(InlineEnd),
    /// A script or model answered, or did not.
    Answered(Result<Settled, Failure>),
    /// The run's log does not take events, so the run cannot continue now.
    LogFailed(AppendError),
    /// The pause before the next attempt is over.
    RetryDue,
}

/// What the effects under way write, by node.
#[derive(Default)]
pub(super) struct NodeWrites {
    /// To the streaming outputs of the nodes.
    streams: HashMap<NodeIndex, Vec<SlotStream>>,
    /// What the tools write that a list of calls asks for.
    texts: HashMap<NodeIndex, Vec<ToolText>>,
}

impl EffectOutcome {
    fn of(ended: Result<Result<Settled, Failure>, AppendError>) -> Self {
        ended.map_or_else(Self::LogFailed, Self::Answered)
    }
}

impl Drive {
    /// Makes the future of an effect.
    pub(super) fn effect(
        &mut self,
        node: NodeIndex,
        effect: Effect,
        began_before: bool,
    ) -> BoxFuture<'static, EffectOutcome> {
        let control = self.control.clone();
        let peers = self.runner.peers(&control.call_context());
        let streams = SlotStream::of_node(&self.streams, node, self.engine.node(node));
        self.written.streams.insert(node, streams);
        match effect {
            Effect::CallTool { .. } => {
                let call = self.calls.get(&(node, 0)).cloned();
                let call = call.expect("the call was noted when the node was started");
                self.tool_call(node, call)
                    .execute()
                    .map(|ended| ended.map_or_else(EffectOutcome::LogFailed, EffectOutcome::Tool))
                    .boxed()
            }
            Effect::CallTools(requests) => self
                .batch(node, &requests)
                .execute()
                .map(move |ended| match ended {
                    Ok(end) => EffectOutcome::Batch(end),
                    Err(error) => EffectOutcome::LogFailed(error),
                })
                .boxed(),
            Effect::DescribeTools(tool_ids) => {
                let work = describe_tools::execute(peers, control, tool_ids);
                within(self.time_left(node), work.map(Ok))
                    .map(EffectOutcome::of)
                    .boxed()
            }
            Effect::RunScript {
                language,
                code,
                input,
                wall_millis,
                yields,
            } => {
                let call = ScriptCall {
                    // Only names the attempt to the script: the sandbox runs a repeated id again.
                    effect_id: self.effect_id(node, self.attempt(node) as usize - 1),
                    conversation_id: self.conversation_id.clone(),
                    language,
                    code,
                    input_json: input.to_string(),
                    wall_millis,
                    yields,
                };
                let output = self.output(node, &call.effect_id, began_before);
                let work = script_call::execute(peers, output, control, call);
                within(self.time_left(node), work)
                    .map(EffectOutcome::of)
                    .boxed()
            }
            Effect::History(request) => {
                let request = request.in_run(&self.conversation_id);
                let effect_id = self.effect_id(node, 0);
                let work = history_call::execute(peers, control, request, effect_id);
                within(self.time_left(node), work.map(Ok))
                    .map(EffectOutcome::of)
                    .boxed()
            }
            Effect::RunZone { inputs } => self.zone(node, inputs),
            Effect::AskModel(request) => {
                let output = self.output(node, &self.effect_id(node, 0), began_before);
                let asker = Asker {
                    recorder: self.recorder.clone(),
                    allowance: Arc::clone(&self.allowance),
                    node_id: self.path_of(node),
                };
                let work = model_call::execute(peers, output, control, request, asker);
                within(self.time_left(node), work)
                    .map(EffectOutcome::of)
                    .boxed()
            }
        }
    }

    /// Makes the work of a zone, with what is known of it from before a restart.
    fn zone(&mut self, node: NodeIndex, inputs: Values) -> BoxFuture<'static, EffectOutcome> {
        let (timeout, control) = (self.time_left(node), self.control.clone());
        let (planned, seed) = (self.engine.node(node), self.engine.seed_of(node));
        if !planned.repeats_effects() {
            return inline_zone::execute(planned, seed, &inputs, control, timeout)
                .map(EffectOutcome::InlineZone)
                .boxed();
        }
        let (runner, recorder) = (Arc::clone(&self.runner), self.recorder.clone());
        let waits = self.waits.of_run();
        let mut streams = self.streams_of(node);
        let results = streams.pop_if(|stream| **stream.key() == *RESULT_STREAM);
        let drive = move |prepared: Prepared, path, control| {
            let (runner, recorder) = (Arc::clone(&runner), recorder.clone());
            let iteration = (path, SlotStream::of_iteration(&streams, &prepared.engine));
            let waits = waits.clone();
            let mut drive = Drive::new(runner, prepared, iteration, waits, recorder, control);
            let work = async move {
                drive
                    .reach_end()
                    .await
                    .map(|reached| drive.into_end(reached))
            };
            work.boxed()
        };
        let zone = Zone {
            drive: Box::new(drive),
            history: self.zones.remove(&node).unwrap_or_default(),
            recorder: self.recorder.clone(),
            control,
            busy: Some(self.waits.activity().begin()),
            activity: self.waits.activity(),
            conversation_id: self.conversation_id.clone(),
            workflow_id: self.workflow_id.clone(),
            plan: Arc::clone(self.engine.plan()),
            path: self.path_of(node),
            seed,
            node,
            results,
            allowance: Arc::clone(&self.allowance),
        };
        zone.execute(inputs, timeout)
            .map(|ended| ended.map_or_else(EffectOutcome::LogFailed, EffectOutcome::Zone))
            .boxed()
    }

    fn tool_call(&self, node: NodeIndex, call: RecordedCall) -> ToolCall {
        ToolCall {
            calls: self.runner.peers(&self.control.call_context()).calls,
            recorder: self.recorder.clone(),
            control: self.control.clone(),
            conversation_id: self.conversation_id.clone(),
            call,
            attempt: self.attempt(node),
            timeout: self.time_left(node),
            streams: self.streams_of(node),
            of_child: self.engine.node(node).definition().full_type == RUN_WORKFLOW,
            allowance: Arc::clone(&self.allowance),
        }
    }

    fn streams_of(&self, node: NodeIndex) -> Vec<SlotStream> {
        self.written.streams.get(&node).cloned().unwrap_or_default()
    }

    /// Returns what the effect of a node wrote to its streaming outputs, by key.
    pub(super) fn take_so_far(&mut self, node: NodeIndex) -> Map<String, Value> {
        let streams = self.written.streams.remove(&node).unwrap_or_default();
        let so_far = streams
            .iter()
            .map(|slot| (slot.key().to_string(), slot.so_far()));
        so_far.collect()
    }

    /// Returns what the tools of a node wrote, in the order of its calls.
    pub(super) fn take_written(&mut self, node: NodeIndex) -> String {
        let listed = self.written.texts.remove(&node);
        let single = self
            .calls
            .get(&(node, 0))
            .map(|call| vec![call.written.clone()]);
        ToolText::join(&listed.or(single).unwrap_or_default())
    }

    /// Makes the calls of a list, with what is known of them from before a restart.
    fn batch(&mut self, node: NodeIndex, requests: &[ToolRequest]) -> ToolBatch {
        let call = |(index, request): (usize, &ToolRequest)| {
            let place = u32::try_from(index).unwrap_or(u32::MAX);
            let recorded = self.calls.get(&(node, place)).cloned();
            let dispatched = recorded.is_some();
            let recorded = recorded.unwrap_or_else(|| RecordedCall {
                effect_id: self.effect_id(node, index),
                tool_id: request.tool_id.clone(),
                arguments_json: serde_json::to_string(&request.arguments)
                    .expect("a map with text keys always serialises"),
                settled: None,
                left_before: false,
                written: ToolText::default(),
            });
            BatchCall {
                call: self.tool_call(node, recorded),
                dispatched,
                parallel_safe: request.parallel_safe,
                continue_on_error: request.continue_on_error,
            }
        };
        let calls: Vec<BatchCall> = requests.iter().enumerate().map(call).collect();
        let written = calls.iter().map(|call| call.call.call.written.clone());
        self.written.texts.insert(node, written.collect());
        ToolBatch {
            node_id: self.path_of(node),
            calls,
            runner: Arc::clone(&self.runner),
        }
    }

    /// Returns what a node gets of its list of calls; nothing if the run cannot tell how one ended.
    pub(super) fn settle_batch(&mut self, end: BatchEnd) -> Option<Result<Settled, Failure>> {
        let in_doubt = |result: &&CallResult| result.status() == CallStatus::InDoubt;
        let unknown = end.results.iter().filter(in_doubt).cloned();
        let unknown: Vec<_> = unknown
            .map(|result| (result.effect_id, result.error.unwrap_or_default()))
            .collect();
        if !unknown.is_empty() || !end.unended.is_empty() || self.control.is_cancelled() {
            self.unknown.extend(unknown);
            self.unended.extend(end.unended);
            return None;
        }
        let remark = self.allowance.take_remark();
        Some(settled_batch(&end.results, remark.as_deref()))
    }

    /// Takes the calls of an effect from what the run may use.
    pub(super) fn take_calls(&self, node: NodeIndex, effect: &Effect) -> Result<(), Failure> {
        let calls = match effect {
            Effect::CallTool { .. } => 1,
            Effect::CallTools(requests) => requests.len(),
            _ => return Ok(()),
        };
        let effects = (0..calls).map(|index| self.effect_id(node, index));
        self.allowance.take(effects)
    }

    /// Records how the only call of a node ended, unless that was recorded before.
    pub(super) fn note_settled(&mut self, node: NodeIndex, result: &CallResult) {
        if self
            .calls
            .get(&(node, 0))
            .is_some_and(|call| call.settled.is_some())
        {
            return;
        }
        self.pending_bytes += result.output_json.len();
        self.pending.push(call_settled(result));
    }

    fn output(&self, node: NodeIndex, effect_id: &str, began_before: bool) -> NodeOutput {
        let node_id = self.path_of(node);
        let streams = self.streams_of(node);
        let recorder = self.recorder.clone();
        NodeOutput::new(recorder, effect_id, &node_id, streams, began_before)
    }
}
