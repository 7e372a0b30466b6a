//! Follows a call: the events below it, then its result.

use std::{pin::pin, time::Duration};

use contracts::tavern::common::v1::{CallResult, ResultPlace, RunEvent, run_event::Kind};
use futures::{Stream, StreamExt};
use run_client::{CallProgress, Followed};
use tokio::time::Instant;
use tonic::Status;

use super::{CallHandle, Calls, undecided};
use crate::in_flight::{InFlightCall, OutputCursor, Stage};

/// The longest wait for further events of a run after its result.
const EVENT_GRACE: Duration = Duration::from_secs(2);
/// The longest time for which a run is followed; its own deadline ends it before.
pub(super) const FOLLOW_LIMIT: Duration = Duration::from_secs(367 * 24 * 60 * 60);

impl Calls {
    /// Shows the events below a call, from its beginning, and then its result. The events of a run
    /// come from that run's log, so a slow reader slows nothing. A call in doubt that a run made
    /// has its result when it was decided or cancelled.
    pub fn follow(
        &self,
        handle: CallHandle,
    ) -> impl Stream<Item = Result<CallProgress, Status>> + Send + use<> {
        let this = self.clone();
        async_stream::stream! {
            // The guard must live as long as the stream: dropping it ends a call without effect id.
            let CallHandle { mut in_flight, index, ends_with_caller: _guard, awaits_decision, context, .. } = handle;
            let mut stage = in_flight.subscribe();
            let mut shown = OutputCursor::default();
            let effect = in_flight.effect_id().to_owned();
            let mut followed = false;
            loop {
                let (child, output, ended) = {
                    let now = stage.borrow_and_update();
                    (now.child_run_id.clone(), now.output.read(&mut shown), now.ended.clone())
                };
                for event in output {
                    yield Ok(CallProgress::Event(Box::new(RunEvent::clone(&event))));
                }
                if let Some(child) = child.filter(|_| !followed) {
                    followed = true;
                    let below = this.inner.dispatcher.runs.run(&child, &context);
                    let mut events = pin!(below.follow(0, Instant::now() + FOLLOW_LIMIT));
                    let mut until_result = pin!(result_and_grace(stage.clone()));
                    loop {
                        let next = tokio::select! {
                            next = events.next() => next,
                            () = &mut until_result => None,
                        };
                        match next {
                            // It is a part of the result, about which hooks decide first.
                            Some(Ok(Followed::Event(event)))
                                if in_flight.is_held_back() && is_of_result(&event) => {}
                            Some(Ok(Followed::Event(event))) => {
                                yield Ok(CallProgress::Event(of_call(&effect, &child, event)));
                            }
                            // The call's own task reports its end.
                            Some(Ok(Followed::Ended(_)) | Err(_)) | None => break,
                        }
                    }
                    continue;
                }
                if let Some(ended) = ended {
                    let doubtful = awaits_decision.as_ref().filter(|_| undecided::is_in_doubt(&ended));
                    let Some((effect, result)) = doubtful.zip(ended.as_ref().ok()) else {
                        yield ended.map(|result| {
                            CallProgress::Result(Box::new(CallResult { index, ..result }))
                        });
                        return;
                    };
                    yield Ok(event_of(&in_flight, undecided::in_doubt(result)));
                    let decided = this.until_decided(effect, result, &in_flight).await;
                    if let Ok(Some(decision)) = this.decision_about(effect, undecided::attempt_of(result)).await {
                        yield Ok(event_of(&in_flight, decision));
                    }
                    match decided {
                        Ok(Some(again)) => {
                            in_flight = again.in_flight;
                            stage = in_flight.subscribe();
                            (shown, followed) = (OutputCursor::default(), false);
                            continue;
                        }
                        Ok(None) => {
                            let result = CallResult { index, ..result.clone() };
                            yield Ok(CallProgress::Result(Box::new(result)));
                        }
                        Err(status) => yield Err(status),
                    }
                    return;
                }
                if stage.changed().await.is_err() {
                    yield Err(Status::internal("the call was lost"));
                    return;
                }
            }
        }
    }
}

fn event_of(in_flight: &InFlightCall, kind: Kind) -> CallProgress {
    CallProgress::Event(Box::new(in_flight.event(kind)))
}

/// Sets the call's effect id in an event of its run that belongs to the call's output.
pub(super) fn of_call(effect_id: &str, child: &str, mut event: Box<RunEvent>) -> Box<RunEvent> {
    if event.run_id == child {
        let (place, effect) = match &mut event.kind {
            Some(Kind::OutputChunk(chunk)) => (chunk.result_place(), &mut chunk.effect_id),
            Some(Kind::OutputReset(reset)) => (reset.result_place(), &mut reset.effect_id),
            _ => return event,
        };
        if place != ResultPlace::Unspecified {
            effect_id.clone_into(effect);
        }
    }
    event
}

/// Whether an event of a run is a piece of the result of the call that it carries out.
fn is_of_result(event: &RunEvent) -> bool {
    let place = match &event.kind {
        Some(Kind::OutputChunk(chunk)) => chunk.result_place(),
        Some(Kind::OutputReset(reset)) => reset.result_place(),
        _ => return false,
    };
    place != ResultPlace::Unspecified
}

async fn result_and_grace(mut stage: tokio::sync::watch::Receiver<Stage>) {
    if stage.wait_for(|stage| stage.ended.is_some()).await.is_ok() {
        tokio::time::sleep(EVENT_GRACE).await;
    }
}
