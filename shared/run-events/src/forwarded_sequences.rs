//! The places up to which a run has recorded the logs of the runs below it.

use std::borrow::Cow;
use std::collections::HashMap;

use contracts::tavern::common::v1::{RunEvent, run_event::Kind};
use core_types::RunId;

/// The last place in the log of each run directly below that a run has recorded.
///
/// The log below is followed in order, so everything up to that place is recorded too. A run below
/// is enough as a key: it belongs to one call, and its events of runs further below have a place in
/// its own log.
#[derive(Debug)]
pub struct ForwardedSequences {
    own: String,
    last: HashMap<String, Forwarded>,
}

/// The place up to which one log below was recorded.
#[derive(Clone, Copy, Debug)]
struct Forwarded {
    /// The start of the tool that the places belong to; zero for runs.
    generation: u64,
    sequence: u64,
}

impl ForwardedSequences {
    /// Makes the places of a run of which nothing below is recorded.
    pub fn new(run: RunId) -> Self {
        Self {
            own: run.to_string(),
            last: HashMap::new(),
        }
    }

    /// Returns an event of a run below as the run records it: without a place in this log, and with the
    /// place that it had as its origin; none if it was recorded before. An event without a place
    /// never was. A tool that begins again writes a log of its own.
    pub fn unrecorded(&self, mut event: RunEvent) -> Option<RunEvent> {
        event.origin_sequence = std::mem::take(&mut event.sequence);
        let (source, generation) = self.source(&event);
        let last = self.last.get(&*source);
        let last = last.filter(|last| last.generation == generation);
        let was_recorded = event.origin_sequence != 0
            && last.is_some_and(|last| event.origin_sequence <= last.sequence);
        (!was_recorded).then_some(event)
    }

    /// Notes an event that was recorded. Events of the run itself, which have no origin, are passed over.
    pub fn note(&mut self, event: &RunEvent) {
        if event.origin_sequence == 0 {
            return;
        }
        let (source, generation) = self.source(event);
        let noted = Forwarded {
            generation,
            sequence: event.origin_sequence,
        };
        match self.last.get_mut(&*source) {
            Some(last) if last.generation == generation => {
                last.sequence = noted.sequence.max(last.sequence);
            }
            Some(last) => *last = noted,
            None => {
                let source = source.into_owned();
                self.last.insert(source, noted);
            }
        }
    }

    /// Returns the source of an event: the run directly below on the way to its run, or the call
    /// whose tool wrote output, with the number of the tool's start, its approval, or one of its hooks.
    fn source<'a>(&self, event: &'a RunEvent) -> (Cow<'a, str>, u64) {
        if event.run_id == self.own {
            let (source, generation) = match &event.kind {
                Some(Kind::OutputChunk(chunk)) => (&chunk.effect_id, chunk.generation),
                Some(Kind::OutputReset(reset)) => (&reset.effect_id, reset.generation),
                Some(Kind::ProgressReported(report)) => (&report.effect_id, report.generation),
                Some(Kind::ApprovalRequested(requested)) => (&requested.approval_id, 0),
                Some(Kind::ApprovalEnded(ended)) => (&ended.approval_id, 0),
                Some(Kind::HookApplied(applied)) => {
                    let parts = [&*applied.effect_id, &applied.point, &applied.hook];
                    return (Cow::Owned(parts.join("\0")), 0);
                }
                _ => (&event.run_id, 0),
            };
            return (Cow::Borrowed(source), generation);
        }
        let mut below = event.parent_path.iter().skip_while(|run| **run != self.own);
        (Cow::Borrowed(below.nth(1).unwrap_or(&event.run_id)), 0)
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::OutputChunk;
    use core_types::{IdSource, RunOwner, SystemIds};

    use super::*;

    /// Makes an event of a run below, with its place in the log below.
    fn event(path: &[&str], run: &str, sequence: u64) -> RunEvent {
        RunEvent {
            sequence,
            run_id: run.to_owned(),
            parent_path: path.iter().map(|&step| step.to_owned()).collect(),
            ..RunEvent::default()
        }
    }

    /// Records an event unless it was recorded; returns whether it was.
    fn record(forwarded: &mut ForwardedSequences, event: RunEvent) -> bool {
        let unrecorded = forwarded.unrecorded(event);
        if let Some(event) = &unrecorded {
            forwarded.note(event);
        }
        unrecorded.is_none()
    }

    #[test]
    fn recorded_events_are_known_per_run_directly_below() {
        let run = SystemIds.next_run(RunOwner::Agent);
        let own = run.to_string();
        let mut forwarded = ForwardedSequences::new(run);
        let child = |sequence| event(&["above", &own], "child", sequence);
        let grandchild = |sequence| event(&["above", &own, "child"], "grandchild", sequence);
        assert!(!record(&mut forwarded, child(1)));
        assert!(!record(&mut forwarded, grandchild(2)));
        assert!(
            record(&mut forwarded, child(2)),
            "both came through one log"
        );
        assert!(record(&mut forwarded, grandchild(1)));
        assert!(!record(&mut forwarded, child(3)));
        assert!(!record(&mut forwarded, event(&["above", &own], "other", 1)));
    }

    #[test]
    fn a_recorded_event_keeps_its_place_as_its_origin() {
        let run = SystemIds.next_run(RunOwner::Agent);
        let forwarded = ForwardedSequences::new(run);
        let unrecorded = forwarded.unrecorded(event(&[&run.to_string()], "child", 7));
        let unrecorded = unrecorded.unwrap();
        assert_eq!((unrecorded.sequence, unrecorded.origin_sequence), (0, 7));
    }

    #[test]
    fn what_has_no_place_is_always_new() {
        let run = SystemIds.next_run(RunOwner::Agent);
        let mut forwarded = ForwardedSequences::new(run);
        let child = |sequence| event(&[&run.to_string()], "child", sequence);
        assert!(!record(&mut forwarded, child(0)));
        assert!(!record(&mut forwarded, child(0)));
        assert!(!record(&mut forwarded, child(5)));
        assert!(!record(&mut forwarded, child(0)));
    }

    #[test]
    fn what_a_tool_writes_after_it_began_again_is_new() {
        let run = SystemIds.next_run(RunOwner::Agent);
        let written = |generation, sequence| {
            let mut chunk = event(&[], &run.to_string(), sequence);
            chunk.kind = Some(Kind::OutputChunk(OutputChunk {
                effect_id: "e".to_owned(),
                generation,
                ..OutputChunk::default()
            }));
            chunk
        };
        let mut forwarded = ForwardedSequences::new(run);
        assert!(!record(&mut forwarded, written(0, 7)));
        assert!(record(&mut forwarded, written(0, 7)));
        assert!(!record(&mut forwarded, written(1_000, 1)));
        assert!(record(&mut forwarded, written(1_000, 1)));
        assert!(!record(&mut forwarded, written(1_000, 2)));
    }
}
