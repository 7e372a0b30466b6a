//! Forking turns (rule G1003).

use agent_domain::{
    plan::Plan,
    scene::conversation::{conversation_of_fork, copied_world},
};
use agent_store::store::{NamedRequest, StateOwner};
use contracts::tavern::common::v1::{ErrorReason, Run, RunEvent, RunOptions, run_event::Kind};
use core_types::{Tenant, Timestamp};
use grpc_kit::{CallContext, Failure};
use run_client::settle_decided;
use run_events::{StartRun, Started, to_its_end};
use tonic::{Code, Status};

use super::{Turns, run_of};
use crate::error::run_lost;
use turn_log::fork::{Edit, ForkError, fork};

/// The scope of the request ids of forks.
const SCOPE: &str = "tavern.agent.v1.AgentService/ForkTurn";

/// A turn to fork.
#[derive(Debug)]
pub struct NewFork {
    /// The turn.
    pub run_id: String,
    /// The event.
    pub sequence: u64,
    /// The edit.
    pub edit: Option<Edit>,
    /// The name of the fork's conversation, without its prefix: always the same for a named
    /// request.
    pub key: String,
    /// The caller's name for the request; empty if it is never repeated.
    pub request_id: String,
    /// The digest of the request.
    pub body_hash: run_log::Hash,
    /// Durability and time.
    pub options: Option<RunOptions>,
}

/// The states that are copied from one conversation to another.
struct Copies<'a> {
    tenant: Tenant,
    from: &'a str,
    to: &'a str,
    profile_id: &'a str,
    /// The world states.
    worlds: Option<(&'a str, &'a str)>,
}

impl Turns {
    /// Starts a turn that continues another one, or finds the turn that the same request started.
    /// Returns its run, and whether the request was seen before.
    ///
    /// # Errors
    /// The reason for which it cannot be forked, REQUEST_ID_REUSED, OVERLOADED, or a storage that
    /// does not work.
    pub async fn fork(&self, context: CallContext, new: NewFork) -> Result<(Run, bool), Status> {
        let turns = self.clone();
        to_its_end(async move { turns.begin_fork(&context, new).await }).await
    }

    async fn begin_fork(&self, context: &CallContext, new: NewFork) -> Result<(Run, bool), Status> {
        let inner = &self.inner;
        let seen = inner
            .runs
            .started_before(context, SCOPE, &new.request_id, new.body_hash);
        if let Some(run) = seen.await? {
            return Ok((run, true));
        }
        let turn = inner.runner.ended_turn(context, &new.run_id).await?;
        if turn.plan.compact {
            let problem = "only replaced earlier turns by a summary; name a turn that an agent had";
            return Err(Failure::invalid_fields()
                .violation("run_id", problem)
                .into());
        }
        let mut events = turn.events;
        settle_decided(&new.run_id, &mut events, inner.runner.calls(), context).await?;
        let own = events
            .into_iter()
            .filter(|event| event.run_id == new.run_id);
        let own: Vec<RunEvent> = own.collect();
        let beginning = fork(&own, new.sequence, new.edit.as_ref());
        let beginning = beginning.map_err(|error| refused(&new.run_id, &error))?;
        let (plan, conversation_id) = plan_of(&turn.plan, &new.key);
        inner.check_model(&plan)?;
        let room = inner.runner.admit(context.tenant()).await?;
        if !plan.ephemeral {
            let from = turn.meta.conversation_id.as_str();
            let request = (!new.request_id.is_empty()).then(|| NamedRequest {
                id: new.request_id.clone(),
                body: new.body_hash,
            });
            let branched = inner.conversations.branch_before(
                context,
                from,
                turn.id,
                &conversation_id,
                request,
            );
            branched.await?;
            let worlds = turn.plan.scene.as_ref().zip(plan.scene.as_ref());
            let copies = Copies {
                tenant: context.tenant(),
                from,
                to: &conversation_id,
                profile_id: &turn.meta.subject,
                worlds: worlds.map(|(from, to)| (from.run_id.as_str(), to.run_id.as_str())),
            };
            self.copy_states(&copies, beginning.time, &beginning.first_events)
                .await?;
        }
        let start = StartRun {
            subject: turn.meta.subject,
            conversation_id,
            request_id: new.request_id,
            scope: SCOPE,
            body_hash: new.body_hash,
            input_json: beginning.input_json,
            input_is_model_text: beginning.input_is_model_text,
            options: new.options,
            first_events: beginning.first_events,
            forks: Some(turn.id),
            ..run_of(&plan)
        };
        match inner.runs.start(context, start).await? {
            Started::Replayed(run) => Ok((run, true)),
            Started::New(recorder, meta) => {
                let run_id = recorder.run_id().to_string();
                inner.runner.start_fork(recorder, meta, room).await?;
                let run = inner.runs.get(context, &run_id).await;
                Ok((run.map_err(|_| run_lost(&run_id))?, false))
            }
        }
    }

    /// Copies the states of a time, and the versions that the requests taken over showed.
    async fn copy_states(
        &self,
        copies: &Copies<'_>,
        time: Timestamp,
        taken: &[Kind],
    ) -> Result<(), Failure> {
        let asked = taken.iter().filter_map(|kind| match kind {
            Kind::ModelRequested(asked) => Some(asked),
            _ => None,
        });
        let shown = |version: fn(&contracts::tavern::common::v1::ModelRequested) -> u64| {
            let mut versions: Vec<u64> = asked.clone().map(version).collect();
            versions.dedup();
            versions
        };
        let Copies {
            tenant,
            from,
            to,
            profile_id,
            worlds,
        } = *copies;
        let states = self.inner.runner.states();
        let (own, copy) = (
            StateOwner::agent(tenant, from, profile_id),
            StateOwner::agent(tenant, to, profile_id),
        );
        let versions = shown(|asked| asked.state_version);
        states.copy(&own, &copy, time, &versions).await?;
        let (own, copy) = (
            StateOwner::goals(tenant, from, profile_id),
            StateOwner::goals(tenant, to, profile_id),
        );
        let versions = shown(|asked| asked.goals_version);
        states.copy(&own, &copy, time, &versions).await?;
        if let Some((from, to)) = worlds {
            let (world, copy) = (
                StateOwner::world(tenant, from),
                StateOwner::world(tenant, to),
            );
            let versions = shown(|asked| asked.world_version);
            states.copy(&world, &copy, time, &versions).await?;
        }
        Ok(())
    }
}

/// Returns the plan of a fork and its conversation. The fork is in no scene, but has a copy of the
/// world state.
fn plan_of(original: &Plan, key: &str) -> (Plan, String) {
    let mut plan = original.clone();
    let Some(scene) = &mut plan.scene else {
        return (plan, format!("conv_{key}"));
    };
    let conversation_id = conversation_of_fork(key, &scene.instance_id);
    let copy = copied_world(&conversation_id)
        .unwrap_or_default()
        .to_owned();
    let world = std::mem::replace(&mut scene.run_id, copy);
    scene.copy_of.get_or_insert(world);
    scene.agents.clear();
    (plan, conversation_id)
}

fn refused(run_id: &str, error: &ForkError) -> Failure {
    let problem = error.to_string();
    match error {
        ForkError::NotForkable(_) => Failure::invalid_fields().violation("sequence", problem),
        ForkError::WrongEdit(_) => Failure::invalid_fields().violation("edit", problem),
        ForkError::InDoubt(effects) => {
            let message = format!(
                "{problem}; fork at the result of such a call and say what it is, or edit the answer"
            );
            Failure::new(Code::FailedPrecondition, ErrorReason::CallsInDoubt, message)
                .metadata("run_id", run_id)
                .metadata("effect_ids", effects.join(","))
        }
        ForkError::TooLarge { .. } => {
            let message = format!("{problem}; fork at an earlier event");
            Failure::new(Code::ResourceExhausted, ErrorReason::LimitExceeded, message)
        }
    }
}
