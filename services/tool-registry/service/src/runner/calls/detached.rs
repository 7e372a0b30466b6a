//! Calls that outlive their callers.

use std::{panic::AssertUnwindSafe, sync::Arc};

use contracts::tavern::common::v1::CallResult;
use core_types::{EffectId, Timestamp};
use futures::FutureExt;
use grpc_kit::CallContext;
use run_client::Unanswered;
use tonic::Status;

use super::{Call, CallHandle, Calls, Inner, failed_inside};
use crate::{
    in_flight::InFlightCall,
    ledger::{Effect, LedgerEntry},
};

/// A call that was started, now or before.
#[derive(Debug)]
pub struct StartedCall {
    /// Its state in the ledger; absent if it was not dispatched.
    pub entry: LedgerEntry,
    /// The result with which it settled, if it has.
    pub result: Option<CallResult>,
    /// Whether the effect was known before.
    pub replayed: bool,
}

impl Calls {
    /// Returns an effect id that no call has.
    pub fn new_effect(&self) -> EffectId {
        self.inner.ledger.new_effect()
    }

    /// Starts a call, or joins the one that is in flight, and returns when it is in the ledger or
    /// was rejected.
    ///
    /// # Errors
    /// A status when the effect id is known with another body, no more calls are taken, or the
    /// ledger cannot be used.
    pub async fn start(
        &self,
        context: CallContext,
        call: Call,
        effect: &EffectId,
    ) -> Result<StartedCall, Status> {
        let attempt = call.attempt;
        let effect = &Effect::of(context.principal(), effect.clone());
        let handle = self.join(call, context.without_deadline())?;
        let was_in_flight = handle.was_in_flight;
        let result = recorded(handle).await?;
        let entry = self.inner.ledger.look_up(effect, attempt, None).await?;
        Ok(StartedCall {
            entry,
            replayed: was_in_flight || result.as_ref().is_some_and(|result| result.replayed),
            result,
        })
    }

    /// Returns the state in the ledger of an effect of the caller's tenant, by the last of its attempts. A call
    /// that the caller cannot see is absent.
    ///
    /// # Errors
    /// A status when the ledger cannot be read.
    pub async fn find(
        &self,
        context: &CallContext,
        effect: &EffectId,
    ) -> Result<LedgerEntry, Status> {
        let effect = Effect::of(context.principal(), effect.clone());
        self.inner.ledger.find(context, &effect).await
    }

    /// Returns the state of an effect in the ledger, by the last of its attempts, for the registry's own work.
    pub(super) async fn last_of(&self, effect: &Effect) -> Result<LedgerEntry, Status> {
        let ledger = &self.inner.ledger;
        ledger.look_up(effect, call_wire::MAX_ATTEMPTS, None).await
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Returns the ledger, whose calls are listed.
    pub fn ledger(&self) -> &crate::ledger::Ledger {
        &self.inner.ledger
    }
}

impl Inner {
    /// Executes a call that no owner asks for again. If it fails inside the registry once it is recorded,
    /// the registry asks its own ledger for it, as any owner does, so that its entry does not stay open.
    pub(super) async fn see_through(
        &self,
        mut call: Call,
        in_flight: &Arc<InFlightCall>,
        context: CallContext,
    ) -> Result<CallResult, Status> {
        let mut unanswered = Unanswered::new(false);
        loop {
            let work = self.execute_call(call.clone(), in_flight, context.clone());
            let ended = AssertUnwindSafe(work).catch_unwind().await;
            let status = match ended.unwrap_or_else(|_| Err(failed_inside())) {
                Ok(result) => return Ok(result),
                Err(status) => status,
            };
            let asks_again = in_flight.subscribe().borrow().is_recorded
                && !self.draining.is_cancelled()
                && unanswered.end(&status).is_none();
            if !asks_again {
                return Err(status);
            }
            tracing::warn!(status = %status, effect = ?call.effect_id, "a started call failed inside the registry");
            call.is_first = false;
            tokio::select! {
                () = unanswered.wait(&status) => {}
                () = self.draining.cancelled() => return Err(status),
            }
        }
    }
}

/// Waits until a call is in the ledger. Returns its result if it has settled.
pub(super) async fn recorded(handle: CallHandle) -> Result<Option<CallResult>, Status> {
    let index = handle.index;
    let mut stage = handle.in_flight.subscribe();
    let stage = stage.wait_for(|stage| stage.is_recorded || stage.ended.is_some());
    let stage = stage
        .await
        .map_err(|_| Status::internal("the call was lost"))?;
    let result = stage.ended.clone().transpose()?;
    Ok(result.map(|result| CallResult { index, ..result }))
}
