//! The futures that carry effects out, and what they end with.

use call_outcome::Failure;
use futures::FutureExt;
use futures::future::BoxFuture;
use run_log::AppendError;

use crate::domain::node_type::{Effect, Settled};
use crate::domain::plan::NodeIndex;

use super::super::node_output::NodeOutput;
use super::super::script_call::{self, ScriptCall};
use super::super::tool_call::{ToolCall, ToolEnd};
use super::super::{model_call, within};
use super::Drive;

/// How an effect ended.
pub(super) enum EffectOutcome {
    Tool(ToolEnd),
    /// A script or model answered, or did not.
    Answered(Result<Settled, Failure>),
    /// The run's log does not take events, so the run cannot continue now.
    LogFailed(AppendError),
    /// The pause before the next attempt is over.
    RetryDue,
}

impl EffectOutcome {
    fn of(ended: Result<Result<Settled, Failure>, AppendError>) -> Self {
        ended.map_or_else(Self::LogFailed, Self::Answered)
    }
}

impl Drive {
    /// Makes the future of an effect.
    pub(super) fn effect(
        &self,
        node: NodeIndex,
        effect: Effect,
        began_before: bool,
    ) -> BoxFuture<'static, EffectOutcome> {
        let (peers, control) = (self.runner.peers.clone(), self.control.clone());
        match effect {
            Effect::CallTool { .. } => {
                let call = self.calls.get(&node).cloned();
                let call = ToolCall {
                    peers,
                    recorder: self.recorder.clone(),
                    control,
                    conversation_id: self.conversation_id.clone(),
                    call: call.expect("the call was noted when the node was started"),
                    attempt: self.attempt(node),
                    timeout: self.time_left(node),
                };
                call.execute().map(EffectOutcome::Tool).boxed()
            }
            Effect::RunScript {
                language,
                code,
                input,
                wall_millis,
            } => {
                let call = ScriptCall {
                    // The sandbox answers a repeated id as before, and a script may run again.
                    effect_id: self.effect_id(node, self.attempt(node) as usize - 1),
                    conversation_id: self.conversation_id.clone(),
                    language,
                    code,
                    input_json: input.to_string(),
                    wall_millis,
                };
                let output = self.output(node, &call.effect_id, began_before);
                let work = script_call::execute(peers, output, control, call);
                within(self.time_left(node), work)
                    .map(EffectOutcome::of)
                    .boxed()
            }
            Effect::AskModel(request) => {
                let output = self.output(node, &self.effect_id(node, 0), began_before);
                let work = model_call::execute(peers, output, control, request);
                within(self.time_left(node), work)
                    .map(EffectOutcome::of)
                    .boxed()
            }
        }
    }

    fn output(&self, node: NodeIndex, effect_id: &str, began_before: bool) -> NodeOutput {
        let node_id = &self.engine.node(node).id;
        NodeOutput::new(self.recorder.clone(), effect_id, node_id, began_before)
    }
}
