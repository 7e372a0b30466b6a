//! What a run does, as text and thought.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{CallResult, CallStatus, RunEvent};

/// The longest excerpt of arguments that is shown, in characters.
const EXCERPT: usize = 200;

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerPiece {
    /// What the agent says.
    Text(String),
    /// What it thinks and does, which clients show apart or ignore. Calls are never given as such:
    /// the client would execute them.
    Reasoning(String),
}

/// Turns the events of a run into pieces.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Whether there is text from an earlier answer of the model.
    said: bool,
    /// Whether the model has been asked again since.
    paused: bool,
    /// Tokens of all requests of the run, and of all answers.
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
}

impl Activity {
    /// Reads the next event of the followed run; those of runs below it are not shown.
    pub(super) fn read(&mut self, event: RunEvent) -> Option<AnswerPiece> {
        if !event.parent_path.is_empty() {
            return None;
        }
        match event.kind? {
            Kind::ModelRequested(_) => {
                self.paused = self.said;
                None
            }
            Kind::ModelAnswered(answered) => {
                self.input_tokens += u64::from(answered.input_tokens);
                self.output_tokens += u64::from(answered.output_tokens);
                None
            }
            Kind::Thinking(thinking) => Some(AnswerPiece::Reasoning(thinking.text)),
            Kind::Text(text) => Some(AnswerPiece::Text(self.say(text.text))),
            Kind::CallDispatched(call) => {
                let arguments = excerpt(&call.arguments_json);
                Some(AnswerPiece::Reasoning(format!(
                    "\n{} {arguments}\n",
                    call.tool_id
                )))
            }
            Kind::CallSettled(settled) => settled.result.map(|result| settle(&result)),
            _ => None,
        }
        .filter(|piece| !piece.text().is_empty())
    }

    /// Sets what the model says after its calls apart from what it said before.
    fn say(&mut self, text: String) -> String {
        if text.is_empty() {
            return text;
        }
        self.said = true;
        match std::mem::take(&mut self.paused) {
            true => format!("\n\n{text}"),
            false => text,
        }
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
