//! The parts of an answer that its fork takes over.

use agent_domain::turn::Turn;
use contracts::tavern::common::v1::{self as common, run_event::Kind};
use serde_json::{Value, json};

/// The events that a turn has taken over as a fork; empty if it is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forked {
    /// The last event that was taken over; zero if none was.
    until: u64,
    answer: Option<common::ForkedAnswer>,
    results: Vec<common::ResultTaken>,
}

impl Forked {
    /// Records an event of the turn's own log.
    pub(crate) fn take(&mut self, event: &common::RunEvent) {
        match &event.kind {
            Some(Kind::TurnForked(forked)) => {
                self.until = event.sequence + u64::from(forked.taken_events);
                self.answer.clone_from(&forked.answer);
            }
            Some(Kind::ResultTaken(taken)) => self.results.push(taken.clone()),
            _ => {}
        }
    }

    /// Whether an event was taken over.
    pub(crate) fn covers(&self, sequence: u64) -> bool {
        sequence <= self.until
    }

    /// Returns the answer that replaces the model's, if it is due.
    pub(crate) fn answer_due(&self, turn: &Turn) -> Option<&common::ForkedAnswer> {
        let answer = self.answer.as_ref().filter(|answer| answer.number > 0);
        answer.filter(|answer| answer.number == turn.answer_number())
    }

    /// Returns the result of a call of the answer at hand in the original turn; none if the call is
    /// to be dispatched.
    pub(crate) fn result_of(&self, turn: &Turn, index: u32) -> Option<&common::ResultTaken> {
        let answer = self.answer.as_ref()?;
        if answer.number != turn.answer_number() {
            return None;
        }
        let mut calls = turn.calls().iter().map(|progress| &progress.call);
        let call = calls.clone().find(|call| call.index == index)?;
        let arguments = value(&call.arguments_json);
        let is_equal = |tool_id: &str, arguments_json: &str| {
            tool_id == call.tool_id && value(arguments_json) == arguments
        };
        let before = calls.by_ref().take_while(|before| before.index < index);
        let before = before.filter(|before| is_equal(&before.tool_id, &before.arguments_json));
        let equal = self.results.iter();
        let mut equal = equal.filter(|taken| is_equal(&taken.tool_id, &taken.arguments_json));
        equal.nth(before.count())
    }
}

/// Writes native calls in the form of OpenAI's `tool_calls`; none if there are none.
pub fn tool_calls(calls: &[common::ToolCall]) -> Option<Value> {
    let written = calls.iter().map(|call| {
        json!({"type": "function", "function": {"name": call.tool_id, "arguments": call.arguments_json}})
    });
    (!calls.is_empty()).then(|| written.collect())
}

fn value(arguments_json: &str) -> Option<Value> {
    serde_json::from_str(arguments_json).ok()
}
