//! The scene of a request, and the author of its events or changes.

use agent_domain::{
    event::{Hop, Source, SourceKind},
    plan::SceneTurn,
    scene::conversation::{copied_world, scene_of},
    scene::{self, Instance, Scene},
};
use agent_store::{
    conversations::{self, Conversations},
    history::plan_of,
};
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{CallContext, Failure};
use run_events::Runs;

use crate::{
    runner::scenes::not_running,
    running_scenes::{RunningScene, RunningScenes, SceneInstance},
};

/// Finds running scenes, and the publishers in them. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Publishers {
    running_scenes: RunningScenes,
    conversations: Conversations,
    runs: Runs,
}

/// The author of an event or a change in a scene.
pub(super) struct Publisher {
    /// The scene.
    pub(super) running: RunningScene,
    /// The agent; none for a caller.
    pub(super) instance: Option<Instance>,
    /// The author as the source of events.
    pub(super) source: Source,
    /// The causes of its events.
    pub(super) chain: Vec<Hop>,
}

impl Publishers {
    /// Uses the running scenes, the conversations of their agents and all runs.
    pub fn new(running_scenes: RunningScenes, conversations: Conversations, runs: Runs) -> Self {
        Self {
            running_scenes,
            conversations,
            runs,
        }
    }

    /// Returns a running scene that a call can see.
    ///
    /// # Errors
    /// SCENE_NOT_RUNNING.
    pub(super) fn scene(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<RunningScene, Failure> {
        let running = self.running_scenes.get(context, run_id);
        let missing = || not_running("the run is not a running scene; start one with StartScene");
        running.ok_or_else(missing)
    }

    /// Returns the agent of a conversation that a call can see.
    ///
    /// # Errors
    /// SCENE_NOT_RUNNING.
    pub(super) fn instance(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<SceneInstance, Failure> {
        let known = self.running_scenes.instance(context, conversation_id);
        known.ok_or_else(|| {
            not_running("the conversation is not that of an agent in a scene that runs")
        })
    }

    /// Returns a caller by name.
    ///
    /// # Errors
    /// SCENE_NOT_RUNNING.
    pub(super) fn caller(
        &self,
        context: &CallContext,
        run_id: &str,
        name: String,
    ) -> Result<Publisher, Failure> {
        Ok(Publisher {
            running: self.scene(context, run_id)?,
            instance: None,
            source: Source {
                kind: SourceKind::Caller,
                id: if name.is_empty() {
                    "caller".to_owned()
                } else {
                    name
                },
                run_id: String::new(),
            },
            chain: Vec::new(),
        })
    }

    /// Returns the key of the world state of the scene, or of the fork of a turn in a scene, to which a conversation
    /// belongs; none if the call cannot see the conversation or the scene.
    ///
    /// # Errors
    /// A storage that does not work.
    pub(super) async fn world_of(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Option<String>, Failure> {
        if let Some(world) = copied_world(conversation_id) {
            let turn = self.turn_of_fork(context, conversation_id).await?;
            return Ok(turn.map(|_| world.to_owned()));
        }
        let row = self.conversations.seen(context, conversation_id).await?;
        let scene = scene_of(conversation_id).filter(|_| row.is_some());
        let Some(run_id) = scene else {
            return Ok(None);
        };
        let sees = self.sees_run(context, run_id).await?;
        Ok(sees.then(|| run_id.to_owned()))
    }

    /// Whether a call can see a run, also after its end.
    ///
    /// # Errors
    /// A storage that does not work.
    pub(super) async fn sees_run(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<bool, Failure> {
        match self.runs.meta(context, run_id).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.reason() == ErrorReason::RunNotFound => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the fork that a conversation began with; none if the conversation belongs to no fork
    /// of a turn in a scene.
    ///
    /// # Errors
    /// RUN_NOT_FOUND if the run of the scene was deleted, or a storage that does not work.
    pub(super) async fn fork_in_scene(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Option<ForkInScene>, Failure> {
        let Some(world) = copied_world(conversation_id) else {
            return Ok(None);
        };
        let Some(turn) = self.turn_of_fork(context, conversation_id).await? else {
            return Ok(None);
        };
        let run_id = turn.copy_of.unwrap_or_default();
        // The caller has the fork, and with it a copy of the scene's state.
        let own = CallContext::of_tenant(context.tenant());
        let meta = self.runs.meta(&own, &run_id).await?;
        let text = meta.data["scene"].as_str().unwrap_or_default();
        let scene = scene::read(text).ok();
        let found = scene.and_then(|scene| {
            let instance = scene.instance(&turn.instance_id)?.clone();
            Some(ForkInScene {
                world: world.to_owned(),
                scene,
                instance,
            })
        });
        Ok(found)
    }

    /// Returns the turn in a scene with a copy of which a conversation that a call can see began.
    async fn turn_of_fork(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Option<SceneTurn>, Failure> {
        let row = self.conversations.seen(context, conversation_id).await?;
        if row.is_none() {
            return Ok(None);
        }
        let tenant = context.tenant();
        let runs = self.conversations.turns(tenant, conversation_id).await?;
        let first = runs.into_iter().next();
        let plan = first.map(|(_, meta)| plan_of(meta)).transpose()?;
        Ok(plan.and_then(|plan| plan.scene))
    }

    /// Returns the agent of a conversation, with the causes of its present turn.
    ///
    /// # Errors
    /// SCENE_NOT_RUNNING, or a storage that does not work.
    pub(super) async fn agent(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Publisher, Failure> {
        let known = self.instance(context, conversation_id)?;
        let tenant = context.tenant();
        let runs = self.conversations.turns(tenant, conversation_id).await?;
        let present = conversations::present(runs);
        let (run_id, turn) = match present {
            Some((run, meta)) => (run.run_id, plan_of(meta)?.scene),
            None => Default::default(),
        };
        Ok(Publisher {
            source: Source {
                kind: SourceKind::Instance,
                id: known.instance.id.clone(),
                run_id,
            },
            running: known.running,
            instance: Some(known.instance),
            chain: turn.map(|turn| turn.chain).unwrap_or_default(),
        })
    }
}

/// A fork of a turn in a scene, which is in no scene itself.
pub(super) struct ForkInScene {
    /// The key of its copy of the world state.
    pub(super) world: String,
    /// The scene of the turn that was forked.
    pub(super) scene: Scene,
    /// The agent.
    pub(super) instance: Instance,
}

/// Reports that a request names no scene.
pub(super) fn unnamed() -> Failure {
    let problem = "is missing; give run_id or conversation_id";
    Failure::invalid_fields().violation("scene", problem)
}
