//! The context of reading an answer, and the events of its calls.

use agent_domain::{
    plan::Plan,
    reading::{CallReading, Context, RefusalKind},
};
use call_catalogue::Catalogue;
use call_text::{FinishReason, Parsed, Parser, Policy};
use contracts::tavern::common::v1::run_event::Kind;

use turn_log::{journal, state::TurnState};

use crate::runner::untrusted::Untrusted;

/// The context of reading an answer, as of the request to the model: the effects of the answer's
/// own calls, while it is still written, do not change it.
pub(in crate::runner) struct ReadingContext {
    /// The tools that the model was shown.
    catalogue: Catalogue,
    policy: Policy,
    /// The number of calls that the turn had left.
    left: u32,
    /// The number of untrusted texts of the turn that the model was shown.
    shown: usize,
}

impl ReadingContext {
    /// Takes a turn as it is when the model is asked.
    pub(in crate::runner) fn of(state: &TurnState, catalogue: &Catalogue, policy: Policy) -> Self {
        Self {
            catalogue: catalogue.clone(),
            policy,
            left: state.turn().calls_left(),
            shown: state.untrusted().len(),
        }
    }

    /// Returns a parser that reads an answer while it is written.
    pub(in crate::runner) fn parser(&self) -> Parser {
        Parser::new(self.catalogue.clone(), self.policy.clone())
    }

    /// Reads a text that is whole.
    pub(super) fn parse_finished(&self, text: &str) -> Parsed {
        call_text::parse_finished(text, &self.catalogue, &self.policy, FinishReason::Stop)
    }

    /// Calls a function with the context of reading an answer.
    pub(in crate::runner) fn reading<T>(
        &self,
        (plan, state, untrusted): (&Plan, &TurnState, &Untrusted),
        read: impl FnOnce(Context<'_>) -> T,
    ) -> T {
        let untrusted = untrusted.newest(&state.untrusted()[..self.shown]);
        read(Context {
            catalogue: &self.catalogue,
            policy: &self.policy,
            dialect: plan.taught_dialect(),
            per_answer: state.turn().budgets().calls_per_response,
            left: self.left,
            last: state.turn().last(),
            untrusted: &untrusted,
        })
    }
}

/// Writes that a call was read, with the rule that forbids it, if any.
pub(in crate::runner) fn selected(reading: &CallReading) -> Kind {
    let kind = journal::tool_selected(&reading.call, &reading.written);
    match (kind, &reading.refusal) {
        (Kind::ToolSelected(mut selected), Some(refusal))
            if refusal.kind == RefusalKind::Policy =>
        {
            let problems = selected.call.as_mut().map(|call| &mut call.problems);
            if let Some(problem) = problems.and_then(|problems| problems.last_mut()) {
                problem.code.clone_from(&refusal.code);
            }
            Kind::ToolSelected(selected)
        }
        (kind, _) => kind,
    }
}
