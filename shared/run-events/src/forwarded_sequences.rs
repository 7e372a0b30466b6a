//! How far a run has recorded the logs of the runs below it.

use std::collections::HashMap;

use contracts::tavern::common::v1::{RunEvent, run_event::Kind};
use core_types::RunId;

/// The last place in the log of each run directly below that a run has recorded.
///
/// The log below is followed in order, so everything up to that place is there too. A run below is
/// enough as a key: it belongs to one call, and what it records of runs further below has a place
/// in its own log.
#[derive(Debug)]
pub(crate) struct ForwardedSequences {
    own: String,
    last: HashMap<String, Forwarded>,
}

/// How far one log below was recorded.
#[derive(Clone, Copy, Debug)]
struct Forwarded {
    /// The start of the tool that the places belong to; zero for runs.
    generation: u64,
    sequence: u64,
}

impl ForwardedSequences {
    pub(crate) fn new(run: RunId) -> Self {
        Self {
            own: run.to_string(),
            last: HashMap::new(),
        }
    }

    /// Returns true if the event that has the place `origin` below was recorded. What has no place
    /// never was. A tool that begins again writes a log of its own.
    pub(crate) fn has(&self, event: &RunEvent, origin: u64) -> bool {
        let (source, generation) = self.source(event);
        let last = self.last.get(source);
        let last = last.filter(|last| last.generation == generation);
        origin != 0 && last.is_some_and(|last| origin <= last.sequence)
    }

    /// Notes that the event was recorded.
    pub(crate) fn note(&mut self, event: &RunEvent, origin: u64) {
        if origin == 0 {
            return;
        }
        let (source, generation) = self.source(event);
        let noted = Forwarded {
            generation,
            sequence: origin,
        };
        match self.last.get_mut(source) {
            Some(last) if last.generation == generation => {
                last.sequence = origin.max(last.sequence);
            }
            Some(last) => *last = noted,
            None => {
                let source = source.to_owned();
                self.last.insert(source, noted);
            }
        }
    }

    /// Returns where an event comes from: the run directly below on the way to its run, or the
    /// call whose tool wrote something and which start of the tool that was, or its approval.
    fn source<'a>(&self, event: &'a RunEvent) -> (&'a str, u64) {
        if event.run_id == self.own {
            return match &event.kind {
                Some(Kind::OutputChunk(chunk)) => (&chunk.effect_id, chunk.generation),
                Some(Kind::OutputReset(reset)) => (&reset.effect_id, reset.generation),
                Some(Kind::ProgressReported(report)) => (&report.effect_id, report.generation),
                Some(Kind::ApprovalRequested(requested)) => (&requested.approval_id, 0),
                Some(Kind::ApprovalEnded(ended)) => (&ended.approval_id, 0),
                _ => (&event.run_id, 0),
            };
        }
        let mut below = event.parent_path.iter().skip_while(|run| **run != self.own);
        (below.nth(1).unwrap_or(&event.run_id), 0)
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::OutputChunk;
    use core_types::{IdSource, RunOwner, SystemIds};

    use super::*;

    fn event(path: &[&str], run: &str) -> RunEvent {
        RunEvent {
            run_id: run.to_owned(),
            parent_path: path.iter().map(|&step| step.to_owned()).collect(),
            ..RunEvent::default()
        }
    }

    #[test]
    fn recorded_events_are_known_per_run_directly_below() {
        let run = SystemIds.next_run(RunOwner::Agent);
        let own = run.to_string();
        let mut forwarded = ForwardedSequences::new(run);
        let child = event(&["above", &own], "child");
        let grandchild = event(&["above", &own, "child"], "grandchild");
        let other = event(&["above", &own], "other");
        forwarded.note(&child, 1);
        forwarded.note(&grandchild, 2);
        assert!(forwarded.has(&child, 2), "both came through one log");
        assert!(forwarded.has(&grandchild, 1));
        assert!(!forwarded.has(&child, 3));
        assert!(!forwarded.has(&other, 1));
    }

    #[test]
    fn what_has_no_place_is_always_new() {
        let run = SystemIds.next_run(RunOwner::Agent);
        let mut forwarded = ForwardedSequences::new(run);
        let child = event(&[&run.to_string()], "child");
        forwarded.note(&child, 0);
        assert!(!forwarded.has(&child, 0));
        forwarded.note(&child, 5);
        assert!(!forwarded.has(&child, 0));
    }
    #[test]
    fn what_a_tool_writes_after_it_began_again_is_new() {
        let run = SystemIds.next_run(RunOwner::Agent);
        let written = |generation| {
            let mut chunk = event(&[], &run.to_string());
            chunk.kind = Some(Kind::OutputChunk(OutputChunk {
                effect_id: "e".to_owned(),
                generation,
                ..OutputChunk::default()
            }));
            chunk
        };
        let mut forwarded = ForwardedSequences::new(run);
        forwarded.note(&written(0), 7);
        assert!(forwarded.has(&written(0), 7));
        assert!(!forwarded.has(&written(1_000), 1));
        forwarded.note(&written(1_000), 1);
        assert!(forwarded.has(&written(1_000), 1));
        assert!(!forwarded.has(&written(1_000), 2));
    }
}
