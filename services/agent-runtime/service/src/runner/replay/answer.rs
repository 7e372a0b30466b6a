//! An answer of the fixture, read again as the turn reads it.

use agent_domain::reading::{self, Reading};
use call_text::{Event, FinishReason, native::NativeCall};
use contracts::tavern::common::v1::{self as common, RunEvent, run_event::Kind};

use turn_log::journal;

use super::Replay;
use crate::runner::driver::{
    ReadingContext, STOPPED_AT_UNKNOWN_TOOL, StreamingAnswer, refused, selected, understood,
};

/// The reading of an answer, whose items the events use in order.
pub(super) struct Answered {
    reading: Reading,
    calls: usize,
    remarks: usize,
    /// The released text.
    pub(super) released: String,
}

impl Answered {
    /// Returns the event of reading the next call; none if there is none.
    pub(super) fn next_call(&mut self) -> Option<Kind> {
        let call = self.reading.calls.get(self.calls)?;
        self.calls += 1;
        Some(selected(call))
    }

    /// Returns the next remark of the parser; none if there is none.
    pub(super) fn next_remark(&mut self) -> Option<Kind> {
        let remark = self.reading.diagnostics.get(self.remarks)?;
        self.remarks += 1;
        Some(journal::diagnosed(remark))
    }

    /// Returns the model's observation of the answer as a whole, once.
    pub(super) fn take_observation(&mut self) -> Option<String> {
        self.reading.observation.take()
    }

    /// Returns the end of a call that was rejected when it was read, and the model's observation of
    /// it.
    pub(super) fn refusal(&self, index: u32) -> Option<(Kind, Option<String>)> {
        let mut calls = self.reading.calls.iter();
        let call = calls.find(|reading| reading.call.index == index)?;
        let observed = call.refusal.as_ref()?.observation.clone();
        Some((refused(call)?, observed))
    }
}

/// Reads a whole answer.
pub(super) fn read_answer(
    replay: &Replay<'_>,
    text: &str,
    finish_reason: &str,
    native: &[NativeCall],
    policy: call_text::Policy,
) -> Answered {
    let reading_context = ReadingContext::of(&replay.state, replay.catalogue(), policy);
    let turn = (replay.plan, &replay.state, &replay.untrusted);
    reading_context.reading(turn, |context| {
        let (mut answer, mut released) = (StreamingAnswer::default(), String::new());
        let mut parser = reading_context.parser();
        for event in parser.push(text) {
            if let Event::BlockClosed { state, calls, .. } = &event {
                answer.reader.take(state, calls, context);
            }
            answer.look(event, &mut released);
        }
        let (events, mut parsed) = parser.finish(FinishReason::from_words(finish_reason));
        for event in events {
            answer.look(event, &mut released);
        }
        if let Some(unknown) = answer.unknown.take()
            && finish_reason == STOPPED_AT_UNKNOWN_TOOL
        {
            reading::cut_at(&mut parsed, unknown, context);
        }
        let reading = answer.reader.finish(parsed, native, context);
        Answered {
            reading: understood(replay.turn(), reading, context),
            calls: 0,
            remarks: 0,
            released,
        }
    })
}

impl Replay<'_> {
    /// Reads the next answer; none if it was lost before it was complete.
    pub(super) fn next_answer(&self, later: &[&RunEvent]) -> Option<Answered> {
        let mut before_next = later.iter().take_while(|event| {
            !matches!(
                event.kind,
                Some(Kind::ModelRequested(_) | Kind::RunFinished(_))
            )
        });
        let answered = before_next.clone().find_map(|event| match &event.kind {
            Some(Kind::ModelAnswered(answered)) => Some(answered),
            _ => None,
        })?;
        // The log has structured calls only as they were read.
        let native = before_next.by_ref().filter_map(|event| match &event.kind {
            Some(Kind::ToolSelected(selected)) => selected.call.as_ref(),
            _ => None,
        });
        let native = native.filter(|call| call.dialect() == common::Dialect::Native);
        let native: Vec<NativeCall> = native
            .map(|call| NativeCall {
                id: String::new(),
                name: call.tool_id.clone(),
                arguments_json: call.arguments_json.clone(),
            })
            .collect();
        let policy = self.plan.policy();
        let (text, reason) = (&answered.text, &answered.finish_reason);
        Some(read_answer(self, text, reason, &native, policy))
    }

    /// Reads the text that the caller provided instead of an answer.
    pub(super) fn read_opening(&self, text: &str) -> Answered {
        let policy = self.plan.opening_policy();
        let stop = "stop";
        read_answer(self, text, stop, &[], policy)
    }
}
