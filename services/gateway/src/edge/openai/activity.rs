//! The events of a run, as text and thought.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{CallResult, CallStatus, RunEvent};
use contracts::watch::voids_answer;

use super::pictures::Pictures;
use super::spoken::Spoken;

/// The longest excerpt of arguments that is shown, in characters.
const EXCERPT: usize = 200;

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerPiece {
    /// The agent's text.
    Text(String),
    /// Its thoughts and calls, which clients show apart or ignore. Calls never have their native
    /// form: the client would execute them.
    Reasoning(String),
}

/// Turns the events of a run into pieces.
#[derive(Debug, Default)]
pub(super) struct Activity {
    text: Spoken,
    thoughts: Spoken,
    /// Tokens of all requests of the run, and of all answers.
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pictures: Pictures,
}

impl Activity {
    /// Begins with the pictures of a run, none so far.
    pub(super) fn with(pictures: Pictures) -> Self {
        Self {
            pictures,
            ..Self::default()
        }
    }

    /// Returns the text for the pictures of the run, which stands behind its answer; empty without pictures.
    pub(super) fn pictures(&self) -> String {
        self.pictures.text()
    }

    /// Reads the next event of the followed run; events of runs below it are not shown.
    pub(super) fn read(&mut self, event: RunEvent) -> Vec<AnswerPiece> {
        let mut pieces = match event.kind {
            Some(kind) if event.parent_path.is_empty() => self.pieces_of(kind),
            _ => Vec::new(),
        };
        pieces.retain(|piece| !piece.text().is_empty());
        pieces
    }

    fn pieces_of(&mut self, kind: Kind) -> Vec<AnswerPiece> {
        let all = [&mut self.thoughts, &mut self.text];
        match kind {
            Kind::RunStarted(started) => self.pictures.begin(started.conversation_id),
            Kind::ModelRequested(_) => all.into_iter().for_each(Spoken::begin_answer),
            Kind::OutputReset(reset) if voids_answer(&reset) => {
                all.into_iter().for_each(Spoken::void_answer);
            }
            Kind::ModelAnswered(answered) => {
                self.input_tokens += u64::from(answered.input_tokens);
                self.output_tokens += u64::from(answered.output_tokens);
                let [thought, text] = all.map(Spoken::end_answer);
                return vec![AnswerPiece::Reasoning(thought), AnswerPiece::Text(text)];
            }
            Kind::Thinking(thinking) => {
                return vec![AnswerPiece::Reasoning(self.thoughts.say(thinking.text))];
            }
            Kind::Text(text) => return vec![AnswerPiece::Text(self.text.say(text.text))],
            Kind::CallDispatched(call) => {
                let arguments = excerpt(&call.arguments_json);
                let line = format!("\n{} {arguments}\n", call.tool_id);
                return vec![AnswerPiece::Reasoning(line)];
            }
            Kind::CallSettled(settled) => {
                settled
                    .result
                    .iter()
                    .for_each(|result| self.pictures.see(result));
                return settled.result.iter().map(settle).collect();
            }
            _ => {}
        }
        Vec::new()
    }
}

impl AnswerPiece {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Reasoning(text) => text,
        }
    }
}

fn settle(result: &CallResult) -> AnswerPiece {
    let tool = &result.tool_id;
    AnswerPiece::Reasoning(match &result.error {
        _ if result.status() == CallStatus::Succeeded => format!("{tool} succeeded\n"),
        Some(error) => format!("{tool} failed: {}\n", excerpt(&error.message)),
        None => format!("{tool} failed\n"),
    })
}

fn excerpt(text: &str) -> String {
    let mut excerpt: String = text.chars().take(EXCERPT).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}
