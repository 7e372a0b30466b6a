//! Decisions about calls in doubt.
//!
//! The entry of the call stays as it is. A decision is an entry beside it, with the same dispatch,
//! the decision and the result that follows from it; at most one is created per attempt.

use contracts::tavern::{
    common::v1::{CallResult, CallSettled, run_event::Kind},
    registry::v1::CallResolution,
};
use core_types::RunOwner;
use run_log::{CreateError, Created, Hash, NewEvent, NewRun, RequestKey, RunWriter};
use tonic::Status;

use super::{Effect, Ledger, LedgerEntry, Settled, codec, encode, request_id_of, storage_failure};

const SCOPE: &str = "resolution";
const KIND: &str = "resolution";

/// Returns the scope under which the decision about an attempt is unique.
pub(super) fn scope_of(attempt: u32) -> String {
    format!("{SCOPE}#{attempt}")
}

impl Ledger {
    /// Records a decision, durably, and returns the writer that finishes it; none if the attempt
    /// was decided at the same time by another request.
    ///
    /// # Errors
    /// A failure when it cannot be recorded.
    pub async fn begin_resolution(
        &self,
        doubtful: &Settled,
        resolution: &CallResolution,
        body: Hash,
        result: &CallResult,
    ) -> Result<Option<RunWriter>, Status> {
        let now = self.clock.now();
        let (summary, record) = (&doubtful.entry.summary, &doubtful.entry.record);
        let mut run = NewRun::new(self.ids.next_run(RunOwner::Registry), KIND, now);
        run.owner = summary.owner.clone();
        run.subject.clone_from(&summary.subject);
        run.conversation.clone_from(&summary.conversation);
        run.parent = summary.parent;
        run.durability = summary.durability;
        run.meta = summary.meta.clone();
        let effect = doubtful.entry.effect()?;
        run.request = Some(RequestKey {
            scope: scope_of(record.attempt),
            request_id: request_id_of(&effect)?,
            body_hash: body,
        });
        let stored = self.events(summary).await?;
        // The last event is the result that the decision replaces.
        let kept = stored.len().saturating_sub(1);
        let mut events: Vec<NewEvent> = stored
            .into_iter()
            .take(kept)
            .map(|event| NewEvent::new(event.time, event.kind, event.payload))
            .collect();
        events.push(self.resolution_event(resolution));
        let settled = Kind::CallSettled(CallSettled {
            result: Some(result.clone()),
        });
        events.push(encode(&self.event(settled), now));
        match self.logs.create(run, events).await {
            Ok(Created::New(writer)) => Ok(Some(writer)),
            Ok(Created::Replayed(_)) | Err(CreateError::RequestIdConflict { .. }) => Ok(None),
            Err(CreateError::Storage(error)) => Err(storage_failure(&error)),
            Err(error) => Err(grpc_kit::internal(&error)),
        }
    }

    /// Ends the entry of a decision, once everything that follows from it is on its way.
    ///
    /// # Errors
    /// A failure when it cannot be recorded; it is repeated after a restart then.
    pub async fn finish_resolution(
        &self,
        writer: &RunWriter,
        resolution: &CallResolution,
        result: &CallResult,
    ) -> Result<(), Status> {
        self.finish(writer, result.status, self.resolution_event(resolution))
            .await
    }

    /// Returns the decision about an effect that a request with this id made.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn resolution_of(
        &self,
        effect: &Effect,
        request_id: &str,
    ) -> Result<Option<Box<Settled>>, Status> {
        let key = request_id_of(effect)?;
        for attempt in 1..=call_wire::MAX_ATTEMPTS {
            let scope = scope_of(attempt);
            let found = self.by_request(effect.tenant(), &scope, &key);
            let Some(summary) = found.await? else {
                continue;
            };
            if let LedgerEntry::Settled(settled) = self.read(summary).await?
                && let Some(resolution) = &settled.resolution
                && resolution.request_id == request_id
            {
                return Ok(Some(settled));
            }
        }
        Ok(None)
    }

    fn resolution_event(&self, resolution: &CallResolution) -> NewEvent {
        codec::encode_resolution(resolution, self.clock.now())
    }
}
