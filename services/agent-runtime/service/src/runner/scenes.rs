//! Carries scenes out: delivers events to agents, starts their turns, fires timers, runs workflows.
//!
//! A scene is a run. An event is in its log before an agent takes it, and the log has the taking of
//! events before the turn begins; the turn has a request id that follows from the log. After a
//! crash the log is replayed, so that each event is taken by one turn.

mod actor;
mod ending;
mod publishing;
mod replay;
mod sleeping;
mod throttle;
mod tickers;
mod ticks;
mod turn;
mod workflow;
mod world;

use std::{pin::pin, sync::Arc, time::Duration};

use contracts::tavern::common::v1::{CallError, ErrorCategory, Run, RunOptions, WorkKind};
use core_types::{Clock, IdSource, Principal, RunOwner, Tenant};
use futures::StreamExt;
use grpc_kit::{CallContext, Failure, FailureClass, Services, Transport};
use json_schema::Schema;
use run_client::{ChildRun, Followed};
use run_events::{
    End, OpenRun, Recorder, RunControl, Runs, StartRun, Started, outcome, to_its_end,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;

use agent_domain::{
    scene::conversation::conversation_of,
    scene::{self, Scene},
    state::{self, MAX_PRIVATE_BYTES},
};
use agent_store::{
    conversations::Conversations,
    profiles::{KnownProfile, Profiles, of_scene},
    store::StateOwner,
};
pub(crate) use publishing::not_running;

use self::{actor::Actor, replay::Replayed};
use crate::{
    error::{run_lost, store_failure},
    peers::Peers,
    runner::{self, turns::Turns},
    running_scenes::RunningScenes,
    states::States,
};

/// The kind of run that a scene is.
pub(crate) const SCENE: &str = "scene";
/// The delay for a caller whose scene was rejected for lack of room.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The scope of the request ids of scenes.
const SCOPE: &str = "tavern.agent.v1.SceneService/StartScene";

/// The runner of scenes. Clone, cheap.
#[derive(Clone, Debug)]
pub struct SceneRunner {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runs: Runs,
    turns: Turns,
    states: States,
    conversations: Conversations,
    profiles: Profiles,
    peers: Peers,
    /// This service, for the runs of turns.
    own: Transport,
    running_scenes: RunningScenes,
    max_scenes: usize,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

/// The parts of the service that scenes use.
#[derive(Clone, Debug)]
pub struct SceneParts {
    /// All runs.
    pub runs: Runs,
    /// Starts turns.
    pub turns: Turns,
    /// Private states and world states.
    pub states: States,
    /// The conversations of agents.
    pub conversations: Conversations,
    /// The agents.
    pub profiles: Profiles,
    /// The services that run workflows.
    pub peers: Peers,
    /// The scenes that run here.
    pub running_scenes: RunningScenes,
}

/// A scene to start.
#[derive(Debug)]
pub(crate) struct NewScene {
    /// The scene.
    pub(crate) scene: Scene,
    /// Its revision.
    pub(crate) revision: u64,
    /// The caller's name for the request; empty if it is never repeated.
    pub(crate) request_id: String,
    /// The digest of the request.
    pub(crate) body_hash: run_log::Hash,
    /// Durability and time.
    pub(crate) options: RunOptions,
}

/// Follows a run below a scene to its end, and records its events in the log of the scene too.
///
/// # Errors
/// The run cannot be followed to its end.
async fn follow_below(
    run: &ChildRun,
    recorder: &Recorder,
    control: &RunControl,
    deadline: Instant,
) -> Result<Run, Status> {
    let _in_flight = control.track(WorkKind::Run, run.run_id());
    let mut followed = pin!(run.follow(0, deadline));
    while let Some(next) = followed.next().await {
        match next? {
            Followed::Event(event) => {
                if let Err(error) = recorder.submit_child(*event).await {
                    tracing::warn!(%error, "an event below a scene is missing in its log");
                }
            }
            Followed::Ended(run) => return Ok(*run),
        }
    }
    Err(Status::unavailable("its run can no longer be followed"))
}

impl SceneRunner {
    /// Builds a runner from its parts.
    pub fn new(
        parts: SceneParts,
        max_scenes: usize,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                own: grpc_kit::local(&Services::new().add(parts.runs.service())),
                runs: parts.runs,
                turns: parts.turns,
                states: parts.states,
                conversations: parts.conversations,
                profiles: parts.profiles,
                peers: parts.peers,
                running_scenes: parts.running_scenes,
                max_scenes,
                clock,
                ids,
            }),
        }
    }

    /// Returns the scene that the same request started before; documents that it refers to may be
    /// deleted by now.
    ///
    /// # Errors
    /// REQUEST_ID_REUSED, or a storage that does not work.
    pub(crate) async fn started_before(
        &self,
        context: &CallContext,
        request_id: &str,
        body_hash: run_log::Hash,
    ) -> Result<Option<Run>, Failure> {
        let runs = &self.inner.runs;
        let found = runs.started_before(context, SCOPE, request_id, body_hash);
        found.await
    }

    /// Starts a scene, or finds the scene that the same request started. Returns its run, and
    /// whether the request was seen before.
    ///
    /// # Errors
    /// INVALID_FIELDS, OVERLOADED, REQUEST_ID_REUSED, or a storage that does not work.
    pub(crate) async fn start(
        &self,
        context: CallContext,
        new: NewScene,
    ) -> Result<(Run, bool), Failure> {
        let scenes = self.clone();
        to_its_end(async move { scenes.begin(&context, new).await }).await
    }

    async fn begin(&self, context: &CallContext, new: NewScene) -> Result<(Run, bool), Failure> {
        let inner = &self.inner;
        let profiles = self.profiles_of(context.tenant(), &new.scene).await?;
        let first = first_states(&new.scene, &profiles)?;
        if inner.running_scenes.len() >= inner.max_scenes {
            return Err(Failure::overloaded(RETRY_AFTER));
        }
        let start = StartRun {
            kind: SCENE,
            owner: Some(RunOwner::Scene),
            subject: new.scene.id.clone(),
            conversation_id: String::new(),
            request_id: new.request_id,
            scope: SCOPE,
            body_hash: new.body_hash,
            input_json: String::new(),
            input_is_model_text: false,
            options: Some(new.options),
            can_wait: true,
            concurrency_key: String::new(),
            priority: 0,
            deadline_cap: None,
            grant: None,
            owner_data: json!({"scene": new.scene.text, "scene_revision": new.revision}),
            first_events: Vec::new(),
            forks: None,
        };
        match inner.runs.start(context, start).await? {
            Started::Replayed(run) => Ok((run, true)),
            Started::New(recorder, _) => {
                let run_id = recorder.run_id().to_string();
                let run = inner.runs.get(context, &run_id).await;
                let run = run.map_err(|_| run_lost(&run_id))?;
                let scene = Arc::new(new.scene);
                let replayed = Replayed::new(&scene, &profiles, inner.clock.now());
                let owner = context.principal().clone();
                let prepared = self.prepare(&owner, &run_id, &scene, &profiles, first);
                match prepared.await {
                    Ok(()) => self.execute(recorder, owner, scene, new.revision, replayed),
                    Err(failure) => self.end_unprepared(recorder, failure),
                }
                Ok((run, false))
            }
        }
    }

    /// Continues a scene of the process before this one.
    pub async fn resume(&self, open: OpenRun) {
        let run = open.recorder.run_id();
        let text = open.meta.data["scene"].as_str().unwrap_or_default();
        let revision = open.meta.data["scene_revision"].as_u64();
        match scene::read(text) {
            Ok(scene) => {
                tracing::info!(%run, events = open.events.len(), "a scene continues");
                let scene = Arc::new(scene);
                let own = run.to_string();
                let owner = open.meta.principal;
                let profiles = match self.prepare_again(&owner, &own, &scene).await {
                    Ok(profiles) => profiles,
                    Err(failure) => return self.end_unprepared(open.recorder, failure),
                };
                let mut replayed = Replayed::new(&scene, &profiles, open.created);
                let events = open.events.iter().filter(|event| event.run_id == own);
                for kind in events.filter_map(|event| event.kind.as_ref()) {
                    replayed.apply(&scene, kind);
                }
                let revision = revision.unwrap_or_default();
                self.execute(open.recorder, owner, scene, revision, replayed);
            }
            Err(error) => {
                tracing::error!(%run, %error, "a scene cannot continue");
                let damaged = runner::damaged();
                self.inner
                    .runs
                    .execute(open.recorder, |_| async { End::Finished(damaged) });
            }
        }
    }

    /// Begins the conversations, the private states and then the world state.
    async fn prepare(
        &self,
        owner: &Principal,
        run_id: &str,
        scene: &Scene,
        profiles: &[Option<KnownProfile>],
        first: Vec<Option<Value>>,
    ) -> Result<(), Failure> {
        let (inner, tenant) = (&self.inner, owner.tenant());
        let agents = scene.instances.iter().zip(profiles).zip(first);
        for ((instance, known), first) in agents {
            let conversation = conversation_of(run_id, &instance.id);
            inner.conversations.begin(owner, &conversation).await?;
            if let Some(known) = known {
                let (profile, goals) = (&known.document, &instance.goals);
                let states = &inner.states;
                let begun = states.begin_goals(tenant, &conversation, profile, goals);
                begun.await?;
            }
            if let Some(first) = first {
                let owner = StateOwner::agent(tenant, &conversation, &instance.profile_id);
                inner.states.begin(&owner, &first).await?;
            }
        }
        let world = StateOwner::world(tenant, run_id);
        inner.states.begin(&world, &scene.first_world).await
    }

    /// Begins the states and conversations of a scene that an earlier process did not begin; the
    /// world state is the last of them. Returns the profiles of the agents.
    async fn prepare_again(
        &self,
        owner: &Principal,
        run_id: &str,
        scene: &Scene,
    ) -> Result<Vec<Option<KnownProfile>>, Failure> {
        let profiles = self.profiles_of(owner.tenant(), scene).await?;
        let world = StateOwner::world(owner.tenant(), run_id);
        if self.inner.states.snapshot(world, None).await?.is_none() {
            let first = first_states(scene, &profiles)?;
            self.prepare(owner, run_id, scene, &profiles, first).await?;
        }
        Ok(profiles)
    }

    /// Returns the profiles of the agents of a tenant's scene, in their order.
    ///
    /// # Errors
    /// A storage that does not work.
    pub(crate) async fn profiles_of(
        &self,
        tenant: Tenant,
        scene: &Scene,
    ) -> Result<Vec<Option<KnownProfile>>, Failure> {
        let profiles = of_scene(&self.inner.profiles, tenant, scene).await;
        profiles.map_err(|error| store_failure(&error))
    }

    /// Ends a scene whose states could not begin. While the storage does not work, it stays open.
    fn end_unprepared(&self, recorder: Recorder, failure: Failure) {
        let status = failure.into_status();
        let end = match FailureClass::of(&status) {
            FailureClass::Transient => {
                let (run, error) = (recorder.run_id(), status.message());
                tracing::error!(%run, error, "a scene waits for the storage and continues later");
                End::LeaveOpen
            }
            _ => End::Finished(outcome::failed(unprepared(&status))),
        };
        self.inner.runs.execute(recorder, |_| async { end });
    }

    /// Carries out a scene whose states have begun.
    fn execute(
        &self,
        recorder: Recorder,
        owner: Principal,
        scene: Arc<Scene>,
        revision: u64,
        replayed: Replayed,
    ) {
        let inner = Arc::clone(&self.inner);
        let writer = recorder.clone();
        // A caller that reads that the scene was started can send it requests at once.
        let run_id = recorder.run_id().to_string();
        let connected = Arc::clone(&scene);
        let scenes = &inner.running_scenes;
        let inbox = scenes.connect(run_id, owner, connected, revision);
        let work = move |control| Actor::new(inner, writer, control, inbox, scene, replayed).run();
        self.inner.runs.execute(recorder, work);
    }
}

/// Words the reason for which the states of a scene cannot begin.
fn unprepared(status: &Status) -> CallError {
    let violations = grpc_kit::violations(status).into_iter();
    let violations = violations.map(|(place, problem)| format!("{place}: {problem}"));
    let words = std::iter::once(status.message().to_owned()).chain(violations);
    let message = words.collect::<Vec<_>>().join("; ");
    outcome::error(ErrorCategory::Validation, "scene_invalid", message)
}

/// Makes the first private states of the agents of a scene, in their order (rule G106).
///
/// # Errors
/// INVALID_FIELDS with every missing profile and every state that breaks its schema.
fn first_states(
    scene: &Scene,
    profiles: &[Option<KnownProfile>],
) -> Result<Vec<Option<Value>>, Failure> {
    let mut failure = Failure::invalid_fields();
    let mut states = Vec::new();
    for (index, (instance, known)) in scene.instances.iter().zip(profiles).enumerate() {
        let place = format!("scene/agent_instances/{index}");
        let Some(known) = known else {
            let of = match instance.tavern.profile_revision {
                Some(pinned) => format!("has a revision {pinned} that is kept for"),
                None => "has".to_owned(),
            };
            let problem = format!("no agent profile {of} the id `{}`", instance.profile_id);
            failure.add_violation(format!("{place}/profile_id"), problem);
            continue;
        };
        let profile = &known.document;
        let first = match (&profile.first_state, &instance.state_override) {
            (first, None) => Ok(first.clone()),
            (first, Some(over)) => {
                let mut values = first.clone().unwrap_or_else(|| json!({}));
                state::merge(&mut values, over);
                let schema = profile.state_schema.as_ref().map(Schema::compile);
                let schema = schema.transpose().map_err(|error| error.to_string());
                schema.and_then(|schema| {
                    state::first(schema.as_ref(), &values, MAX_PRIVATE_BYTES)
                        .map(Some)
                        .map_err(|error| error.to_string())
                })
            }
        };
        match first {
            Ok(first) => states.push(first),
            Err(problem) => {
                let place = format!("{place}/initial_private_state_override");
                failure.add_violation(place, problem);
            }
        }
    }
    match failure.is_empty() {
        true => Ok(states),
        false => Err(failure),
    }
}
