//! Agents of a scene that call each other (rule G901).

use std::sync::Arc;

use agent_domain::{
    event::Hop,
    waits::{OpenTurn, cycle},
};
use agent_store::history::plan_of;
use contracts::tavern::common::v1::ErrorReason;
use core_types::{RunId, RunOwner};
use grpc_kit::{CallContext, Failure};
use tokio::sync::OwnedMutexGuard;
use tonic::Code;

use super::Inner;
use crate::running_scenes::SceneInstance;

impl Inner {
    /// Returns the causes of the events of a turn that another agent of the scene called for: the
    /// chain of that agent's turn.
    pub(super) async fn chain_above(
        &self,
        context: &CallContext,
        to: &SceneInstance,
    ) -> Result<Vec<Hop>, Failure> {
        let above = context.path().steps().iter().rev();
        for run_id in above.filter(|run_id| is_turn(run_id)) {
            let meta = self.runs.meta(context, run_id).await?;
            let place = plan_of(meta)?.scene;
            if let Some(place) = place.filter(|place| place.run_id == to.running.run_id) {
                return Ok(place.chain);
            }
        }
        Ok(Vec::new())
    }

    /// Rejects a turn of an agent of a scene that would wait for a turn that waits for it. Until
    /// the guard is dropped, no other agent of the scene calls.
    ///
    /// # Errors
    /// WAIT_CYCLE, or a storage that does not work.
    pub(super) async fn refuse_cycle(
        &self,
        context: &CallContext,
        to: &SceneInstance,
    ) -> Result<Option<OwnedMutexGuard<()>>, Failure> {
        let above = context.path().steps();
        if !above.iter().any(|run_id| is_turn(run_id)) {
            return Ok(None);
        }
        let guard = Arc::clone(&to.running.asking).lock_owned().await;
        let mut open = Vec::new();
        for (instance_id, conversation_id) in to.agents() {
            let turns = self
                .conversations
                .open_turns(context.tenant(), &conversation_id);
            let turns = turns.await?;
            open.extend(turns.into_iter().map(|(run, meta)| OpenTurn {
                run_id: run.run_id,
                instance_id: instance_id.clone(),
                above: meta.path,
            }));
        }
        match cycle(&open, &to.instance.id, above) {
            None => Ok(Some(guard)),
            Some(agents) => {
                let cycle = agents.join(" -> ");
                let message =
                    format!("the agents would wait for each other: {cycle}; answer without asking");
                let reason = ErrorReason::WaitCycle;
                let failure = Failure::new(Code::FailedPrecondition, reason, message);
                Err(failure.metadata("cycle", cycle))
            }
        }
    }
}

fn is_turn(run_id: &str) -> bool {
    let owner = run_id.parse::<RunId>().map(|run| run.owner());
    owner == Ok(RunOwner::Agent)
}
