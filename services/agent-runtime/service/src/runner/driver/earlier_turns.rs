//! The messages before a turn.

use agent_domain::{
    compaction::{Compaction, tokens},
    message::TurnMessage,
    plan::Plan,
};
use agent_store::history::Earlier;

/// The messages before a turn, by turn; each message of the caller is a turn of its own, but
/// results follow their calls.
pub(super) struct EarlierTurns {
    turns: Vec<Vec<TurnMessage>>,
    /// The number of turns that hold messages of the caller; they are the last ones.
    given: usize,
    /// Whether the first of them is a summary of earlier ones.
    has_summary: bool,
    /// Whether a call of them gave a handle.
    handle_given: bool,
}

impl EarlierTurns {
    pub(super) fn new(given: &[TurnMessage]) -> Self {
        let mut turns: Vec<Vec<TurnMessage>> = Vec::new();
        for said in given.iter().cloned() {
            let is_result = said.message.result_of.is_some();
            match turns.last_mut().filter(|_| is_result) {
                Some(turn) => turn.push(said),
                None => turns.push(vec![said]),
            }
        }
        Self {
            given: turns.len(),
            turns,
            has_summary: false,
            handle_given: false,
        }
    }

    /// Puts the turns of the conversation before the messages of the caller. A `compaction` of this turn, from before
    /// a crash, replaces the first ones.
    pub(super) fn prepend(
        &mut self,
        earlier: Vec<Earlier>,
        compaction: Option<&Compaction>,
        plan: &Plan,
    ) {
        self.handle_given = earlier.iter().any(|turn| turn.handle_given);
        let is_summary = |turn: &Earlier| turn.run_id.is_empty() && turn.compaction.is_some();
        self.has_summary = compaction.is_some() || earlier.first().is_some_and(is_summary);
        let messages = earlier.into_iter().map(|turn| turn.messages);
        // A run that only compacted has no messages.
        let mut turns: Vec<_> = messages.filter(|messages| !messages.is_empty()).collect();
        if let Some(compaction) = compaction {
            compaction.apply(&mut turns, plan.language);
        }
        turns.append(&mut self.turns);
        self.turns = turns;
    }

    /// Returns the turns, the oldest first.
    pub(super) fn turns(&self) -> &[Vec<TurnMessage>] {
        &self.turns
    }

    /// Whether a call of them gave a handle.
    pub(super) fn handle_given(&self) -> bool {
        self.handle_given
    }

    /// Returns the number of first turns that can be replaced: more than a summary alone, without
    /// the last ones.
    pub(super) fn replaceable(&self, plan: &Plan) -> usize {
        let turns = self.turns.len().saturating_sub(self.given);
        let covered = turns.saturating_sub(plan.compaction.keep_turns);
        match self.has_summary && covered == 1 {
            true => 0,
            false => covered,
        }
    }

    /// Returns the number of oldest turns to leave out, at most `most`.
    pub(super) fn turns_to_leave_out(&self, most: usize, before: u64, limit: u64) -> usize {
        let mut left = before;
        for (index, turn) in self.turns[..most].iter().enumerate() {
            let bytes = turn.iter().map(|said| said.message.bytes()).sum();
            left = left.saturating_sub(tokens(bytes));
            if left <= limit {
                return index + 1;
            }
        }
        most
    }

    /// Replaces the turns that the compaction covers by its summary.
    pub(super) fn replace(&mut self, compaction: &Compaction, plan: &Plan) {
        compaction.apply(&mut self.turns, plan.language);
        self.has_summary = true;
    }
}
