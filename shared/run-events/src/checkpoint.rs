//! Checkpoints: which events of a long run are needed to continue it (rule W5).
//!
//! A checkpoint names events by their sequences and copies nothing, so the log stays the only truth, and a
//! run that has none is read whole.

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::RunId;
use grpc_kit::Failure;

use crate::damage::Unreadable;
use crate::failure::append_failure;
use crate::recorder::Recorder;
use crate::runs::Runs;
use crate::store::{PAGE, RunStore};

/// The most spans of a checkpoint, which is an event of the log.
const MAX_SPANS: usize = 200_000;

/// Up to this many events between needed ones are read with them, which is faster than another query.
const GAP: u64 = 64;

/// Events of one run that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// The sequence before the first one.
    after: u64,
    /// The sequence of the last one.
    last: u64,
}

/// Returns the spans of sequences in ascending order.
fn spans_of(sequences: impl Iterator<Item = u64>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for sequence in sequences {
        match spans.last_mut() {
            Some(span) if span.last + 1 == sequence => span.last = sequence,
            _ => spans.push(Span {
                after: sequence.saturating_sub(1),
                last: sequence,
            }),
        }
    }
    spans
}

fn encode(through: u64, spans: &[Span]) -> common::Checkpoint {
    let mut at = 0;
    let mut lengths = Vec::with_capacity(2 * spans.len());
    for span in spans {
        lengths.extend([span.after - at, span.last - span.after]);
        at = span.last;
    }
    common::Checkpoint {
        through,
        spans: lengths,
    }
}

fn decode(checkpoint: &common::Checkpoint) -> Vec<Span> {
    let mut at = 0_u64;
    let pairs = checkpoint.spans.chunks_exact(2);
    let spans = pairs.map(|pair| {
        let after = at.saturating_add(pair[0]);
        let last = after.saturating_add(pair[1]).min(checkpoint.through);
        at = last;
        Span { after, last }
    });
    spans.collect()
}

/// The events of a run that are read to continue it.
pub(crate) struct ToContinue {
    /// Its events in order, without the events that are not needed.
    pub(crate) events: Vec<common::RunEvent>,
    /// The last event that the last checkpoint covers; zero without a checkpoint.
    pub(crate) checkpointed: u64,
}

impl Runs {
    /// Records in a checkpoint which events of a run are needed to continue it, as `needed` picks
    /// them, unless they form too many spans.
    ///
    /// # Errors
    /// A storage that does not work, or stored data that cannot be read.
    pub async fn checkpoint(
        &self,
        recorder: &Recorder,
        needed: impl Fn(&[common::RunEvent]) -> Vec<u64>,
    ) -> Result<(), Failure> {
        let (run, through) = (recorder.run_id(), recorder.last_sequence());
        let read = self.store().to_continue(run, through, Vec::new()).await;
        let read = read.map_err(Failure::from)?;
        let spans = spans_of(needed(&read.events).into_iter());
        recorder.note_checkpoint(through);
        if spans.len() > MAX_SPANS {
            return Ok(());
        }
        let checkpoint = Kind::Checkpoint(encode(through, &spans));
        let recorded = recorder.submit(checkpoint).await;
        recorded.map_err(|error| append_failure(&error))
    }
}

impl RunStore {
    /// Reads the events that are needed to continue a run whose last event is `last`: from the end
    /// back to the last checkpoint, and the events that it names. `tail` holds the newest events
    /// that have been read already.
    pub(crate) async fn to_continue(
        &self,
        run: RunId,
        last: u64,
        mut tail: Vec<common::RunEvent>,
    ) -> Result<ToContinue, Unreadable> {
        let page = PAGE as u64;
        let (mut pages, mut first, mut floor) = (Vec::new(), last, 0);
        let mut needed = Vec::new();
        while first > floor {
            let mut after = first.saturating_sub(page).max(floor);
            let mut events = std::mem::take(&mut tail);
            match events.first() {
                Some(oldest) => after = oldest.sequence.saturating_sub(1),
                None => events = self.span(run, Span { after, last: first }).await?,
            }
            if floor == 0
                && let Some(checkpoint) = last_checkpoint(run, &events)
            {
                floor = checkpoint.through;
                needed = decode(checkpoint);
            }
            pages.push(events);
            first = after;
        }
        let mut events = self.needed(run, &needed).await?;
        let tail = pages.into_iter().rev().flatten();
        events.extend(tail.filter(|event| event.sequence > floor));
        Ok(ToContinue {
            events,
            checkpointed: floor,
        })
    }

    /// Reads the events of spans. Spans that are near to each other are read together.
    async fn needed(
        &self,
        run: RunId,
        spans: &[Span],
    ) -> Result<Vec<common::RunEvent>, Unreadable> {
        let mut events = Vec::new();
        for near in spans.chunk_by(|one, next| next.after - one.last <= GAP) {
            let whole = Span {
                after: near[0].after,
                last: near[near.len() - 1].last,
            };
            let mut within = near.iter().peekable();
            let read = self.span(run, whole).await?;
            events.extend(read.into_iter().filter(|event| {
                while within.next_if(|span| span.last < event.sequence).is_some() {}
                within
                    .peek()
                    .is_some_and(|span| span.after < event.sequence)
            }));
        }
        Ok(events)
    }

    async fn span(&self, run: RunId, span: Span) -> Result<Vec<common::RunEvent>, Unreadable> {
        let mut events = Vec::new();
        self.read_span(run, span.after, span.last, &mut events)
            .await?;
        Ok(events)
    }
}

/// Returns the last checkpoint of a run among events. Checkpoints of runs below are not its own.
fn last_checkpoint(run: RunId, events: &[common::RunEvent]) -> Option<&common::Checkpoint> {
    let run_id = run.to_string();
    let own = events.iter().rev().filter(|event| event.run_id == run_id);
    own.filter_map(|event| match &event.kind {
        Some(Kind::Checkpoint(checkpoint)) => Some(checkpoint),
        _ => None,
    })
    .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_back_as_they_were_written() {
        for needed in [vec![], vec![1], vec![1, 2, 3, 7, 9, 10], vec![5, 6, 4_096]] {
            let spans = spans_of(needed.iter().copied());
            let read = decode(&encode(5_000, &spans));
            assert_eq!(read, spans);
            let sequences = read.iter().flat_map(|span| span.after + 1..=span.last);
            assert_eq!(sequences.collect::<Vec<_>>(), needed);
        }
    }

    #[test]
    fn a_damaged_checkpoint_names_nothing_behind_its_end() {
        let damaged = common::Checkpoint {
            through: 10,
            spans: vec![8, u64::MAX, u64::MAX, 3, 4],
        };
        let last = decode(&damaged).iter().map(|span| span.last).max();
        assert_eq!(last, Some(10));
    }
}
