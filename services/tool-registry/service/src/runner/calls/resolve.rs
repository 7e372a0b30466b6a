//! Deciding about calls in doubt.

use contracts::tavern::{
    common::v1::{CallError, CallResult, CallStatus, ErrorCategory, ErrorReason, RunState},
    registry::v1::{CallDecision, CallResolution},
};
use core_types::{CallPath, EffectId, RunId, RunOwner};
use grpc_kit::{CallContext, Failure};
use run_log::Hash;
use tonic::{Code, Status};

use super::{
    CallHandle, Calls,
    detached::recorded,
    recover::{call_of, caller_below, caller_of},
};
use crate::ledger::{Effect, Entry, LedgerEntry, Settled};

/// A decision about a call in doubt.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The decision with its reason and request id.
    pub resolution: CallResolution,
    /// The output of a call that took effect, as JSON.
    pub output_json: String,
    /// The digest of the request.
    pub body: Hash,
}

/// A call that was decided, now or before.
#[derive(Debug)]
pub struct DecidedCall {
    /// Its state in the ledger.
    pub entry: LedgerEntry,
    /// Whether the same request decided it before.
    pub replayed: bool,
}

impl Calls {
    /// Records a decision about a call in doubt, and dispatches the call again if so decided.
    ///
    /// # Errors
    /// A status when there is no such call, it is not in doubt, or the ledger cannot be used.
    pub async fn resolve(
        &self,
        context: &CallContext,
        effect: &EffectId,
        decision: &Decision,
    ) -> Result<DecidedCall, Status> {
        let effect = &Effect::of(context.principal(), effect.clone());
        let found = self.inner.ledger.find(context, effect).await?;
        if !matches!(found, LedgerEntry::Absent)
            && let Some(replayed) = self.decided_before(effect, decision).await?
        {
            return Ok(replayed);
        }
        let doubtful = match found {
            LedgerEntry::Absent => return Err(refusal_of_missing(effect.as_str())),
            LedgerEntry::InFlight(_) => return Err(not_in_doubt(effect, "RUNNING")),
            LedgerEntry::Settled(settled) => settled,
        };
        if doubtful.result.status() != CallStatus::InDoubt {
            let state = doubtful.result.status().as_str_name();
            return Err(not_in_doubt(
                effect,
                state.trim_start_matches("CALL_STATUS_"),
            ));
        }
        if decision.resolution.decision() == CallDecision::Repeat {
            check_attempts(&doubtful)?;
            self.check_run(effect, &doubtful.entry).await?;
        }
        let result = result_of(&doubtful.result, decision);
        let writer = self
            .inner
            .ledger
            .begin_resolution(&doubtful, &decision.resolution, decision.body, &result)
            .await?;
        let Some(writer) = writer else {
            // Another request was faster; it may have been the same one.
            let before = self.decided_before(effect, decision).await?;
            return before.ok_or_else(|| not_in_doubt(effect, "RESOLVED"));
        };
        if decision.resolution.decision() == CallDecision::Repeat {
            self.repeat(effect, doubtful.entry.record.attempt).await?;
        }
        self.inner.was_decided(effect);
        let ledger = &self.inner.ledger;
        ledger
            .finish_resolution(&writer, &decision.resolution, &result)
            .await?;
        Ok(DecidedCall {
            entry: self.last_of(effect).await?,
            replayed: false,
        })
    }

    /// Continues a decision that a crash cut off.
    pub(super) async fn continue_decision(&self, decided: &Settled) -> Result<(), Status> {
        let effect = decided.entry.effect()?;
        let resolution = decided.resolution.clone().unwrap_or_default();
        if resolution.decision() == CallDecision::Repeat {
            self.repeat(&effect, decided.entry.record.attempt).await?;
        }
        let writer = self.inner.ledger.reopen(&decided.entry).await?;
        let ledger = &self.inner.ledger;
        ledger
            .finish_resolution(&writer, &resolution, &decided.result)
            .await?;
        self.inner.was_decided(&effect);
        Ok(())
    }

    /// Dispatches the next attempt of a call that is to be repeated, unless that was done before.
    async fn repeat(&self, effect: &Effect, attempt: u32) -> Result<(), Status> {
        let path = self.inner.waits_below(effect);
        let handle = self
            .join_attempt(effect, attempt, attempt + 1, path)
            .await?;
        recorded(handle).await.map(drop)
    }

    /// Joins an attempt at an effect, which is dispatched as the `earlier` one was unless it is on record. `path`
    /// are the runs above it, where a follower names them.
    pub(super) async fn join_attempt(
        &self,
        effect: &Effect,
        earlier: u32,
        attempt: u32,
        path: Option<CallPath>,
    ) -> Result<CallHandle, Status> {
        let original = self.inner.ledger.attempt(effect, earlier).await?;
        let original = original.ok_or_else(|| refusal_of_missing(effect.as_str()))?;
        let context = match path {
            Some(path) => caller_below(&original, path),
            None => caller_of(&original),
        };
        self.join(call_of(&original, attempt)?, context)
    }

    /// Refuses to repeat a call whose run has ended with it.
    async fn check_run(&self, effect: &Effect, entry: &Entry) -> Result<(), Status> {
        let run_id = entry.record.run_id.as_str();
        if run_id.is_empty() || self.inner.waits_below(effect).is_some() {
            return Ok(());
        }
        // A run that does not wait for the decision here has ended, or asks for its calls again soon.
        let owner = run_id.parse().map(|run: RunId| run.owner());
        let found = match owner {
            Ok(RunOwner::Registry) => self.inner.runs.get(&caller_of(entry), run_id).await,
            _ => {
                let runs = &self.inner.dispatcher.runs;
                runs.run(run_id, &caller_of(entry)).get().await
            }
        };
        let state = match found {
            Ok(run) if run.outcome.is_none() => return Ok(()),
            Ok(run) => run.state(),
            // Its log was deleted, which only that of a run can be that has ended.
            Err(status) if status.code() == Code::NotFound => RunState::InDoubt,
            Err(status) => return Err(status),
        };
        let state = state.as_str_name().trim_start_matches("RUN_STATE_");
        let message = "the run that made the call has ended, so the call is not repeated; \
                       decide whether it took effect";
        Err(
            Failure::new(Code::FailedPrecondition, ErrorReason::RunFinished, message)
                .metadata("run_id", run_id)
                .metadata("state", state)
                .into_status(),
        )
    }

    async fn decided_before(
        &self,
        effect: &Effect,
        decision: &Decision,
    ) -> Result<Option<DecidedCall>, Status> {
        let request_id = &decision.resolution.request_id;
        if request_id.is_empty() {
            return Ok(None);
        }
        let ledger = &self.inner.ledger;
        let Some(decided) = ledger.resolution_of(effect, request_id).await? else {
            return Ok(None);
        };
        if decided.entry.body() != Some(decision.body) {
            let message = "the request id was used before with another body; use a new one";
            return Err(
                Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
                    .metadata("request_id", request_id)
                    .into_status(),
            );
        }
        Ok(Some(DecidedCall {
            entry: self.last_of(effect).await?,
            replayed: true,
        }))
    }
}

/// Refuses to repeat a call that has no attempt left.
fn check_attempts(doubtful: &Settled) -> Result<(), Status> {
    let attempt = doubtful.entry.record.attempt;
    if attempt < call_wire::MAX_ATTEMPTS {
        return Ok(());
    }
    let most = call_wire::MAX_ATTEMPTS as usize;
    Err(Failure::limit_exceeded("attempt", most, attempt as usize + 1).into_status())
}

/// Returns the result that follows from a decision.
fn result_of(doubtful: &CallResult, decision: &Decision) -> CallResult {
    let failed = |code: &str, message: String| {
        let error = CallError {
            category: ErrorCategory::Domain.into(),
            code: code.to_owned(),
            message,
            retryable: true,
            ..CallError::default()
        };
        let mut result = CallResult {
            status: CallStatus::Failed.into(),
            error: Some(error),
            ..doubtful.clone()
        };
        result.next_attempt = call_wire::next_attempt(&result);
        result
    };
    let tool = &doubtful.tool_id;
    match decision.resolution.decision() {
        CallDecision::TookEffect => CallResult {
            status: CallStatus::Succeeded.into(),
            output_json: decision.output_json.clone(),
            error: None,
            ..doubtful.clone()
        },
        CallDecision::Repeat => failed(
            "repeat_decided",
            format!("whether {tool} took effect was not known; it is called again"),
        ),
        CallDecision::DidNot | CallDecision::Unspecified => failed(
            "took_no_effect",
            format!("{tool} took no effect, as was decided afterwards; it may be called again"),
        ),
    }
}

/// Returns the status for an effect id that no call has.
pub fn refusal_of_missing(effect_id: &str) -> Status {
    let shown: String = effect_id.chars().take(256).collect();
    let message = format!("no call has the effect id `{shown}`");
    Failure::new(Code::NotFound, ErrorReason::CallNotFound, message)
        .metadata("effect_id", shown)
        .into_status()
}

fn not_in_doubt(effect: &Effect, state: &str) -> Status {
    let message = "the call is not in doubt; there is nothing to decide";
    Failure::new(
        Code::FailedPrecondition,
        ErrorReason::CallNotInDoubt,
        message,
    )
    .metadata("effect_id", effect.as_str())
    .metadata("state", state)
    .into_status()
}
