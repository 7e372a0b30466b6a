//! The turns of the agents of a scene.

use std::sync::Arc;

use agent_domain::{
    event::{Event, Hop},
    plan::{Opening, Sampling, TurnInput},
    scene::conversation::conversation_of,
};
use contracts::tavern::common::v1::{
    self as common, ErrorReason, EventsHandled, EventsTaken, RunState, run_event::Kind,
};
use core_types::RequestId;
use grpc_kit::{Backoff, FailureClass};
use run_client::ChildRun;
use run_events::{Recorder, RunControl};
use serde_json::Value;
use tokio::time::Instant;
use tonic::Status;
use tracing::Instrument;

use super::{
    Inner,
    actor::{Actor, Done, SceneStop},
    follow_below,
    replay::Taken,
};
use crate::runner::turns::NewTurn;

/// The scope of the request ids of these turns.
const SCOPE: &str = "tavern.agent.v1.SceneService/turn";

/// A turn of an agent, from its start to its end.
struct AgentTurn {
    shared: Arc<Inner>,
    recorder: Recorder,
    control: RunControl,
    taken: Taken,
}

impl Actor {
    /// Starts turns of all idle agents with the events that wait for them (rule G407).
    pub(super) async fn begin_turns(&mut self) -> Result<(), SceneStop> {
        let starts = self.scene.workflows.iter();
        let has_started = starts
            .filter(|workflow| workflow.moment == agent_domain::scene::WorkflowTrigger::Start)
            .all(|start| !self.state.workflows.iter().any(|due| due.key == start.key));
        if !has_started || self.state.is_ending {
            return Ok(());
        }
        loop {
            let control = self.control.clone();
            let Some(_not_paused) = control.admit_start().await else {
                return Ok(());
            };
            let now = self.shared.clock.now();
            let Some((instance_id, events)) = self.state.channel.next(now) else {
                return Ok(());
            };
            let run_id = self.recorder.run_id().to_string();
            let taken = EventsTaken {
                instance_id: instance_id.to_owned(),
                conversation_id: conversation_of(&run_id, instance_id),
                event_ids: events.iter().map(|event| event.id.clone()).collect(),
                request_id: format!("{run_id}/{}", self.state.turns + 1),
            };
            let instance_id = taken.instance_id.clone();
            self.record(vec![Kind::EventsTaken(taken)]).await?;
            if let Some(taken) = self.state.taken.get(&instance_id).cloned() {
                self.spawn_turn(taken);
            }
        }
    }

    /// Cancels the turns of the process before this one.
    pub(super) async fn cancel_taken(&self) {
        for taken in self.state.taken.values() {
            let Ok(request_id) = RequestId::new(taken.request_id.as_str()) else {
                continue;
            };
            if let Some(run) = self.started(&request_id).await {
                self.cancel(&run.run_id, "the scene was cancelled").await;
            }
        }
    }

    /// Returns the turn that a request started; it must not continue only because the storage did
    /// not answer.
    async fn started(&self, request_id: &RequestId) -> Option<common::Run> {
        let mut backoff = Backoff::default();
        loop {
            let scene = self.control.call_context();
            let found = self.shared.runs.by_request(&scene, SCOPE, request_id).await;
            let status = match found {
                Ok(found) => return found,
                Err(failure) => failure.into_status(),
            };
            let error = status.message();
            tracing::error!(error, "the turn of an agent of a scene cannot be looked up");
            if FailureClass::of(&status) != FailureClass::Transient {
                return None;
            }
            tokio::time::sleep(backoff.after(&status)).await;
        }
    }

    /// Starts the turn of an agent that took events, or follows the started one.
    pub(super) fn spawn_turn(&mut self, taken: Taken) {
        let turn = AgentTurn {
            shared: Arc::clone(&self.shared),
            recorder: self.recorder.clone(),
            control: self.control.clone(),
            taken,
        };
        let work = async move { Done::Turn(turn.run().await) };
        self.tasks.spawn(work.instrument(tracing::Span::current()));
    }
}

impl AgentTurn {
    async fn run(self) -> EventsHandled {
        let mut handled = EventsHandled {
            instance_id: self.taken.instance_id.clone(),
            state: RunState::Failed.into(),
            ..EventsHandled::default()
        };
        let mut backoff = Backoff::default();
        loop {
            let status = match self.start().await {
                Ok(run_id) => {
                    let run = ChildRun::of(&self.shared.own, &self.control.call_context(), &run_id);
                    let deadline = Instant::now() + self.recorder.remaining();
                    match follow_below(&run, &self.recorder, &self.control, deadline).await {
                        Ok(ended) => handled.state = ended.state().into(),
                        Err(status) => handled.error = status.message().to_owned(),
                    }
                    handled.run_id = run_id;
                    return handled;
                }
                Err(status) => status,
            };
            let is_busy = grpc_kit::reason(&status) == Some(ErrorReason::ConversationBusy);
            if !is_busy && FailureClass::of(&status) != FailureClass::Transient {
                let error = status.message().to_owned();
                let agent = &self.taken.instance_id;
                tracing::warn!(agent, error, "the turn of an agent of a scene cannot start");
                handled.error = error;
                return handled;
            }
            // Callers' own turns come first, and too many turns wait.
            tokio::time::sleep(backoff.after(&status)).await;
        }
    }

    async fn start(&self) -> Result<String, Status> {
        let run_id = self.recorder.run_id().to_string();
        let conversation_id = conversation_of(&run_id, &self.taken.instance_id);
        let gone = || Status::failed_precondition("the agent is not in the scene");
        let context = self.control.call_context();
        let scenes = &self.shared.running_scenes;
        let known = scenes.instance(&context, &conversation_id);
        let known = known.ok_or_else(gone)?;
        let events = &self.taken.events;
        let chain = chain(events, &self.taken.instance_id);
        let opening = Opening::Events(events.iter().map(Event::to_json).collect::<Vec<Value>>());
        let turn = NewTurn {
            profile_id: known.instance.profile_id.clone(),
            input: TurnInput {
                history: Vec::new(),
                opening,
            },
            scene: Some(known.turn(chain)),
            conversation_id,
            ephemeral: false,
            budgets: agent_domain::budgets::Limits::default(),
            compact: false,
            granted: agent_domain::budgets::Limits::default(),
            sampling: Sampling::default(),
            dialect: None,
            body_hash: run_log::Hash::of(self.taken.request_id.as_bytes()),
            request_id: self.taken.request_id.clone(),
            scope: SCOPE,
            options: None,
            refuse_if_busy: false,
        };
        let started = self.shared.turns.start(&context, turn).await?;
        Ok(started.run.run_id)
    }
}

/// Returns the causes of the events of an agent that took events: the longest of their chains, and
/// the step of this turn.
fn chain(events: &[Event], instance_id: &str) -> Vec<Hop> {
    let Some(longest) = events.iter().max_by_key(|event| event.chain.len()) else {
        return Vec::new();
    };
    let mut chain = longest.chain.clone();
    chain.push(Hop {
        instance_id: instance_id.to_owned(),
        event_type: longest.event_type.clone(),
    });
    chain
}
