//! Writing a finished turn as the lines of a fixture (rule G1001).

use agent_domain::plan::Plan;
use agent_store::{history::plan_of, store::StateOwner};
use contracts::tavern::common::v1::{ErrorReason, Run, RunEvent, run_event::Kind};
use core_types::RunId;
use grpc_kit::{CallContext, Failure};
use run_events::{RunMeta, no_such_run};
use tonic::{Code, Status};

use super::{
    Runner,
    inventory::{self, InventoryError},
    replay::{Header, Parts, ShownState, StateKind, lines},
};
use crate::error::other_than_turn;

/// A turn that has ended.
pub(crate) struct EndedTurn {
    /// The run.
    pub(crate) id: RunId,
    /// The metadata stored with its log.
    pub(crate) meta: RunMeta,
    /// The plan that it was started with.
    pub(crate) plan: Plan,
    /// Its log, with the events of the runs below it.
    pub(crate) events: Vec<RunEvent>,
}

impl Runner {
    /// Reads a turn that has ended.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, also for a turn in a conversation that the call cannot see, RUN_NOT_FINISHED, INVALID_FIELDS for a run that is not a turn, or a storage that does not
    /// work.
    pub(crate) async fn ended_turn(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<EndedTurn, Status> {
        if let Some(problem) = other_than_turn(run_id) {
            let refused = Failure::invalid_fields().violation("run_id", problem);
            return Err(refused.into());
        }
        let runs = &self.inner.runs;
        let run = runs.get(context, run_id).await?;
        let meta = runs.meta(context, run_id).await?;
        let plan = plan_of(meta.clone()).map_err(Failure::from)?;
        // A turn and its conversation may have different owners. That of an ephemeral turn is not stored.
        let conversations = &self.inner.conversations;
        if !plan.ephemeral
            && conversations
                .seen(context, &meta.conversation_id)
                .await?
                .is_none()
        {
            return Err(no_such_run(run_id).into());
        }
        let id = run_id.parse().expect("the run was found by its id");
        if run.outcome.is_none() {
            return Err(not_finished(&run).into());
        }
        Ok(EndedTurn {
            id,
            meta,
            plan,
            events: runs.events(context, run_id).await?,
        })
    }

    /// Returns the lines of a fixture of a turn that has ended.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, RUN_NOT_FINISHED, or a registry or storage that does not work.
    pub async fn export(&self, context: &CallContext, run_id: &str) -> Result<Vec<String>, Status> {
        let inner = &self.inner;
        let EndedTurn {
            id,
            meta,
            plan,
            events,
        } = self.ended_turn(context, run_id).await?;
        // The tools that the principal of the turn may call, which need not be the caller.
        let mut own =
            CallContext::new(meta.principal.clone(), context.path().clone()).reaching(meta.reach);
        if let Some(deadline) = context.deadline() {
            own = own.with_deadline(deadline);
        }
        let tools = inventory::fetch_tools(inner.peers.tools(&own), &plan).await;
        let tools = tools.map_err(|error| match error {
            InventoryError::Registry(status) => status,
            InventoryError::Unusable(error) => Status::failed_precondition(error.message),
        })?;
        let tenant = meta.principal.tenant();
        let context = inner.conversations.context(
            tenant,
            &meta.conversation_id,
            id,
            inner.history_bytes,
            plan.language,
        );
        let (mut earlier, mut untrusted, mut handle_given) = (Vec::new(), Vec::new(), false);
        for part in context.await? {
            untrusted.extend(part.untrusted);
            handle_given |= part.handle_given;
            if !part.messages.is_empty() {
                earlier.push(part.messages);
            }
        }
        let own = events.iter().filter(|event| event.run_id == run_id);
        let mut states: Vec<ShownState> = Vec::new();
        for kind in own.filter_map(|event| event.kind.as_ref()) {
            let Kind::ModelRequested(asked) = kind else {
                continue;
            };
            let private = StateOwner::agent(tenant, &meta.conversation_id, &meta.subject);
            let world = plan
                .scene
                .as_ref()
                .map(|scene| StateOwner::world(tenant, &scene.run_id));
            let goals = StateOwner::goals(tenant, &meta.conversation_id, &meta.subject);
            for (kind, version, owner) in [
                (StateKind::Private, asked.state_version, Some(private)),
                (StateKind::World, asked.world_version, world),
                (StateKind::Goals, asked.goals_version, Some(goals)),
            ] {
                let known = |state: &ShownState| state.kind == kind && state.version == version;
                let Some(owner) = owner.filter(|_| version > 0 && !states.iter().any(known)) else {
                    continue;
                };
                // A version that is no longer kept leaves the digest of its prompts to differ.
                if let Some(shown) = inner.states.snapshot(owner, Some(version)).await? {
                    states.push(ShownState {
                        kind,
                        version,
                        value: shown.value,
                    });
                }
            }
        }
        let header = Header::new(Parts {
            run_id: run_id.to_owned(),
            plan,
            history_bytes: inner.history_bytes,
            tools,
            handle_given,
            earlier,
            untrusted,
            states,
        });
        Ok(lines(&header, &events))
    }
}

fn not_finished(run: &Run) -> Failure {
    let message = "the turn has not ended; wait for its end or cancel it";
    let reason = ErrorReason::RunNotFinished;
    let failure = Failure::new(Code::FailedPrecondition, reason, message);
    failure.metadata("run_id", run.run_id.clone())
}
