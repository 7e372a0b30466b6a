//! Calls in doubt whose runs wait until they are decided.

use contracts::tavern::{
    common::v1::{CallDecided, CallInDoubt, CallResult, CallStatus, run_event::Kind},
    registry::v1::CallDecision,
};
use core_types::CallPath;
use tokio::sync::watch;
use tonic::Status;

use super::{CallHandle, Calls, Inner, draining, resolve::refusal_of_missing};
use crate::{
    in_flight::InFlightCall,
    ledger::{Effect, LedgerEntry},
};

impl Inner {
    /// Returns the channel that wakes a follower of a call in doubt: with true when the call was given up, with
    /// false when the ledger may have a decision. Effects without followers are forgotten.
    fn follow_doubt(&self, effect: &Effect, path: &CallPath) -> watch::Receiver<bool> {
        let mut undecided = self.undecided();
        undecided.retain(|_, (news, _)| news.receiver_count() > 0);
        let (news, _) = undecided
            .entry(effect.clone())
            .or_insert_with(|| (watch::Sender::new(false), path.clone()));
        news.subscribe()
    }

    /// Returns the runs above a call for whose decision a follower waits.
    pub(super) fn waits_below(&self, effect: &Effect) -> Option<CallPath> {
        let undecided = self.undecided();
        let (news, path) = undecided.get(effect)?;
        (news.receiver_count() > 0).then(|| path.clone())
    }

    /// Wakes the followers of a call that was decided.
    pub(super) fn was_decided(&self, effect: &Effect) {
        self.wake_followers(effect, false);
    }

    /// Ends the waits for the decision about a call that was cancelled.
    pub(super) fn give_up(&self, effect: &Effect) {
        self.wake_followers(effect, true);
    }

    fn wake_followers(&self, effect: &Effect, is_given_up: bool) {
        if let Some((news, _)) = self.undecided().get(effect) {
            news.send_replace(is_given_up);
        }
    }
}

impl Calls {
    /// Waits until a call in doubt is decided and, if so decided, dispatched again. Returns the
    /// handle of the call that then follows; none if its run ends it undecided.
    ///
    /// # Errors
    /// A status when the service ends or the ledger cannot be read.
    pub(super) async fn until_decided(
        &self,
        effect: &Effect,
        doubtful: &CallResult,
        in_flight: &InFlightCall,
    ) -> Result<Option<CallHandle>, Status> {
        let mut news = self.inner.follow_doubt(effect, in_flight.path());
        loop {
            let last = match self.last_of(effect).await? {
                LedgerEntry::Settled(last) if last.entry.record.attempt == attempt_of(doubtful) => {
                    last
                }
                // The next attempt was dispatched.
                LedgerEntry::Settled(last) => {
                    let attempt = last.entry.record.attempt;
                    return self.again(effect, attempt, attempt, in_flight).await;
                }
                LedgerEntry::InFlight(last) => {
                    let attempt = last.record.attempt;
                    return self.again(effect, attempt, attempt, in_flight).await;
                }
                LedgerEntry::Absent => return Err(refusal_of_missing(effect.as_str())),
            };
            let attempt = last.entry.record.attempt;
            if last.resolution.is_some() {
                let next = attempt + u32::from(last.is_to_be_repeated());
                return self.again(effect, attempt, next, in_flight).await;
            }
            tokio::select! {
                // The sender is there as long as a follower.
                _ = news.changed() => {}
                () = in_flight.cancel_token().cancelled() => return Ok(None),
                () = self.inner.draining.cancelled() => return Err(draining()),
            }
            if *news.borrow_and_update() {
                return Ok(None);
            }
        }
    }

    async fn again(
        &self,
        effect: &Effect,
        earlier: u32,
        attempt: u32,
        in_flight: &InFlightCall,
    ) -> Result<Option<CallHandle>, Status> {
        let path = Some(in_flight.path().clone());
        let joined = self.join_attempt(effect, earlier, attempt, path).await;
        joined.map(Some)
    }

    /// Returns the event of the decision about an attempt, if it was decided.
    pub(super) async fn decision_about(
        &self,
        effect: &Effect,
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

/// Returns the event that reports a call in doubt.
pub(super) fn in_doubt(result: &CallResult) -> Kind {
    Kind::CallInDoubt(CallInDoubt {
        effect_id: result.effect_id.clone(),
        tool_id: result.tool_id.clone(),
        attempt: attempt_of(result),
        error: result.error.clone(),
    })
}
