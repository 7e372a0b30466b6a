//! Calls in doubt whose runs wait until somebody decides about them.

use std::{
    collections::{HashMap, hash_map},
    sync::{Mutex, MutexGuard, PoisonError},
};

use contracts::tavern::{
    common::v1::{CallDecided, CallInDoubt, CallResult, CallStatus, run_event::Kind},
    registry::v1::CallDecision,
};
use core_types::{CallPath, EffectId};
use tokio::sync::watch;
use tonic::Status;

use super::{CallHandle, Calls, draining, resolve::refusal_of_missing};
use crate::{ledger::LedgerEntry, runner::in_flight::InFlightCall};

/// The effects of calls in doubt for whose decision followers wait.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    /// Locked for a look-up or a change, never across an await.
    by_effect: Mutex<HashMap<EffectId, Awaited>>,
}

/// A decision that followers wait for.
#[derive(Clone, Debug)]
struct Awaited {
    news: watch::Sender<News>,
    /// The runs above the call.
    path: CallPath,
}

/// Something that reaches followers of a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// The call was decided, which the ledger shows, or not yet.
    Ledger,
    /// The call was cancelled, so its run ends in doubt.
    GivenUp,
}

/// A follower that waits for a decision. Its effect is forgotten with the last of its followers.
struct Follower<'a> {
    undecided: &'a Undecided,
    effect: &'a EffectId,
    news: Option<watch::Receiver<News>>,
}

/// The way in which a follower of a call in doubt continues.
pub(super) enum Continuation {
    /// The call ended like this, by the decision or undecided.
    Ended(Box<CallResult>),
    /// The call was dispatched again and is followed by this handle.
    Again(CallHandle),
}

impl Undecided {
    fn follow<'a>(&'a self, effect: &'a EffectId, path: &CallPath) -> Follower<'a> {
        let news = match self.lock().entry(effect.clone()) {
            hash_map::Entry::Occupied(awaited) => awaited.get().news.subscribe(),
            hash_map::Entry::Vacant(place) => {
                let (news, receiver) = watch::channel(News::Ledger);
                let path = path.clone();
                place.insert(Awaited { news, path });
                receiver
            }
        };
        Follower {
            undecided: self,
            effect,
            news: Some(news),
        }
    }

    /// Returns the runs above a call for whose decision a follower waits.
    pub(super) fn path_of(&self, effect: &EffectId) -> Option<CallPath> {
        let awaited = self.lock();
        awaited.get(effect).map(|awaited| awaited.path.clone())
    }

    /// Wakes the followers of a call that was decided.
    pub(super) fn decided(&self, effect: &EffectId) {
        self.announce(effect, News::Ledger);
    }

    /// Ends the waits for the decision about a call that was cancelled. Returns whether there was one.
    pub(super) fn give_up(&self, effect: &EffectId) -> bool {
        self.announce(effect, News::GivenUp)
    }

    fn announce(&self, effect: &EffectId, news: News) -> bool {
        let awaited = self.lock().get(effect).cloned();
        awaited.is_some_and(|awaited| {
            awaited.news.send_replace(news);
            true
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EffectId, Awaited>> {
        self.by_effect
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower<'_> {
    /// Waits until the call was decided or cancelled.
    async fn next(&mut self) -> News {
        let Some(news) = &mut self.news else {
            return News::GivenUp;
        };
        match news.changed().await {
            Ok(()) => *news.borrow_and_update(),
            // The sender is there as long as a follower.
            Err(_) => News::GivenUp,
        }
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let mut awaited = self.undecided.lock();
        self.news = None;
        if let hash_map::Entry::Occupied(place) = awaited.entry(self.effect.clone())
            && place.get().news.receiver_count() == 0
        {
            place.remove();
        }
    }
}

impl Calls {
    /// Waits until a call in doubt is decided and, if so decided, dispatched again; or until its run ends it.
    ///
    /// # Errors
    /// A status when the service ends or the ledger cannot be read.
    pub(super) async fn until_decided(
        &self,
        effect: &EffectId,
        doubtful: &CallResult,
        in_flight: &InFlightCall,
    ) -> Result<Continuation, Status> {
        let attempt = attempt_of(doubtful);
        let mut follower = self.inner.undecided.follow(effect, in_flight.path());
        loop {
            // The attempt to follow, and the one that it is dispatched like.
            let next = match self.find(effect).await? {
                LedgerEntry::Settled(last) if last.entry.record.attempt == attempt => {
                    match last.is_to_be_repeated() {
                        true => Some((attempt, attempt + 1)),
                        false if last.resolution.is_some() => {
                            return Ok(Continuation::Ended(Box::new(last.result)));
                        }
                        false => None,
                    }
                }
                LedgerEntry::Settled(last) => {
                    Some((last.entry.record.attempt, last.entry.record.attempt))
                }
                LedgerEntry::InFlight(last) => Some((last.record.attempt, last.record.attempt)),
                LedgerEntry::Absent => return Err(refusal_of_missing(effect.as_str())),
            };
            if let Some((earlier, next)) = next {
                let path = Some(in_flight.path().clone());
                let joined = self.join_attempt(effect, earlier, next, path).await;
                return joined.map(Continuation::Again);
            }
            let news = tokio::select! {
                news = follower.next() => news,
                () = in_flight.cancel_token().cancelled() => News::GivenUp,
                () = self.inner.draining.cancelled() => return Err(draining()),
            };
            if news == News::GivenUp {
                return Ok(Continuation::Ended(Box::new(doubtful.clone())));
            }
        }
    }

    /// Returns the event that says how an attempt was decided, if it was.
    pub(super) async fn decision_about(
        &self,
        effect: &EffectId,
        attempt: u32,
    ) -> Result<Option<Kind>, Status> {
        let found = self.inner.ledger.look_up(effect, attempt, None).await?;
        let LedgerEntry::Settled(settled) = found else {
            return Ok(None);
        };
        let Some(resolution) = &settled.resolution else {
            return Ok(None);
        };
        let status = match resolution.decision() {
            CallDecision::Repeat => CallStatus::Unspecified,
            _ => settled.result.status(),
        };
        Ok(Some(Kind::CallDecided(CallDecided {
            effect_id: effect.to_string(),
            attempt,
            status: status.into(),
            reason: resolution.reason.clone(),
        })))
    }
}

/// Whether a call ended, and it is not known whether it took effect.
pub(super) fn is_in_doubt(ended: &Result<CallResult, Status>) -> bool {
    let result = ended.as_ref().ok();
    result.is_some_and(|result| result.status() == CallStatus::InDoubt)
}

/// Returns the attempt of a result; earlier versions did not note the first.
pub(super) fn attempt_of(result: &CallResult) -> u32 {
    result.attempt.max(1)
}

/// Returns the event that says that a call is in doubt.
pub(super) fn in_doubt(result: &CallResult) -> Kind {
    Kind::CallInDoubt(CallInDoubt {
        effect_id: result.effect_id.clone(),
        tool_id: result.tool_id.clone(),
        attempt: attempt_of(result),
        error: result.error.clone(),
    })
}
