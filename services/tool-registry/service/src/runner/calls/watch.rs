//! Following a call by its effect id, over restarts of this service.

use std::{pin::pin, time::Duration};

use contracts::tavern::common::v1::{CallResult, RunEvent, run_event::Kind};
use core_types::EffectId;
use futures::{Stream, StreamExt};
use grpc_kit::{CallContext, Drain};
use run_client::{CallProgress, Followed};
use tokio::time::Instant;
use tonic::Status;

use super::{
    CallHandle, Calls,
    follow::{FOLLOW_LIMIT, of_call},
    resolve::refusal_of_missing,
};
use crate::ledger::{Effect, LedgerEntry};

/// The longest silence of a watch before it sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The interval between reads of the ledger for the end of a call that no task of this process
/// executes.
const POLL: Duration = Duration::from_millis(250);

/// The position of a follower.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The sequence of the last event.
    pub sequence: u64,
    /// The start of the tool that wrote that event.
    pub generation: u64,
}

impl Position {
    /// Moves on to an event. Returns false if the follower has it.
    fn advance(&mut self, effect: &EffectId, event: &RunEvent) -> bool {
        let generation = match &event.kind {
            // The events of a run below have a place in its log.
            Some(Kind::OutputChunk(chunk))
                if chunk.effect_id == effect.as_str() && chunk.interface_key.is_empty() =>
            {
                chunk.generation
            }
            Some(Kind::OutputReset(reset))
                if reset.effect_id == effect.as_str() && reset.interface_key.is_empty() =>
            {
                reset.generation
            }
            Some(Kind::ProgressReported(report)) if report.effect_id == effect.as_str() => {
                report.generation
            }
            _ => self.generation,
        };
        let is_new = generation != self.generation || event.sequence > self.sequence;
        if is_new {
            *self = Self {
                sequence: event.sequence,
                generation,
            };
        }
        is_new
    }
}

/// One record of a watch.
#[derive(Debug)]
pub enum Watched {
    /// Something below the call.
    Event(Box<RunEvent>),
    /// Nothing happened for a while. This is the sequence of the last event.
    Heartbeat(u64),
    /// The server is about to go away. This is the sequence to resume after.
    Drain(u64),
    /// The call settled, as the ledger knows it. Nothing comes after it.
    Settled(LedgerEntry),
    /// The call ended without an entry in the ledger. Nothing comes after it.
    Unrecorded(Box<CallResult>),
}

impl Calls {
    /// Follows a call: the events below it after `after`, then its result.
    ///
    /// # Errors
    /// A status when no call has the effect id, or the ledger cannot be read.
    pub async fn watch(
        &self,
        context: CallContext,
        effect: EffectId,
        after: Position,
        drain: Drain,
    ) -> Result<impl Stream<Item = Result<Watched, Status>> + Send + use<>, Status> {
        let named = Effect::of(context.principal(), effect.clone());
        if self.in_flight(&named, &context).is_none()
            && let LedgerEntry::Absent = self.find(&context, &effect).await?
        {
            return Err(refusal_of_missing(effect.as_str()));
        }
        let this = self.clone();
        Ok(async_stream::try_stream! {
            let (mut position, mut seen, mut result) = (after, false, None);
            let mut quiet_since = Instant::now();
            loop {
                let handle = this.in_flight(&named, &context);
                let mut events = handle.map(|handle| this.follow(handle).boxed());
                if events.is_none() {
                    match this.find(&context, &effect).await? {
                        LedgerEntry::Absent => {
                            // It ended without being dispatched, or its memory was given up.
                            match result.take() {
                                Some(result) => yield Watched::Unrecorded(result),
                                None => Err(refusal_of_missing(effect.as_str()))?,
                            }
                            return;
                        }
                        LedgerEntry::Settled(settled) => match &settled.entry.child_run_id {
                            Some(child) if !seen => {
                                let below = this.below(&effect, child, position.sequence, &context);
                                events = Some(below.boxed());
                            }
                            _ => {
                                yield Watched::Settled(LedgerEntry::Settled(settled));
                                return;
                            }
                        },
                        LedgerEntry::InFlight(_) => {}
                    }
                }
                let mut events = pin!(events.unwrap_or_else(|| pause().boxed()));
                loop {
                    let next = tokio::select! {
                        // Events first: a server that drains still shows those that are ready.
                        biased;
                        next = events.next() => next,
                        () = drain.started() => {
                            yield Watched::Drain(position.sequence);
                            return;
                        }
                        () = tokio::time::sleep_until(quiet_since + HEARTBEAT) => {
                            quiet_since = Instant::now();
                            yield Watched::Heartbeat(position.sequence);
                            continue;
                        }
                    };
                    match next {
                        Some(Ok(CallProgress::Event(event))) if position.advance(&effect, &event) => {
                            quiet_since = Instant::now();
                            yield Watched::Event(event);
                        }
                        Some(Ok(CallProgress::Event(_))) => {}
                        Some(Ok(CallProgress::Result(ended))) => {
                            (seen, result) = (true, Some(ended));
                            break;
                        }
                        Some(Err(status)) => Err(status)?,
                        None => break,
                    }
                }
            }
        })
    }

    /// Joins a call that is in flight and that the caller can see.
    fn in_flight(&self, effect: &Effect, context: &CallContext) -> Option<CallHandle> {
        let in_flight = self.inner.seen_in_flight(effect, context)?;
        Some(CallHandle {
            in_flight,
            index: 0,
            was_in_flight: true,
            ends_with_caller: None,
            awaits_decision: None,
            context: context.clone(),
        })
    }

    /// Returns the events of a child run that has ended, then an empty result.
    fn below(
        &self,
        effect: &EffectId,
        child: &str,
        after: u64,
        context: &CallContext,
    ) -> impl Stream<Item = Result<CallProgress, Status>> + Send + use<> {
        let run = self.inner.dispatcher.runs.run(child, context);
        let events = run.follow(after, Instant::now() + FOLLOW_LIMIT);
        let (effect, child) = (effect.to_string(), child.to_owned());
        events.map(move |followed| match followed {
            Ok(Followed::Event(event)) => Ok(CallProgress::Event(of_call(&effect, &child, event))),
            // The call's result is in the ledger, also where its run can no longer be read.
            Ok(Followed::Ended(_)) | Err(_) => Ok(CallProgress::Result(Box::default())),
        })
    }
}

/// Ends after a moment without an event.
fn pause() -> impl Stream<Item = Result<CallProgress, Status>> + Send {
    futures::stream::once(tokio::time::sleep(POLL)).filter_map(|()| async { None })
}
