//! The ends of effects in the loop.

use call_outcome::Failure;
use contracts::tavern::common::v1::{CallResult, CallStatus};
use run_client::CallEnd;

use workflow_domain::evaluate;
use workflow_domain::node_type::{NodeCall, Settled};
use workflow_domain::plan::NodeIndex;

use super::super::effect_end::{BatchEnd, EffectEnd, ZoneEnd};
use super::super::run_state::StateEvent;
use super::super::settle::{call_settled, settled_batch, settled_tool};
use super::super::tool_text::ToolText;
use super::{Moment, NodeEnd, RunLoop};

impl RunLoop {
    /// Records the end of an effect.
    pub(super) fn ended(
        &mut self,
        node: NodeIndex,
        end: EffectEnd,
        moment: &Moment,
    ) -> Option<NodeEnd> {
        let settled = match end {
            EffectEnd::Tool(CallEnd::NotEnded) => {
                let call = self.state.calls().get(node, 0);
                let unended = call.map(|call| call.effect_id.clone());
                self.unsettled.unended.extend(unended);
                return None;
            }
            EffectEnd::Tool(CallEnd::Settled(result)) => {
                self.note_settled(node, &result);
                if result.status() == CallStatus::InDoubt {
                    return None;
                }
                settled_tool(&result)
            }
            EffectEnd::Answered(settled) => settled,
            EffectEnd::Zone(ZoneEnd::Ended(gave)) => gave.map(Settled::Zone),
            EffectEnd::InlineZone(end) => {
                self.note_handled_inside(node, end.handled);
                end.gave.map(Settled::Zone)
            }
            EffectEnd::Zone(ZoneEnd::Stopped(unsettled)) => {
                self.unsettled.extend(unsettled);
                return None;
            }
            EffectEnd::Batch(end) => self.batch_ended(node, end)?,
        };
        self.settled(node, settled, moment)
    }

    /// Ends a node with the result of its effect, or retries it.
    pub(super) fn settled(
        &mut self,
        node: NodeIndex,
        settled: Result<Settled, Failure>,
        moment: &Moment,
    ) -> Option<NodeEnd> {
        let written = self.take_written(node);
        let gave = settled.and_then(|settled| {
            let inputs = self.state.engine().inputs_of(node)?;
            let planned = self.state.engine().node(node);
            let call = NodeCall {
                written: &written,
                ..planned.call(&inputs)
            };
            evaluate::contain(planned, || planned.node.settle(call, settled))
        });
        let gave = match gave {
            Err(failure) => Err(self.retry(node, failure, moment)?),
            Ok(outputs) => Ok(evaluate::all_present(outputs)),
        };
        self.finish(node, gave, moment)
    }

    /// Records the end of the only call of a node, unless it was recorded before.
    fn note_settled(&mut self, node: NodeIndex, result: &CallResult) {
        let call = self.state.calls().get(node, 0);
        if call.is_some_and(|call| call.settled.is_some()) {
            return;
        }
        self.apply(StateEvent::Settled(result));
        self.events
            .push(call_settled(result), result.output_json.len());
    }

    /// Returns what a node gets of its list of calls, which recorded them; nothing if the run cannot tell
    /// how one ended.
    fn batch_ended(&mut self, node: NodeIndex, end: BatchEnd) -> Option<Result<Settled, Failure>> {
        let calls = self.written.batches.get(&node).cloned();
        for ((index, call), result) in (0..).zip(calls.unwrap_or_default()).zip(&end.results) {
            if self.state.calls().get(node, index).is_none() {
                let call = Box::new(call);
                self.apply(StateEvent::Dispatched { node, index, call });
            }
            let recorded = self.state.calls().get(node, index);
            if recorded.is_some_and(|call| call.settled.is_none()) {
                self.apply(StateEvent::Settled(result));
            }
        }
        let in_doubt = |result: &CallResult| result.status() == CallStatus::InDoubt;
        let is_known = end.unended.is_empty() && !end.results.iter().any(in_doubt);
        if !is_known || self.is_cancelled {
            self.unsettled.unended.extend(end.unended);
            return None;
        }
        let remark = self.of_run.allowance.take_remark();
        Some(settled_batch(&end.results, remark.as_deref()))
    }

    /// Returns the texts of a node's tools, in the order of its calls.
    fn take_written(&mut self, node: NodeIndex) -> String {
        let written: Vec<ToolText> = match self.written.batches.remove(&node) {
            Some(listed) => listed.into_iter().map(|call| call.written).collect(),
            None => {
                let calls = self.state.calls().of_node(node);
                calls.map(|(_, call)| call.written.clone()).collect()
            }
        };
        ToolText::join(&written)
    }
}
