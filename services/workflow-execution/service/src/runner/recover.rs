//! Resumes the runs of the previous process.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1 as common;
use core_types::Tenant;
use futures::FutureExt;
use grpc_kit::Failure;
use run_events::{End, OpenRun, RecordedWaits, Recorder, RunMeta, outcome};
use run_log::Hash;

use crate::error::{Error, store_failure};
use workflow_domain::bundle::Bundle;
use workflow_domain::interface::read_inputs;
use workflow_runner::allowance::Allowance;
use workflow_runner::run_state::RunState;
use workflow_runner::{Prepared, RunEntry};

use super::Inner;
use super::target::{Stored, Target, TargetError, read_hash};

/// The time for which a run rests that was woken while the storage does not work.
const STORAGE_RESTS: Duration = Duration::from_secs(1);

/// A run that cannot continue.
pub(super) enum Unrecoverable {
    /// Its history or its definition cannot be used.
    Broken(common::CallError),
    /// It had been cancelled.
    Cancelled {
        reason: String,
        /// The calls whose outcome is unknown.
        unsettled: Vec<String>,
        /// The calls of which it is not known whether they took effect.
        in_doubt: Vec<String>,
    },
    /// The storage does not work, so it is left open.
    Storage(Failure),
}

/// Continues the runs of all tenants, as a program's own work.
pub(crate) async fn recover(inner: &Arc<Inner>) -> Result<(), Error> {
    let open = inner.runs.open_runs().await;
    let open = open.map_err(|failure| Error::Recover(Box::new(failure.into_status())))?;
    let forgotten = forget_unused_definitions(inner).await;
    if resume_all(inner, open).await.is_err() {
        inner.runs.leave_open();
    }
    let service = Arc::downgrade(inner);
    inner.runs.resume_left_open(move || {
        let service = service.clone();
        async move {
            match service.upgrade() {
                Some(inner) => resume_all(&inner, inner.runs.open_runs().await?).await,
                None => Ok(()),
            }
        }
    });
    forgotten
}

/// Continues runs that are open.
///
/// # Errors
/// The failure of the storage, of the last run that is still open.
async fn resume_all(inner: &Arc<Inner>, mut open: Vec<OpenRun>) -> Result<(), Failure> {
    if !open.is_empty() {
        tracing::info!(runs = open.len(), "resuming runs");
    }
    // Queued runs follow the runs that had begun.
    open.sort_by_key(|run| run.recorder.is_queued());
    let mut left = Ok(());
    for run in open {
        left = resume(inner, run).await.and(left);
    }
    left
}

/// Deletes the definitions that no run of any tenant needs any more.
async fn forget_unused_definitions(inner: &Inner) -> Result<(), Error> {
    // Of runs that rest only the metadata is read.
    let used = inner
        .runs
        .metas_of_open_runs(|meta| {
            let hash = definition_of(meta)?;
            Some((meta.principal.tenant(), hash))
        })
        .await;
    let used: HashSet<(Tenant, Hash)> =
        used.map_err(|failure| Error::Recover(Box::new(failure.into_status())))?;
    let forgotten = inner.definitions.forget_unused(used).await?;
    if forgotten > 0 {
        tracing::info!(forgotten, "forgot definitions that no run needs");
    }
    Ok(())
}

/// Lets resting runs continue when they are woken.
pub(crate) fn resume_what_rests(inner: &Arc<Inner>) {
    let service = Arc::downgrade(inner);
    inner.runs.resume_with(move |run| {
        let service = service.clone();
        let resumed = async move {
            let Some(inner) = service.upgrade() else {
                return;
            };
            let recorder = run.recorder.clone();
            if resume(&inner, run).await.is_ok() {
                return;
            }
            let later = inner.clock.now().plus(STORAGE_RESTS);
            if let Err(failure) = inner.runs.rest_until(&recorder, later).await {
                tracing::error!(run = %recorder.run_id(), ?failure, "a run that was woken is left open");
                inner.runs.leave_open();
            }
        };
        resumed.boxed()
    });
}

/// Returns the digest of the definition that is stored for a run.
pub(super) fn definition_of(meta: &RunMeta) -> Option<Hash> {
    match serde_json::from_value(meta.data.clone()).ok()? {
        Stored::Definition(hash) | Stored::Bundle(hash) => read_hash(&hash),
        Stored::Node(_) => None,
    }
}

/// Continues a run.
///
/// # Errors
/// The storage does not work.
async fn resume(inner: &Arc<Inner>, run: OpenRun) -> Result<(), Failure> {
    let recorder = run.recorder.clone();
    let span = telemetry::spans::invoke_workflow(&run.meta.subject);
    if let Some(parent) = telemetry::context::parse_traceparent(&run.meta.traceparent) {
        telemetry::context::set_parent(&span, &parent);
    }
    let entry = entry_of(inner, &run);
    let recorded = RecordedWaits::of(&recorder.run_id().to_string(), &run.events);
    match prepare(inner, run).await {
        Ok(prepared) => {
            let place = match recorder.is_queued() {
                true => inner.places.enter_again(entry),
                false => inner.places.resume(entry),
            };
            inner.execute(&span, recorder, prepared, recorded, place);
        }
        Err(Unrecoverable::Broken(error)) => {
            tracing::error!(run = %recorder.run_id(), code = error.code, message = error.message, "a run cannot continue");
            span.in_scope(|| {
                inner.runs.execute(recorder, |_| async {
                    End::Finished(outcome::failed(error))
                });
            });
        }
        Err(Unrecoverable::Cancelled {
            reason,
            unsettled,
            in_doubt,
        }) => span.in_scope(|| end_cancelled(inner, recorder, reason, unsettled, in_doubt)),
        Err(Unrecoverable::Storage(failure)) => {
            tracing::error!(run = %recorder.run_id(), ?failure, "a run cannot continue now");
            return Err(failure);
        }
    }
    Ok(())
}

/// Returns the data that decide on a run's place in the queue.
fn entry_of(inner: &Inner, run: &OpenRun) -> RunEntry {
    let key = Some(&run.started.concurrency_key).filter(|key| !key.is_empty());
    let principal = &run.meta.principal;
    RunEntry {
        tenant: principal.tenant(),
        depth: run.recorder.path().len(),
        since: run.created,
        priority: run.started.priority,
        key: key.map(|key| {
            let (mut key, _) = inner.keys.enter(principal, key);
            key.set_run(run.recorder.run_id());
            key
        }),
    }
}

async fn prepare(inner: &Inner, run: OpenRun) -> Result<Prepared, Unrecoverable> {
    let tenant = run.meta.principal.tenant();
    let target = find_target(inner, &run.meta).await?;
    let given = read_inputs(&run.started.input_json).map_err(TargetError::Inputs);
    let planned = match given {
        Ok(given) => target.plan(&inner.library, tenant, given).await,
        Err(wrong) => Err(wrong),
    };
    let (plan, inputs) = planned.map_err(|wrong| Unrecoverable::Broken(wrong.into_error()))?;
    let run_id = run.recorder.run_id().to_string();
    let state = RunState::replay(plan, inputs, &run_id, &run.events).map_err(|error| {
        let message = grpc_kit::failure::chain(&error);
        Unrecoverable::Broken(outcome::error(
            common::ErrorCategory::Internal,
            "history_diverged",
            message,
        ))
    })?;
    if let Some(reason) = state.cancelled() {
        let unsettled = state.unsettled();
        return Err(Unrecoverable::Cancelled {
            unsettled: unsettled
                .map(|(_, effect_id)| effect_id.to_owned())
                .collect(),
            in_doubt: state.in_doubt().map(str::to_owned).collect(),
            reason: reason.to_owned(),
        });
    }
    let allowance = Arc::new(Allowance::of(&run_id, &run.events));
    let RunMeta {
        conversation_id,
        subject,
        ..
    } = run.meta;
    Ok(Prepared {
        state,
        allowance,
        conversation_id,
        workflow_id: subject,
    })
}

/// Finds the target of a run.
pub(super) async fn find_target(inner: &Inner, meta: &RunMeta) -> Result<Target, Unrecoverable> {
    let lost = |message: &str| {
        Unrecoverable::Broken(outcome::error(
            common::ErrorCategory::Internal,
            "definition_lost",
            message,
        ))
    };
    match serde_json::from_value(meta.data.clone()) {
        Ok(Stored::Node(node)) => Ok(Target::Node(node)),
        Ok(stored @ (Stored::Definition(_) | Stored::Bundle(_))) => {
            let hash = definition_of(meta)
                .ok_or_else(|| lost("the digest of the definition is damaged"))?;
            let text = inner.definitions.get(meta.principal.tenant(), &hash).await;
            let text = text.map_err(|error| Unrecoverable::Storage(store_failure(&error)))?;
            let text = text.ok_or_else(|| lost("the definition of the run is gone"))?;
            let bundle = match stored {
                Stored::Bundle(_) => Bundle::from_text(&text),
                _ => Some(Bundle::of(text)),
            };
            bundle
                .map(Target::Definition)
                .ok_or_else(|| lost("the definition of the run is damaged"))
        }
        Err(_) => Err(lost("what was stored beside the run cannot be read")),
    }
}

/// Ends a run that had been cancelled before the process ended.
fn end_cancelled(
    inner: &Arc<Inner>,
    recorder: Recorder,
    reason: String,
    unsettled: Vec<String>,
    in_doubt: Vec<String>,
) {
    let for_run = Arc::clone(inner);
    inner.runs.execute(recorder, move |control| async move {
        let (calls, context) = (for_run.runner.calls(), control.call_context());
        let mut left = calls.cancel_all(unsettled, &reason, &context).await;
        left.extend(in_doubt);
        End::Finished(outcome::stopped(
            &run_events::CancelReason::Requested(reason),
            left,
        ))
    });
}
