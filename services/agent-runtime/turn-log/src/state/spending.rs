//! The use of budgets and models by a turn.

use std::time::Duration;

use agent_domain::{
    budgets::Used,
    spelling::{self, QUESTION},
    turn::Turn,
};
use call_wire::ModelTotals;
use contracts::tavern::common::v1::{CallResult, ModelTotal, ModelUsage, run_event::Kind};
use core_types::Timestamp;

use crate::replay::timestamp;

/// The use by a turn, by model and of its budgets.
#[derive(Clone, Debug, Default)]
pub(super) struct Spending {
    totals: ModelTotals,
    bytes: u64,
    /// The working time before `since`.
    wall: Duration,
    /// The time at which the work under way began or was last counted.
    since: Timestamp,
    /// Whether a request to the model is in flight.
    is_asking: bool,
    /// The number of calls under way.
    calling: u32,
    /// The units of the budgets that were reported as nearly used up.
    reported: Vec<i32>,
}

impl Spending {
    /// Takes an event of the turn.
    pub(super) fn take(&mut self, kind: &Kind, time: Timestamp) {
        self.since = self.since.max(self.end_of_waiting(kind, time));
        self.wall += self.under_way_since(time);
        self.since = time;
        match kind {
            Kind::ModelRequested(_) => self.is_asking = true,
            Kind::ModelAnswered(answered) => {
                self.is_asking = false;
                self.add(&answered.model, answered.usage.as_ref());
            }
            Kind::ConversationCompacted(compacted) => {
                self.add(&compacted.model, compacted.usage.as_ref());
            }
            Kind::CallDispatched(_) => self.calling += 1,
            Kind::CallSettled(settled) => {
                let result = settled.result.as_ref();
                let has_left = result.is_some_and(|result| !result.effect_id.is_empty());
                self.calling = self.calling.saturating_sub(u32::from(has_left));
                self.bytes = self.bytes.saturating_add(result.map_or(0, output_bytes));
                // An agent, a workflow or a node used it for this turn (rule G703).
                for total in result.iter().flat_map(|result| &result.model_totals) {
                    self.totals.add(total);
                }
            }
            Kind::UsageReported(reported) => {
                for total in &reported.model_totals {
                    self.totals.add(total);
                }
            }
            Kind::BudgetReached(reached) => self.reported.push(reached.unit),
            _ => {}
        }
    }

    /// Continues after a time without work, as this process had not begun.
    pub(super) fn resume_at(&mut self, now: Timestamp) {
        self.since = now;
    }

    /// Whether it was reported that a budget is nearly used up.
    pub(super) fn is_reported(&self, unit: i32) -> bool {
        self.reported.contains(&unit)
    }

    /// Returns the use by a turn up to now.
    pub(super) fn used(&self, turn: &Turn, now: Timestamp) -> Used {
        Used {
            iterations: turn.rounds(),
            calls: turn.dispatched(),
            bytes: self.bytes,
            tokens: self.totals.tokens(),
            money_micros: self.totals.money_micros(),
            wall: self.wall + self.under_way_since(now),
        }
    }

    /// Returns the time until which nothing worked although something was under way: a model is asked again after a
    /// crash, and the only call waited for an approval or asked a person (rule G809).
    fn end_of_waiting(&self, kind: &Kind, time: Timestamp) -> Timestamp {
        match kind {
            Kind::ModelRequested(_) if self.is_asking => time,
            Kind::CallSettled(settled) if self.calling == 1 && !self.is_asking => {
                let result = settled.result.as_ref();
                let is_question =
                    result.is_some_and(|result| spelling::tool_id(&result.tool_id) == QUESTION);
                let started = result.and_then(|result| result.start_time.as_ref());
                match (is_question, started) {
                    (true, _) => time,
                    (false, Some(started)) => timestamp(started).unwrap_or(self.since),
                    (false, None) => self.since,
                }
            }
            _ => self.since,
        }
    }

    fn under_way_since(&self, time: Timestamp) -> Duration {
        match self.is_asking || self.calling > 0 {
            true => time.since(self.since),
            false => Duration::ZERO,
        }
    }

    fn add(&mut self, model: &str, usage: Option<&ModelUsage>) {
        if let Some(usage) = usage {
            let total = call_wire::total_of_answer(model, usage.clone());
            self.totals.add(&total);
        }
    }

    /// Returns the totals by the name of the model.
    pub(super) fn totals(&self) -> Vec<ModelTotal> {
        self.totals.list()
    }
}

/// Returns the size of the output of a call, in bytes.
fn output_bytes(result: &CallResult) -> u64 {
    match &result.long_output {
        Some(long) => long.total_bytes,
        None => result.output_json.len().try_into().unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{CallDispatched, CallSettled};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_nanos(seconds * SECOND)
    }

    /// Returns the seconds at work of a turn whose only call leaves at 10 s, starts at 70 s and ends at 75 s.
    fn seconds_of_call(tool_id: &str) -> u64 {
        let mut spending = Spending::default();
        spending.take(&Kind::CallDispatched(CallDispatched::default()), at(10));
        let result = CallResult {
            tool_id: tool_id.to_owned(),
            effect_id: "e".to_owned(),
            start_time: Some(prost_types::Timestamp {
                seconds: 70,
                nanos: 0,
            }),
            ..CallResult::default()
        };
        let result = Some(result);
        spending.take(&Kind::CallSettled(CallSettled { result }), at(75));
        spending.wall.as_secs()
    }

    #[test]
    fn g809_time_in_which_people_are_waited_for_is_no_work() {
        assert_eq!(seconds_of_call("clock"), 5, "it was approved at 70 s");
        assert_eq!(seconds_of_call("ui:RequestUserInteraction"), 0);
    }
}
