//! A run of the log as a resource of the contract.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, ErrorReason};
use grpc_kit::Failure;
use run_log::{RunState, RunSummary};

use crate::codec::{decode, durability_to_proto, timestamp_to_proto};
use crate::failure::{damaged, read_failure};
use crate::phase;
use crate::store::RunStore;

impl RunStore {
    /// Makes the resource of a run of a list; none if it was deleted since it was listed.
    pub(crate) async fn listed(&self, summary: RunSummary) -> Result<Option<common::Run>, Failure> {
        match self.resource(summary).await {
            Ok(run) => Ok(Some(run)),
            Err(failure) if failure.reason() == ErrorReason::RunNotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Makes the resource of a run, its outcome read from its last event.
    pub(crate) async fn resource(&self, summary: RunSummary) -> Result<common::Run, Failure> {
        let outcome = self.outcome_of(&summary).await?;
        let (state, wait_reason) = match summary.state {
            RunState::Open => (
                phase::state_in(summary.phase).into(),
                phase::wait_reason_in(summary.phase),
            ),
            RunState::Finished(code) => (code, common::WaitReason::Unspecified),
        };
        Ok(common::Run {
            run_id: summary.id.to_string(),
            state,
            request_id: summary
                .request
                .map(|key| key.request_id.to_string())
                .unwrap_or_default(),
            subject: summary.subject,
            conversation_id: summary.conversation,
            create_time: Some(timestamp_to_proto(summary.created)),
            finish_time: summary.finished.map(timestamp_to_proto),
            deadline: summary.deadline.map(timestamp_to_proto),
            durability: durability_to_proto(summary.durability).into(),
            outcome,
            last_sequence: summary.last_sequence,
            wait_reason: wait_reason.into(),
            principal: summary.owner.to_string(),
        })
    }

    async fn outcome_of(
        &self,
        summary: &RunSummary,
    ) -> Result<Option<common::RunOutcome>, Failure> {
        let (RunState::Finished(_), Some(before)) =
            (summary.state, summary.last_sequence.checked_sub(1))
        else {
            return Ok(None);
        };
        let last = self.logs.read(summary.id, before, 1).await;
        let last = last.map_err(|error| read_failure(&error, &summary.id.to_string()))?;
        let Some(stored) = last.first() else {
            return Ok(None);
        };
        match decode(stored).map_err(|error| damaged(&error))?.kind {
            Some(Kind::RunFinished(finished)) => Ok(finished.outcome),
            _ => Ok(None),
        }
    }
}
