//! The workflows of a scene (rule G109).

use std::{sync::Arc, time::Duration};

use agent_domain::{
    event::{self, Hop, Source, SourceKind},
    scene::{Scene, WorkflowTrigger},
    state::{MAX_WORLD_BYTES, from_patch},
};
use call_catalogue::names::squash;
use contracts::tavern::{
    common::v1::{
        ErrorCategory, RunOptions, RunState, SceneWorkflowEnded, SceneWorkflowStarted,
        run_event::Kind,
    },
    workflow::v1::{StartRunRequest, start_run_request::Target},
};
use run_client::{ChildRequest, ChildRun};
use run_events::{Recorder, RunControl};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::Instrument;

use super::{
    Inner,
    actor::{Actor, Done, SceneStop, WorkflowEnd},
    follow_below,
    replay::DueWorkflow,
    world::world_state,
};
use crate::{
    running_scenes::{Change, Draft},
    states::Update,
};

/// The time limit of a workflow of a scene.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The most events of one workflow.
const MOST_EVENTS: usize = 100;

/// A run of a workflow of the scene.
struct WorkflowRun {
    shared: Arc<Inner>,
    recorder: Recorder,
    control: RunControl,
    scene: Arc<Scene>,
    due: DueWorkflow,
}

impl Actor {
    /// Runs the next workflow, if there is one and none runs.
    pub(super) async fn begin_workflow(&mut self) -> Result<(), SceneStop> {
        if self.runs_workflow {
            return Ok(());
        }
        let Some(next) = self.state.workflows.front().cloned() else {
            return Ok(());
        };
        let control = self.control.clone();
        let Some(_not_paused) = control.admit_start().await else {
            return Ok(());
        };
        if next.world_version.is_none() {
            let owner = self.world_state();
            let world = match self.shared.states.get(&owner, None).await {
                Ok(world) => world,
                Err(failure) => return self.look_again(failure, "the world state"),
            };
            // After a crash it is requested with the same inputs.
            self.record(vec![Kind::SceneWorkflowStarted(SceneWorkflowStarted {
                moment: next.key.clone(),
                event_id: next.event_id(),
                workflow_id: next.workflow_id.clone(),
                world_version: world.row.version,
            })])
            .await?;
        }
        let Some(due) = self.state.workflows.front().cloned() else {
            return Ok(());
        };
        self.runs_workflow = true;
        let run = WorkflowRun {
            shared: Arc::clone(&self.shared),
            recorder: self.recorder.clone(),
            control: self.control.clone(),
            scene: Arc::clone(&self.scene),
            due,
        };
        let work = async move { Done::Workflow(Box::new(run.run().await)) };
        self.tasks.spawn(work.instrument(tracing::Span::current()));
        Ok(())
    }

    /// Applies the outputs of a workflow. A scene whose `on_scene_start` failed does not start.
    pub(super) async fn workflow_ended(&mut self, end: WorkflowEnd) -> Result<(), SceneStop> {
        self.runs_workflow = false;
        let applied = match &end.outputs {
            Ok(outputs) => self.apply_outputs(&end, outputs).await?,
            Err(error) => Err(error.clone()),
        };
        let error = applied.err().unwrap_or_default();
        if !error.is_empty() {
            let workflow = &end.due.workflow_id;
            tracing::warn!(workflow, error, "a workflow of a scene failed");
        }
        self.record(vec![Kind::SceneWorkflowEnded(SceneWorkflowEnded {
            moment: end.due.key.clone(),
            event_id: end.due.event_id(),
            workflow_id: end.due.workflow_id.clone(),
            run_id: end.run_id.clone(),
            error: error.clone(),
        })])
        .await?;
        let is_start = self
            .scene
            .workflows
            .iter()
            .any(|known| known.moment == WorkflowTrigger::Start && known.key == end.due.key);
        if is_start && !error.is_empty() {
            let message = format!("the workflow `{}` failed: {error}", end.due.workflow_id);
            let category = ErrorCategory::Dependency;
            let error = run_events::outcome::error(category, "scene_start_failed", message);
            return Err(SceneStop::Failed(Box::new(error)));
        }
        Ok(())
    }

    /// Changes the world state and publishes events, from the outputs of a workflow. A repeat after
    /// a crash changes and publishes nothing twice.
    async fn apply_outputs(
        &mut self,
        end: &WorkflowEnd,
        outputs: &Map<String, Value>,
    ) -> Result<Result<(), String>, SceneStop> {
        let patch = outputs.get("world_state_patch").unwrap_or(&Value::Null);
        let operations = match from_patch(patch) {
            Ok(operations) => operations,
            Err(problem) => return Ok(Err(format!("world_state_patch {problem}"))),
        };
        let events = match drafts(end, outputs.get("events").unwrap_or(&Value::Null)) {
            Ok(events) => events,
            Err(problem) => return Ok(Err(problem)),
        };
        if !operations.is_empty() {
            let owner = self.world_state();
            let hash = run_log::Hash::of(patch.to_string().as_bytes());
            let update = Update {
                request: Some((end.run_id.clone(), hash)),
                expected_version: 0,
                operations,
            };
            let schema = self.scene.world_schema.as_ref();
            let states = &self.shared.states;
            let changed = states.update_within(&owner, update, schema, MAX_WORLD_BYTES);
            if let Err(failure) = changed.await {
                let status = failure.into_status();
                let violations = grpc_kit::violations(&status).into_iter();
                let words: Vec<String> = violations
                    .map(|(place, problem)| format!("; {place}: {problem}"))
                    .collect();
                return Ok(Err(format!("{}{}", status.message(), words.concat())));
            }
            self.note_change(Change {
                by: end.source(),
                chain: end.chain(),
            });
        }
        for draft in events {
            self.publish_own(draft).await?;
        }
        Ok(Ok(()))
    }
}

impl WorkflowEnd {
    fn source(&self) -> Source {
        Source {
            kind: SourceKind::Workflow,
            id: self.due.workflow_id.clone(),
            run_id: self.run_id.clone(),
        }
    }

    fn chain(&self) -> Vec<Hop> {
        let event = self.due.event.as_ref();
        event.map(|event| event.chain.clone()).unwrap_or_default()
    }
}

/// Reads the events that a workflow publishes.
fn drafts(end: &WorkflowEnd, events: &Value) -> Result<Vec<Draft>, String> {
    let events = match events {
        Value::Null => return Ok(Vec::new()),
        Value::Array(events) if events.len() <= MOST_EVENTS => events,
        _ => {
            return Err(format!(
                "events is not a list of at most {MOST_EVENTS} events"
            ));
        }
    };
    let draft = |(index, written): (usize, &Value)| {
        let event_type = written["type"].as_str().unwrap_or_default();
        let payload = match &written["payload"] {
            Value::Null => json!({}),
            given => given.clone(),
        };
        let is_good = event::is_type(event_type)
            && payload.is_object()
            && json_schema::text_bytes(&payload) <= event::MAX_PAYLOAD_BYTES;
        if !is_good {
            return Err(format!(
                "events/{index}: give `type`, and `payload` as an object of at most 64 KiB"
            ));
        }
        let targets = written["target_instance_ids"].as_array();
        let targets = targets.into_iter().flatten().filter_map(Value::as_str);
        Ok(Draft {
            targets: targets.map(str::to_owned).collect(),
            chain: end.chain(),
            request_id: format!("{}/{index}", end.run_id),
            ..Draft::of(event_type, payload, end.source())
        })
    };
    events.iter().enumerate().map(draft).collect()
}

impl WorkflowRun {
    async fn run(self) -> WorkflowEnd {
        let (mut run_id, mut outputs) = (String::new(), Ok(Map::new()));
        match self.start().await {
            Ok(started) => {
                outputs = self.follow(&started).await;
                started.run_id().clone_into(&mut run_id);
            }
            Err(error) => outputs = outputs.and(Err(error)),
        }
        WorkflowEnd {
            due: self.due,
            run_id,
            outputs,
        }
    }

    async fn start(&self) -> Result<ChildRun, String> {
        let (peers, context) = (&self.shared.peers, self.control.call_context());
        let deadline = Instant::now() + TIMEOUT;
        let id = &self.due.workflow_id;
        let definition = peers.workflow_definition(&context, id, deadline).await;
        let definition = definition.map_err(|status| status.message().to_owned())?;
        let interface = definition.get("interfaceInputs").and_then(Value::as_object);
        let inputs = self.inputs(&interface.cloned().unwrap_or_default()).await?;
        let event_id = self.due.event_id();
        let request = StartRunRequest {
            request_id: format!("{}/{}/{event_id}", self.recorder.run_id(), self.due.key),
            target: Some(Target::WorkflowId(id.clone())),
            inputs_json: Value::Object(inputs).to_string(),
            options: Some(RunOptions {
                durability: run_events::durability_to_proto(self.recorder.durability()).into(),
                timeout: prost_types::Duration::try_from(TIMEOUT).ok(),
            }),
            ..StartRunRequest::default()
        };
        let request = ChildRequest::Workflow(Box::new(request));
        let started = ChildRun::start(&peers.workflow, &context, request, deadline).await;
        let (run, _) = started.map_err(|error| error.status.message().to_owned())?;
        Ok(run)
    }

    /// Returns the inputs that the workflow declares.
    async fn inputs(&self, interface: &Map<String, Value>) -> Result<Map<String, Value>, String> {
        let owner = world_state(&self.control, &self.recorder);
        let world = self
            .shared
            .states
            .snapshot(owner, self.due.world_version)
            .await;
        let world = world.map_err(|failure| failure.into_status().message().to_owned())?;
        let mut inputs = Map::new();
        for (key, slot) in interface {
            let value = match squash(key).as_str() {
                "sceneid" => json!(self.scene.id),
                "worldstate" => world
                    .as_ref()
                    .map_or(json!({}), |world| world.value.clone()),
                "event" => match &self.due.event {
                    Some(event) => event.to_json(),
                    None => json!({}),
                },
                _ => continue,
            };
            let is_text = slot["dataFlowType"] == "STRING" && !value.is_string();
            let value = if is_text {
                value.to_string().into()
            } else {
                value
            };
            inputs.insert(key.clone(), value);
        }
        Ok(inputs)
    }

    /// Follows the run to its end, and returns its outputs.
    async fn follow(&self, run: &ChildRun) -> Result<Map<String, Value>, String> {
        let deadline = Instant::now() + TIMEOUT;
        let ended = follow_below(run, &self.recorder, &self.control, deadline).await;
        let ended = ended.map_err(|status| status.message().to_owned())?;
        let state = ended.state();
        let outcome = ended.outcome.unwrap_or_default();
        if state != RunState::Succeeded {
            return Err(outcome.error.unwrap_or_default().message);
        }
        let outputs = serde_json::from_str(&outcome.result_json);
        outputs.map_err(|_| "its outputs are not an object".to_owned())
    }
}
