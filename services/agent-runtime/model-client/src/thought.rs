//! Answers that begin in a thought: the template of the model has written the opening mark, so that only the
//! closing one arrives (rule A9).

use call_text::thought::{Closing, closing_mark};

use super::{AnswerEnd, ModelError, Piece};

/// Separates the thought at the beginning of an answer from its text.
#[derive(Debug, Default)]
pub(super) struct LeadingThought {
    place: Place,
    /// Text that may be the beginning of a mark, or white space behind it.
    held: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Place {
    /// There is no thought, or it has ended.
    #[default]
    Text,
    /// In the thought, before any of it, and further on.
    Begun,
    Thinking,
    /// Behind the mark, in white space.
    Ended,
}

impl LeadingThought {
    /// Begins to read an answer.
    pub(super) fn new(begins_in_thought: bool) -> Self {
        let place = match begins_in_thought {
            true => Place::Begun,
            false => Place::Text,
        };
        Self {
            place,
            held: String::new(),
        }
    }

    /// Reads a piece of the answer; returns the pieces that are certain now.
    pub(super) fn take(&mut self, piece: Piece) -> Vec<Piece> {
        let text = match (piece, &self.place) {
            (Piece::Text(text), Place::Begun | Place::Thinking | Place::Ended) => text,
            (piece @ Piece::Thinking(_), Place::Begun) => {
                // The endpoint has read the thought itself.
                self.place = Place::Text;
                return vec![piece];
            }
            (piece, _) => return vec![piece],
        };
        self.held.push_str(&text);
        let mut pieces = Vec::new();
        if self.place != Place::Ended {
            self.place = Place::Thinking;
            let (thought, rest) = match closing_mark(&self.held) {
                Closing::At { start, end } => {
                    self.place = Place::Ended;
                    (start, end)
                }
                Closing::Perhaps { start } => (start, start),
                Closing::Nowhere => (self.held.len(), self.held.len()),
            };
            let rest = self.held.split_off(rest);
            self.held.truncate(thought);
            let thought = std::mem::replace(&mut self.held, rest);
            if !thought.is_empty() {
                pieces.push(Piece::Thinking(thought));
            }
        }
        if self.place == Place::Ended && !self.held.trim_start().is_empty() {
            self.place = Place::Text;
            let text = std::mem::take(&mut self.held);
            pieces.push(Piece::Text(text.trim_start().to_owned()));
        }
        pieces
    }

    /// Ends the answer; returns the rest of the thought.
    ///
    /// # Errors
    /// [`ModelError::Unfinished`] if the answer holds only the thought; `released` bytes of it are
    /// released.
    pub(super) fn finish(
        &mut self,
        end: &AnswerEnd,
        released: usize,
    ) -> Result<Option<Piece>, ModelError> {
        let rest = std::mem::take(&mut self.held);
        match self.place {
            Place::Text | Place::Begun => Ok(None),
            _ if end.tool_calls.is_some() => {
                Ok((!rest.is_empty()).then_some(Piece::Thinking(rest)))
            }
            Place::Ended => Err(ModelError::Unfinished {
                why: "nothing follows its thought".to_owned(),
                released,
            }),
            Place::Thinking => Err(ModelError::Unfinished {
                why: "its thought is not closed; set begins_in_thought only for a model whose \
                      template opens one"
                    .to_owned(),
                released,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an answer in pieces of `size` characters; thoughts are in parentheses.
    fn read(text: &str, size: usize) -> Result<String, ModelError> {
        let mut thought = LeadingThought::new(true);
        let mut read = String::new();
        let characters: Vec<char> = text.chars().collect();
        let (mut thinking, mut said) = (String::new(), String::new());
        for piece in characters.chunks(size) {
            for piece in thought.take(Piece::Text(piece.iter().collect())) {
                match piece {
                    Piece::Thinking(text) => thinking.push_str(&text),
                    Piece::Text(text) => said.push_str(&text),
                    Piece::End(_) => {}
                }
            }
        }
        thought.finish(&AnswerEnd::default(), thinking.len())?;
        read.push_str(&format!("({thinking}){said}"));
        Ok(read)
    }

    #[test]
    fn a9_the_thought_ends_at_any_closing_mark_however_the_text_is_cut() {
        for (text, expected) in [
            ("hm</think>\n\nYes", "(hm)Yes"),
            ("<think>a < b</think>Yes", "(<think>a < b)Yes"),
            ("hm</thinker></ THINK >Yes", "(hm</thinker>)Yes"),
            ("hm</seed:think>Yes </think>", "(hm)Yes </think>"),
            ("hm◁/think▷Yes", "(hm)Yes"),
            ("hm [1][/THINK]Yes", "(hm [1])Yes"),
            ("hm<channel|>Yes", "(hm)Yes"),
        ] {
            for size in [1, 2, 3, 7, 100] {
                assert_eq!(read(text, size).unwrap(), expected, "{size}");
            }
        }
    }

    #[test]
    fn a_thought_without_an_answer_is_no_answer() {
        for text in ["hm", "hm</think>", "hm</think>  \n"] {
            assert_eq!(read(text, 2).unwrap_err().code(), "model_unfinished");
        }
    }
}
