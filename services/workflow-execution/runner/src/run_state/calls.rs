//! The calls of a run, or of an iteration in it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;

use workflow_domain::plan::NodeIndex;

use super::super::tool_text::ToolText;

/// A call that was dispatched.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The id of its effect.
    pub effect_id: String,
    /// The tool.
    pub tool_id: String,
    /// The arguments as they were sent.
    pub arguments_json: String,
    /// The result, if it was recorded.
    pub settled: Option<common::CallResult>,
    /// Whether an earlier process may have sent its present attempt.
    pub(crate) left_before: bool,
    /// The text that its tool wrote.
    pub(crate) written: ToolText,
}

impl RecordedCall {
    /// Takes a call that has not left.
    pub(crate) fn new(effect_id: String, tool_id: String, arguments_json: String) -> Self {
        Self {
            effect_id,
            tool_id,
            arguments_json,
            settled: None,
            left_before: false,
            written: ToolText::default(),
        }
    }
}

/// The calls of nodes, by node and by the place among the node's calls.
#[derive(Debug, Default)]
pub struct Calls {
    by_place: BTreeMap<(NodeIndex, u32), RecordedCall>,
}

impl Calls {
    /// Returns the call at a place of a node.
    pub fn get(&self, node: NodeIndex, index: u32) -> Option<&RecordedCall> {
        self.by_place.get(&(node, index))
    }

    /// Returns the calls of a node, in order.
    pub(crate) fn of_node(&self, node: NodeIndex) -> impl Iterator<Item = (u32, &RecordedCall)> {
        let calls = self.by_place.range(places(node));
        calls.map(|((_, index), call)| (*index, call))
    }

    pub(super) fn unsettled(&self) -> impl Iterator<Item = (NodeIndex, &str)> {
        let calls = self.by_place.iter();
        let calls = calls.filter(|(_, call)| call.settled.is_none());
        calls.map(|((node, _), call)| (*node, call.effect_id.as_str()))
    }

    pub(super) fn insert(&mut self, node: NodeIndex, index: u32, call: RecordedCall) {
        self.by_place.insert((node, index), call);
    }

    pub(super) fn settle(&mut self, result: &common::CallResult) {
        let mut calls = self.by_place.values_mut();
        if let Some(call) = calls.find(|call| call.effect_id == result.effect_id) {
            call.settled = Some(result.clone());
        }
    }

    pub(super) fn write(&self, kind: &Kind) {
        for call in self.by_place.values() {
            call.written.take(&call.effect_id, kind);
        }
    }

    /// Forgets how the calls of a node ended that did not succeed, before another attempt.
    pub(super) fn forget_failed(&mut self, node: NodeIndex) {
        for (_, call) in self.by_place.range_mut(places(node)) {
            call.settled
                .take_if(|result| result.status() != common::CallStatus::Succeeded);
            if call.settled.is_none() {
                call.left_before = false;
                call.written.clear();
            }
        }
    }

    /// Forgets the settled calls of a node that ended.
    pub(super) fn forget_settled(&mut self, node: NodeIndex) {
        let settled = self.of_node(node);
        let settled = settled.filter(|(_, call)| call.settled.is_some());
        let settled: Vec<u32> = settled.map(|(index, _)| index).collect();
        for index in settled {
            self.by_place.remove(&(node, index));
        }
    }

    /// Notes that the process ended that may have asked for the calls.
    pub(super) fn leave_to_next_process(&mut self) {
        for call in self.by_place.values_mut() {
            call.left_before = true;
        }
    }
}

fn places(node: NodeIndex) -> RangeInclusive<(NodeIndex, u32)> {
    (node, 0)..=(node, u32::MAX)
}
