//! The state of a scene, as its log has it, live and after a crash.

use std::collections::{HashMap, VecDeque};

use agent_domain::{
    channel::{Channel, Member},
    event::{Event, SourceKind},
    scene::{Scene, WorkflowTrigger},
};
use agent_store::profiles::KnownProfile;
use contracts::tavern::common::v1::{self as common, run_event::Kind};
use core_types::Timestamp;

use super::tickers::TICK;
use crate::{running_scenes::Published, wire};

/// The type of the event by which a change of the world state is published (rule G306).
pub(super) const WORLD_UPDATED: &str = "world.state.updated";
/// The default size of an agent's queue, in events (rule G407).
const DEFAULT_QUEUE: usize = 64;
/// The most named requests that are remembered.
const MOST_REQUESTS: usize = 10_000;

/// The state of a scene from its log.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) channel: Channel,
    /// The start time of the scene.
    pub(super) started: Timestamp,
    /// The turns that are in progress or about to start, by instance.
    pub(super) taken: HashMap<String, Taken>,
    /// The number of turns.
    pub(super) turns: u64,
    /// The workflows that are to run, in order.
    pub(super) workflows: VecDeque<DueWorkflow>,
    /// The last time of each timer.
    pub(super) fired: HashMap<String, Timestamp>,
    /// The last published version of the world state.
    pub(super) announced: u64,
    /// Whether the end was requested.
    pub(super) is_ending: bool,
    /// Whether the workflow of the end has run.
    pub(super) has_closed: bool,
    /// The reason of a requested cancel of the run.
    pub(super) cancelled: Option<String>,
    /// The number of published events, apart from ticks.
    pub(super) published: u64,
    /// The last named request of each agent to sleep, and the end of that sleep.
    pub(super) sleep_requests: HashMap<String, SleepRequest>,
    requests: Requests,
}

/// Events that an agent took.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) instance_id: String,
    pub(super) request_id: String,
    pub(super) events: Vec<Event>,
}

/// A workflow that is to run.
#[derive(Clone, Debug)]
pub(super) struct DueWorkflow {
    /// Its key in the scene.
    pub(super) key: String,
    pub(super) workflow_id: String,
    /// The event that triggered it.
    pub(super) event: Option<Event>,
    /// The version of the world state in its inputs; none until it is about to start.
    pub(super) world_version: Option<u64>,
}

impl DueWorkflow {
    /// Returns the event that triggered it; empty for the start and the end of the scene.
    pub(super) fn event_id(&self) -> String {
        self.event
            .as_ref()
            .map_or_else(String::new, |event| event.id.clone())
    }
}

/// A named request that put an agent to sleep.
#[derive(Clone, Debug)]
pub(super) struct SleepRequest {
    /// Its id.
    pub(super) id: String,
    /// Its principal, as it is recorded.
    pub(super) principal: String,
    /// The end of the sleep; none if only events wake the agent.
    pub(super) until: Option<Timestamp>,
}

/// A named request that published an event.
#[derive(Debug)]
pub(super) struct SeenRequest {
    /// Its principal, as it is recorded.
    principal: String,
    /// The digest of the event.
    digest: [u8; 32],
    /// The answer to a repeat.
    pub(super) answer: Published,
}

/// The named requests that published events, the oldest first.
#[derive(Debug, Default)]
struct Requests {
    known: HashMap<String, SeenRequest>,
    order: VecDeque<String>,
}

impl Replayed {
    /// Begins a scene.
    pub(super) fn new(
        scene: &Scene,
        profiles: &[Option<KnownProfile>],
        started: Timestamp,
    ) -> Self {
        let members = scene.instances.iter().enumerate().map(|(index, instance)| {
            let known = profiles.get(index).and_then(Option::as_ref);
            let profile = known.map(|known| &known.document);
            let settings = profile
                .as_ref()
                .map(|profile| instance.tavern.over(&profile.tavern));
            let limit = settings.and_then(|settings| settings.queue_limit);
            let subscriptions = profile.map(|profile| profile.subscriptions.clone());
            Member::new(
                instance.id.clone(),
                subscriptions.unwrap_or_default(),
                limit.unwrap_or(DEFAULT_QUEUE),
            )
        });
        let mut replayed = Self {
            channel: Channel::new(members.collect()),
            started,
            taken: HashMap::new(),
            turns: 0,
            workflows: VecDeque::new(),
            fired: HashMap::new(),
            announced: 1,
            is_ending: false,
            has_closed: !scene
                .workflows
                .iter()
                .any(|workflow| workflow.moment == WorkflowTrigger::End),
            cancelled: None,
            published: 0,
            sleep_requests: HashMap::new(),
            requests: Requests::default(),
        };
        replayed.add_workflows(scene, &WorkflowTrigger::Start);
        replayed
    }

    /// Applies an event.
    pub(super) fn apply(&mut self, scene: &Scene, kind: &Kind) {
        match kind {
            Kind::EventPublished(published) => {
                let event = published.event.as_ref().and_then(wire::event_from_proto);
                let Some(event) = event else {
                    tracing::error!("an event of a scene's log cannot be read, and is left out");
                    return;
                };
                self.published(scene, event, published);
            }
            Kind::EventDropped(dropped) => {
                self.channel
                    .drop_event(&dropped.event_id, &dropped.instance_id);
            }
            Kind::EventsTaken(taken) => {
                let events = self.channel.take(&taken.instance_id, &taken.event_ids);
                self.turns += 1;
                let taken = Taken {
                    instance_id: taken.instance_id.clone(),
                    request_id: taken.request_id.clone(),
                    events,
                };
                self.taken.insert(taken.instance_id.clone(), taken);
            }
            Kind::EventsHandled(handled) => {
                self.channel.handled(&handled.instance_id);
                self.taken.remove(&handled.instance_id);
            }
            Kind::SceneWorkflowStarted(started) => {
                let mut due = self.workflows.iter_mut();
                let due =
                    due.find(|due| due.key == started.moment && due.event_id() == started.event_id);
                match due {
                    Some(due) => due.world_version = Some(started.world_version),
                    // The workflow of the end is due from now on.
                    None => self.add_closing(scene, started),
                }
            }
            Kind::SceneWorkflowEnded(ended) => {
                self.workflows
                    .retain(|due| due.key != ended.moment || due.event_id() != ended.event_id);
                let mut all = scene.workflows.iter();
                self.has_closed |= all
                    .any(|known| known.moment == WorkflowTrigger::End && known.key == ended.moment);
            }
            Kind::InstanceSlept(slept) => {
                let sleep = wire::sleep_from_proto(slept);
                let request = SleepRequest {
                    id: slept.request_id.clone(),
                    principal: slept.principal.clone(),
                    until: sleep.until,
                };
                let instance_id = slept.instance_id.as_str();
                self.sleep_requests.insert(instance_id.to_owned(), request);
                self.channel.set_sleep(instance_id, Some(sleep));
            }
            Kind::InstanceWoke(woke) => self.channel.set_sleep(&woke.instance_id, None),
            Kind::SceneEnding(_) => self.is_ending = true,
            Kind::CancelRequested(asked) => self.cancelled = Some(asked.reason.clone()),
            _ => {}
        }
    }

    /// Adds the workflows of a moment to the queue.
    pub(super) fn add_workflows(&mut self, scene: &Scene, moment: &WorkflowTrigger) {
        let workflows = scene.workflows.iter();
        for workflow in workflows.filter(|workflow| workflow.moment == *moment) {
            self.workflows.push_back(DueWorkflow {
                key: workflow.key.clone(),
                workflow_id: workflow.workflow_id.clone(),
                event: None,
                world_version: None,
            });
        }
    }

    fn add_closing(&mut self, scene: &Scene, started: &common::SceneWorkflowStarted) {
        self.add_workflows(scene, &WorkflowTrigger::End);
        for due in &mut self.workflows {
            due.world_version = Some(started.world_version);
        }
    }

    /// Returns the named request that published an event.
    pub(super) fn request(&self, request_id: &str) -> Option<&SeenRequest> {
        self.requests.known.get(request_id)
    }

    fn published(&mut self, scene: &Scene, event: Event, published: &common::EventPublished) {
        self.published += u64::from(event.event_type != TICK);
        match event.source.kind {
            SourceKind::Task => {
                self.fired.insert(event.source.id.clone(), event.published);
            }
            _ if event.event_type == WORLD_UPDATED => {
                let version = event.payload["version"].as_u64();
                self.announced = self.announced.max(version.unwrap_or_default());
            }
            _ => {}
        }
        if !published.request_id.is_empty() {
            let answer = Published {
                event_id: event.id.clone(),
                delivered_to: published.delivered_to.clone(),
                replayed: true,
            };
            let seen = SeenRequest {
                principal: published.principal.clone(),
                digest: event.digest(),
                answer,
            };
            self.requests.remember(published.request_id.clone(), seen);
        }
        let workflows = scene.workflows.iter();
        for workflow in workflows.filter(|workflow| workflow.is_for(&event.event_type)) {
            self.workflows.push_back(DueWorkflow {
                key: workflow.key.clone(),
                workflow_id: workflow.workflow_id.clone(),
                event: Some(event.clone()),
                world_version: None,
            });
        }
        self.channel.publish(event, &published.delivered_to);
    }
}

impl SeenRequest {
    /// Whether a request of a principal, as it is recorded, for an event is this one.
    pub(super) fn is_of(&self, principal: &str, event: &Event) -> bool {
        self.principal == principal && self.digest == event.digest()
    }
}

impl Requests {
    fn remember(&mut self, request_id: String, seen: SeenRequest) {
        if self.order.len() >= MOST_REQUESTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(request_id.clone());
        self.known.insert(request_id, seen);
    }
}
