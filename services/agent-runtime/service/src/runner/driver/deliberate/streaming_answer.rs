//! The handling of an answer while the model is still writing it.

use agent_domain::reading::{Reader, UnknownCall};
use call_catalogue::Dialect;
use call_text::{Event, ToolState};
use contracts::tavern::common::v1::run_event::Kind;

use super::{
    reading_context::{ReadingContext, selected},
    text_coalescer::{Part, TextCoalescer},
};
use crate::runner::driver::{Driver, call::EndedCall, stop::TurnStop};

/// An answer that is being written.
#[derive(Default)]
pub(in crate::runner) struct StreamingAnswer {
    pub(in crate::runner::driver) text: TextCoalescer,
    /// The reading of it so far.
    pub(in crate::runner) reader: Reader,
    /// The number of its calls, from the first, that are in the log.
    pub(in crate::runner::driver) announced: usize,
    /// The model's observations of calls that have ended, by their places. It reads them when the
    /// answer is complete: if it gets lost, so do the results of its calls.
    pub(in crate::runner::driver) observed: Vec<(u32, String)>,
    /// A block whose first call names a tool that does not exist.
    pub(in crate::runner) unknown: Option<UnknownCall>,
    /// The block that is open, of which no call has been seen.
    opened: Option<(usize, Dialect)>,
}

impl StreamingAnswer {
    /// Checks the name of a call. Only the first of a block counts, as earlier ones would still
    /// run; and only if the name is certain at once: in a block of fields a later field can change
    /// the tool (T18).
    fn look_at(&mut self, name: String, tool: &ToolState, span: call_catalogue::Span) {
        let Some((block, dialect)) = self.opened.take() else {
            return;
        };
        if dialect.is_field_based() || matches!(tool, ToolState::Visible(_)) {
            return;
        }
        self.unknown.get_or_insert(UnknownCall {
            block,
            dialect,
            name,
            span,
        });
    }
}

impl StreamingAnswer {
    /// Voids the reading so far, which turned out to be a thought.
    fn take_back(&mut self) {
        self.reader.take_back();
        (self.unknown, self.opened) = (None, None);
    }

    /// Applies an event of an answer that is read whole; adds the text that may be released.
    pub(in crate::runner) fn look(&mut self, event: Event, released: &mut String) {
        match event {
            Event::BlockOpened { block, dialect, .. } => self.opened = Some((block, dialect)),
            Event::CallOpened {
                name, tool, span, ..
            } => self.look_at(name, &tool, span),
            Event::Text {
                text,
                trailing: false,
                ..
            } => released.push_str(&text),
            Event::Thought {
                takes_back: true, ..
            } => {
                self.take_back();
                released.clear();
            }
            _ => {}
        }
    }
}

impl Driver {
    /// Releases text, and starts the calls that may start.
    pub(in crate::runner::driver) async fn on_parser_events(
        &mut self,
        events: Vec<Event>,
        answer: &mut StreamingAnswer,
        reading_context: &ReadingContext,
    ) -> Result<(), TurnStop> {
        for event in events {
            match event {
                Event::BlockOpened { block, dialect, .. } => {
                    answer.opened = Some((block, dialect));
                }
                Event::CallOpened {
                    name, tool, span, ..
                } => answer.look_at(name, &tool, span),
                Event::BlockClosed { state, calls, .. } => {
                    self.reading(reading_context, |context| {
                        answer.reader.take(&state, &calls, context)
                    });
                    self.start_early(answer).await?;
                }
                event => self.release_event(event, answer).await?,
            }
        }
        Ok(())
    }

    /// Releases the text at the end of an answer.
    pub(in crate::runner::driver) async fn release_events(
        &mut self,
        events: Vec<Event>,
        answer: &mut StreamingAnswer,
    ) -> Result<(), TurnStop> {
        for event in events {
            self.release_event(event, answer).await?;
        }
        self.tell_all(answer.text.release()).await
    }

    /// Releases text; text after a block is logged only (rule A3).
    async fn release_event(
        &mut self,
        event: Event,
        answer: &mut StreamingAnswer,
    ) -> Result<(), TurnStop> {
        let kinds = match event {
            Event::Text {
                text,
                trailing: false,
                ..
            } => answer.text.push(Part::Text, &text),
            Event::Thought {
                text, takes_back, ..
            } => {
                if takes_back {
                    // It turned out to be a thought (rule A9).
                    answer.take_back();
                    let void = answer.text.take_back(self.turn().has_said());
                    self.tell_all(void).await?;
                }
                answer.text.push(Part::Thinking, &text)
            }
            _ => Vec::new(),
        };
        self.tell_all(kinds).await
    }

    pub(in crate::runner::driver) async fn tell_all(
        &mut self,
        kinds: impl IntoIterator<Item = Kind>,
    ) -> Result<(), TurnStop> {
        for kind in kinds {
            self.log.submit(kind).await?;
        }
        Ok(())
    }

    /// Notes the calls that no later text can change, and sends the ones that may start.
    async fn start_early(&mut self, answer: &mut StreamingAnswer) -> Result<(), TurnStop> {
        let sure = answer.reader.sure();
        if sure.len() > answer.announced {
            // Text before the calls precedes them in the log.
            self.tell_all(answer.text.release()).await?;
            for reading in &sure[answer.announced..] {
                self.log.note(selected(reading))?;
            }
            answer.announced = sure.len();
        }
        self.leave_early(answer.announced).await
    }

    async fn leave_early(&mut self, announced: usize) -> Result<(), TurnStop> {
        let is_sure = |index| usize::try_from(index).is_ok_and(|index| index < announced);
        while let Some(call) = self.turn().next_early(is_sure) {
            if self.note_spent()? || !self.dispatch(call).await? {
                break;
            }
        }
        Ok(())
    }

    /// Records the end of a call while the model is still writing, and sends the calls that may
    /// follow it.
    pub(in crate::runner::driver) async fn note_early_end(
        &mut self,
        ended: EndedCall,
        answer: &mut StreamingAnswer,
    ) -> Result<(), TurnStop> {
        let (index, observed) = self.note_end(ended)?;
        answer.observed.extend(observed.map(|text| (index, text)));
        self.log.commit().await?;
        self.leave_early(answer.announced).await
    }
}
