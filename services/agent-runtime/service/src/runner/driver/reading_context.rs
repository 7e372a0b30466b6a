//! What the reading of an answer depends on, and how a call that was read is recorded.

use agent_domain::reading::{CallReading, RefusalKind};
use call_catalogue::Catalogue;
use call_text::{Parser, Policy};
use contracts::tavern::common::v1::run_event::Kind;

use turn_log::journal;

/// What the reading of an answer depends on, as it was when the model was asked: what the answer's
/// own calls bring about, while it is still written, changes nothing about it.
pub(in crate::runner) struct ReadingContext {
    /// The tools that the model was shown.
    pub(in crate::runner) catalogue: Catalogue,
    pub(in crate::runner) policy: Policy,
    /// How many calls the turn had left.
    pub(in crate::runner) left: u32,
    /// How many untrusted texts the model was shown.
    pub(in crate::runner) shown: usize,
}

impl ReadingContext {
    /// Returns a parser that reads an answer while it is written.
    pub(in crate::runner) fn parser(&self) -> Parser {
        Parser::new(self.catalogue.clone(), self.policy.clone())
    }
}

/// Writes that a call was read, and by which rule it does not run.
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
