//! The key of a run in a request (rule W50).

use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::workflow::v1::{OnConflict, RunConcurrency, StartRunRequest};
use core_types::RunId;
use grpc_kit::{CallContext, Failure};
use tonic::Code;

use workflow_domain::execution::{MAX_KEY_BYTES, MAX_PRIORITY};
use workflow_runner::run_keys::{KeyHeld, KeyOwner, RunKey, RunKeys};

use super::Inner;

/// Checks the key and the priority of a request.
pub(super) fn check(request: &StartRunRequest, problems: &mut Failure) {
    if request.priority > MAX_PRIORITY {
        problems.add_violation("priority", format!("is more than {MAX_PRIORITY}"));
    }
    let Some(concurrency) = &request.concurrency else {
        return;
    };
    if !(1..=MAX_KEY_BYTES).contains(&concurrency.key.len()) {
        let message = format!("has not 1 to {MAX_KEY_BYTES} bytes");
        problems.add_violation("concurrency.key", message);
    }
    if OnConflict::try_from(concurrency.on_conflict).is_err() {
        problems.add_violation("concurrency.on_conflict", "is not a value of the enum");
    }
}

/// Returns the key of a request; empty for none.
pub(super) fn key_of(request: &StartRunRequest) -> String {
    let concurrency = request.concurrency.as_ref();
    concurrency.map_or_else(String::new, |concurrency| concurrency.key.clone())
}

/// Enters a run under its key; returns the runs that it is to end, of those that the call sees.
pub(super) fn enter(
    keys: &RunKeys,
    context: &CallContext,
    concurrency: Option<RunConcurrency>,
) -> Result<(Option<RunKey>, Vec<RunId>), Failure> {
    let Some(concurrency) = concurrency else {
        return Ok((None, Vec::new()));
    };
    let (principal, key) = (context.principal(), &concurrency.key);
    match concurrency.on_conflict() {
        OnConflict::Unspecified | OnConflict::Queue => {
            Ok((Some(keys.enter(principal, key).0), Vec::new()))
        }
        OnConflict::Reject => match keys.enter_alone(principal, key) {
            Ok(key) => Ok((Some(key), Vec::new())),
            Err(KeyHeld(owner)) => Err(held(seen(context, &owner))),
        },
        OnConflict::CancelRunning => {
            let (key, before) = keys.enter(principal, key);
            let before = before.iter().filter_map(|owner| seen(context, owner));
            Ok((Some(key), before.collect()))
        }
    }
}

/// Returns the run that has a key, if the call sees it.
fn seen(context: &CallContext, owner: &KeyOwner) -> Option<RunId> {
    owner.run.filter(|_| context.sees(&owner.principal))
}

fn held(run: Option<RunId>) -> Failure {
    let run_id = run.map(|run| run.to_string()).unwrap_or_default();
    Failure::new(
        Code::FailedPrecondition,
        ErrorReason::ConcurrencyKeyHeld,
        "another run has the concurrency key",
    )
    .metadata("run_id", run_id)
}

impl Inner {
    /// Cancels the runs whose key a new run takes over, the last of them first: a run that waits
    /// for the key must not get it from the run that holds it.
    pub(super) async fn cancel_before(&self, context: &CallContext, runs: Vec<RunId>, by: RunId) {
        let reason = format!("run {by} has the same concurrency key");
        for run in runs.into_iter().rev() {
            if let Err(status) = self.runs.cancel(context, &run.to_string(), &reason).await {
                tracing::warn!(%run, ?status, "a run whose key another takes was not cancelled");
            }
        }
    }
}
