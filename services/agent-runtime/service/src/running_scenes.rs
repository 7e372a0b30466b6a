//! The scenes that run in this process, and the requests to them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use agent_domain::{
    event::{Event, Hop, Priority, Source},
    plan::SceneTurn,
    scene::{Instance, Scene, conversation},
    sleep::{Sleep, WakeCause},
};
use core_types::{Principal, Timestamp};
use grpc_kit::{CallContext, Failure};
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, oneshot};

/// The most requests that wait for one scene.
const WAITING: usize = 256;

/// A request to a scene.
#[derive(Debug)]
pub(crate) enum Request {
    /// An event shall be published.
    Publish(Box<Draft>, oneshot::Sender<Result<Published, Failure>>),
    /// The world state was changed.
    WorldChanged(Change),
    /// The agents and their waiting events shall be returned.
    Status(oneshot::Sender<Vec<InstanceStatus>>),
    /// An agent shall sleep.
    Sleep(Asleep, oneshot::Sender<Result<Slept, Failure>>),
    /// An agent shall be awake; the answer is whether it slept.
    Wake(String, WakeCause, oneshot::Sender<bool>),
    /// The scene shall end, for a reason.
    End(String, oneshot::Sender<()>),
}

/// An event to be published.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// The type.
    pub(crate) event_type: String,
    /// The data: an object.
    pub(crate) payload: Value,
    /// The publisher.
    pub(crate) source: Source,
    /// The instances that receive it; empty for all subscribers.
    pub(crate) targets: Vec<String>,
    /// The urgency.
    pub(crate) priority: Priority,
    /// The longest wait; none for the scene's time.
    pub(crate) ttl: Option<Duration>,
    /// The shortest wait.
    pub(crate) delay: Duration,
    /// Its causes.
    pub(crate) chain: Vec<Hop>,
    /// The publisher's name for a group of events; may be empty.
    pub(crate) correlation_id: String,
    /// The publisher's name for the request; empty if it is never repeated.
    pub(crate) request_id: String,
    /// The principal of the request; `local` for an event of the scene itself.
    pub(crate) principal: Principal,
}

/// An agent that shall sleep.
#[derive(Clone, Debug)]
pub(crate) struct Asleep {
    /// The agent.
    pub(crate) instance_id: String,
    /// The conditions of waking up.
    pub(crate) sleep: Sleep,
    /// The caller's name for the request; empty if it is never repeated.
    pub(crate) request_id: String,
    /// The principal of the request.
    pub(crate) principal: Principal,
}

/// An agent that was put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slept {
    /// The time at which it wakes by itself.
    pub(crate) until: Option<Timestamp>,
    /// Whether the request was seen before.
    pub(crate) replayed: bool,
}

/// An event that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// Its id.
    pub(crate) event_id: String,
    /// The instances in whose queues it waits.
    pub(crate) delivered_to: Vec<String>,
    /// Whether the request was seen before.
    pub(crate) replayed: bool,
}

/// A change of the world state.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The author.
    pub(crate) by: Source,
    /// Its causes.
    pub(crate) chain: Vec<Hop>,
}

/// The state of an agent.
#[derive(Clone, Debug)]
pub(crate) struct InstanceStatus {
    /// Its id in the scene.
    pub(crate) instance_id: String,
    /// Whether a turn with events is in progress.
    pub(crate) is_busy: bool,
    /// The events in its queue.
    pub(crate) waiting: Vec<Event>,
    /// Its sleep; none if it is awake.
    pub(crate) sleep: Option<Sleep>,
    /// Whether the scene is paused.
    pub(crate) is_paused: bool,
    /// Whether the scene is ending.
    pub(crate) is_ending: bool,
}

/// The scenes that run here, by run. Clone, cheap.
#[derive(Clone, Debug, Default)]
pub struct RunningScenes {
    /// Locked for a lookup or a change, never across an await.
    by_run: Arc<RwLock<HashMap<String, RunningScene>>>,
}

/// A scene that runs here.
#[derive(Clone, Debug)]
pub(crate) struct RunningScene {
    /// The run.
    pub(crate) run_id: String,
    /// The principal that started it, which owns its conversations.
    pub(crate) owner: Principal,
    /// The document.
    pub(crate) scene: Arc<Scene>,
    /// Its revision.
    pub(crate) revision: u64,
    /// One agent calls another at a time: the check for a cycle of waits and the start of the turn are one step. Held
    /// across the commit.
    pub(crate) asking: Arc<Mutex<()>>,
    requests: mpsc::Sender<Request>,
}

/// An agent of a scene that runs here.
#[derive(Clone, Debug)]
pub(crate) struct SceneInstance {
    /// The scene.
    pub(crate) running: RunningScene,
    /// The agent.
    pub(crate) instance: Instance,
}

/// The requests to one scene; after it is dropped, requests fail.
#[derive(Debug)]
pub(crate) struct SceneInbox {
    pub(crate) requests: mpsc::Receiver<Request>,
    sender: mpsc::Sender<Request>,
    run_id: String,
    running: RunningScenes,
}

impl RunningScenes {
    /// Returns a scene that runs here and that a call can see.
    pub(crate) fn get(&self, context: &CallContext, run_id: &str) -> Option<RunningScene> {
        let scenes = self.by_run.read().unwrap_or_else(PoisonError::into_inner);
        let running = scenes.get(run_id);
        running.filter(|it| context.sees(&it.owner)).cloned()
    }

    /// Returns the number of scenes that run here.
    pub(crate) fn len(&self) -> usize {
        let scenes = self.by_run.read().unwrap_or_else(PoisonError::into_inner);
        scenes.len()
    }

    /// Returns the agent of a conversation; none if it belongs to no agent of a scene that runs
    /// here and that a call can see.
    pub(crate) fn instance(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Option<SceneInstance> {
        let (run_id, instance_id) = conversation::parts(conversation_id)?;
        let running = self.get(context, run_id)?;
        let instance = running.scene.instance(instance_id)?.clone();
        Some(SceneInstance { running, instance })
    }

    /// Begins to accept requests for a scene of a principal.
    pub(crate) fn connect(
        &self,
        run_id: String,
        owner: Principal,
        scene: Arc<Scene>,
        revision: u64,
    ) -> SceneInbox {
        let (sender, requests) = mpsc::channel(WAITING);
        let running = RunningScene {
            run_id: run_id.clone(),
            owner,
            scene,
            revision,
            asking: Arc::default(),
            requests: sender.clone(),
        };
        let mut scenes = self.by_run.write().unwrap_or_else(PoisonError::into_inner);
        scenes.insert(run_id.clone(), running);
        SceneInbox {
            requests,
            sender,
            run_id,
            running: self.clone(),
        }
    }
}

impl Drop for SceneInbox {
    fn drop(&mut self) {
        let scenes = self.running.by_run.write();
        let mut scenes = scenes.unwrap_or_else(PoisonError::into_inner);
        let current = scenes.get(&self.run_id);
        // Another one may have replaced it.
        if current.is_some_and(|running| running.requests.same_channel(&self.sender)) {
            scenes.remove(&self.run_id);
        }
    }
}

impl RunningScene {
    /// Sends a request to the scene; false if it has ended.
    pub(crate) async fn ask(&self, request: Request) -> bool {
        self.requests.send(request).await.is_ok()
    }
}

impl SceneInstance {
    /// Wakes the agent, as it has a message from a user.
    pub(crate) async fn wake(&self, cause: WakeCause) -> bool {
        let (answer, answered) = oneshot::channel();
        let wake = Request::Wake(self.instance.id.clone(), cause, answer);
        // A scene that ends at this moment has no agent to wake.
        self.running.ask(wake).await && answered.await.unwrap_or_default()
    }

    /// Returns the agents of the scene with their conversations.
    pub(crate) fn agents(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let all = self.running.scene.instances.iter();
        all.map(|other| {
            let conversation = conversation::conversation_of(&self.running.run_id, &other.id);
            (other.id.clone(), conversation)
        })
    }

    /// Returns the place of a turn of this agent whose events have these causes.
    pub(crate) fn turn(&self, chain: Vec<Hop>) -> SceneTurn {
        SceneTurn {
            scene_id: self.running.scene.id.clone(),
            run_id: self.running.run_id.clone(),
            instance_id: self.instance.id.clone(),
            chain,
            agents: BTreeMap::new(),
            copy_of: None,
        }
    }
}
