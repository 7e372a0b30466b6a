//! The standard output of a call's tool, kept for the outputs of its node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contracts::tavern::common::v1::{OutputStream, run_event::Kind};

/// The most kept bytes of the calls of one node.
const MAX_BYTES: usize = 64 * 1024;

/// The text of one call. Clones share it. The lock is held for a moment and never across an await.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolText {
    state: Arc<Mutex<TextState>>,
}

#[derive(Debug, Default)]
struct TextState {
    generation: u64,
    text: String,
}

/// The change by an event.
#[derive(Debug, PartialEq)]
pub(super) enum Written {
    /// A piece is appended to the text.
    Piece(String),
    /// The text is void.
    Nothing,
}

impl ToolText {
    /// Applies an event below the call. Earlier pieces have no effect: a call that is joined again
    /// reports all of them from its beginning.
    pub(super) fn take(&self, effect_id: &str, kind: &Kind) -> Option<Written> {
        let mut state = self.lock();
        match kind {
            Kind::OutputReset(reset)
                if reset.effect_id == effect_id && reset.generation > state.generation =>
            {
                *state = TextState {
                    generation: reset.generation,
                    text: String::new(),
                };
                Some(Written::Nothing)
            }
            Kind::OutputChunk(chunk)
                if chunk.effect_id == effect_id && chunk.stream() == OutputStream::Out =>
            {
                if chunk.generation > state.generation {
                    // It was joined after its text had started again.
                    *state = TextState {
                        generation: chunk.generation,
                        text: String::new(),
                    };
                }
                if (chunk.generation, chunk.offset) != (state.generation, state.text.len() as u64) {
                    return None;
                }
                let room = MAX_BYTES - state.text.len();
                let piece = &chunk.text[..chunk.text.floor_char_boundary(room)];
                state.text.push_str(piece);
                (!piece.is_empty()).then(|| Written::Piece(piece.to_owned()))
            }
            _ => None,
        }
    }

    /// Drops the text, before another attempt.
    pub(super) fn clear(&self) {
        *self.lock() = TextState::default();
    }

    /// Joins the texts of calls.
    pub(super) fn join(texts: &[ToolText]) -> String {
        let mut joined: String = texts.iter().map(|text| text.lock().text.clone()).collect();
        joined.truncate(joined.floor_char_boundary(MAX_BYTES));
        joined
    }

    fn lock(&self) -> MutexGuard<'_, TextState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{OutputChunk, OutputReset};

    use super::*;

    fn chunk(generation: u64, offset: u64, text: &str) -> Kind {
        Kind::OutputChunk(OutputChunk {
            effect_id: "e".to_owned(),
            stream: OutputStream::Out.into(),
            text: text.to_owned(),
            offset,
            generation,
            ..OutputChunk::default()
        })
    }

    #[test]
    fn what_comes_again_is_taken_once_and_a_tool_that_begins_again_from_its_beginning() {
        let text = ToolText::default();
        let piece = |text: &str| Some(Written::Piece(text.to_owned()));
        assert_eq!(text.take("e", &chunk(0, 0, "a")), piece("a"));
        assert_eq!(text.take("e", &chunk(0, 0, "a")), None);
        assert_eq!(text.take("other", &chunk(0, 1, "x")), None);
        assert_eq!(text.take("e", &chunk(0, 1, "b")), piece("b"));
        let reset = Kind::OutputReset(OutputReset {
            effect_id: "e".to_owned(),
            generation: 5,
            ..OutputReset::default()
        });
        assert_eq!(text.take("e", &reset), Some(Written::Nothing));
        assert_eq!(text.take("e", &reset), None);
        assert_eq!(text.take("e", &chunk(5, 0, "c")), piece("c"));
        assert_eq!(ToolText::join(&[text.clone(), text.clone()]), "cc");
        assert_eq!(text.take("e", &chunk(6, 0, "d")), piece("d"));
        assert_eq!(ToolText::join(&[text]), "d");
    }

    #[test]
    fn the_text_is_bounded_between_characters() {
        let text = ToolText::default();
        let long = "石".repeat(MAX_BYTES);
        text.take("e", &chunk(0, 0, &long));
        let kept = ToolText::join(&[text]);
        assert!(kept.len() <= MAX_BYTES && kept.len() > MAX_BYTES - 3);
    }
}
