//! A runtime on a fresh directory, with one agent, one scripted model and the registry's double.

use std::{path::Path, sync::Arc};

use agent_runtime::runner::{Fixture, replay};
use agent_runtime::{AgentRuntime, AgentSettings, Environment, Peers, build};
use contracts::tavern::{
    agent::v1::{
        ExportTurnRequest, ListMessagesRequest, Message, StartTurnRequest, StartTurnResponse,
        agent_service_client::AgentServiceClient,
        conversation_service_client::ConversationServiceClient,
        model_service_client::ModelServiceClient, profile_service_client::ProfileServiceClient,
        start_turn_request::Input,
    },
    common::v1::{Run, RunEvent, StopReason, run_event::Kind, watch_record::Record},
    run::v1::{
        CancelRunRequest, CancelRunResponse, GetRunRequest, PauseRunRequest, ResumeRunRequest,
        WatchRunRequest, run_service_client::RunServiceClient,
    },
};
use doubles::TestRegistry;
use grpc_kit::{Outbound, Transport};
use model_client::{ModelSettings, ScriptedSettings};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Status;

/// The parts of a runtime.
pub(crate) struct World {
    /// The directory with everything.
    pub(crate) directory: Arc<TempDir>,
    /// The tools.
    pub(crate) registry: TestRegistry,
    /// The settings.
    pub(crate) settings: AgentSettings,
}

impl World {
    /// Makes a world with the agent `ada`, who may use `tools` and whose model plays `turns`.
    pub(crate) fn new(registry: TestRegistry, tools: &[&str], turns: &Value) -> Self {
        let profile = json!({
            "id": "ada",
            "name": "Ada",
            "tool_ids_inventory": tools,
            "custom_metadata": {"tavern": {"model": "play", "system_prompt": "You are Ada."}},
        });
        Self::of(
            registry,
            &[("ada.json", &profile)],
            &json!({"turns": turns}),
        )
    }

    /// Makes a world with these profiles and this script.
    pub(crate) fn of(registry: TestRegistry, profiles: &[(&str, &Value)], script: &Value) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let agents = directory.path().join("agents");
        std::fs::create_dir(&agents).unwrap();
        for (file, profile) in profiles {
            std::fs::write(agents.join(file), profile.to_string()).unwrap();
        }
        std::fs::write(
            directory.path().join("play.script.json"),
            script.to_string(),
        )
        .unwrap();
        let play = ScriptedSettings {
            script: "play.script.json".into(),
            ..ScriptedSettings::default()
        };
        let settings = AgentSettings {
            data_dir: directory.path().join("data"),
            agents_dir: agents,
            scripts_dir: directory.path().to_owned(),
            follow_agents_dir: false,
            models: [("play".to_owned(), ModelSettings::Scripted(play))].into(),
            ..AgentSettings::default()
        };
        Self {
            directory,
            registry,
            settings,
        }
    }

    /// Builds the runtime. Building again on the same world is a restart.
    pub(crate) async fn build(&self) -> Running {
        let (agent, slot) = grpc_kit::late();
        let registry = self.registry.connect(agent).await;
        let running = self.build_with(registry).await;
        slot.fill(grpc_kit::local(&running.runtime.services()));
        running
    }

    /// Builds the runtime with another way to the registry.
    pub(crate) async fn build_with(&self, registry: Transport) -> Running {
        telemetry::init_for_tests();
        let peers = Peers::over(registry.clone(), registry);
        let runtime = build(self.settings.clone(), peers, Environment::system())
            .await
            .unwrap();
        let transport = grpc_kit::local(&runtime.services());
        Running {
            _directory: Arc::clone(&self.directory),
            runtime,
            agent: AgentServiceClient::new(transport.clone().outermost()),
            profiles: ProfileServiceClient::new(transport.clone().outermost()),
            conversations: ConversationServiceClient::new(transport.clone().outermost()),
            runs: RunServiceClient::new(transport.clone().outermost()),
            model: ModelServiceClient::new(transport.outermost()),
        }
    }

    /// Replaces the script of the model of each agent.
    pub(crate) fn script_parts(&self, parts: &Value) {
        let path: &Path = &self.directory.path().join("play.script.json");
        std::fs::write(path, json!({"parts": parts}).to_string()).unwrap();
    }

    /// Replaces the script of the model.
    pub(crate) fn script(&self, turns: &Value) {
        let path: &Path = &self.directory.path().join("play.script.json");
        std::fs::write(path, json!({"turns": turns}).to_string()).unwrap();
    }
}

/// A runtime that runs.
#[derive(Clone)]
pub(crate) struct Running {
    /// Kept as long as the runtime uses it.
    _directory: Arc<TempDir>,
    /// The runtime.
    pub(crate) runtime: AgentRuntime,
    /// Its agents.
    pub(crate) agent: AgentServiceClient<Outbound>,
    /// Its profiles.
    pub(crate) profiles: ProfileServiceClient<Outbound>,
    /// Its conversations.
    pub(crate) conversations: ConversationServiceClient<Outbound>,
    pub(crate) runs: RunServiceClient<Outbound>,
    /// Its models.
    pub(crate) model: ModelServiceClient<Outbound>,
}

/// A turn that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The run.
    pub(crate) run: Run,
    /// All events that followers received.
    pub(crate) events: Vec<RunEvent>,
}

/// Makes a request for a turn of `ada` that begins with a user's message.
pub(crate) fn says(text: &str) -> StartTurnRequest {
    StartTurnRequest {
        profile_id: "ada".to_owned(),
        input: Some(Input::UserMessage(text.to_owned())),
        ..StartTurnRequest::default()
    }
}

impl Running {
    /// Starts a turn.
    pub(crate) async fn start(
        &self,
        request: StartTurnRequest,
    ) -> Result<StartTurnResponse, Status> {
        Ok(self.agent.clone().start_turn(request).await?.into_inner())
    }

    /// Starts a turn that is rejected; returns the invalid fields.
    pub(crate) async fn violated(&self, request: StartTurnRequest) -> Vec<String> {
        let status = self.start(request).await.unwrap_err();
        let violations = grpc_kit::violations(&status).into_iter();
        violations.map(|(field, _)| field).collect()
    }

    /// Starts a turn without violations; returns the id of its run.
    pub(crate) async fn begin(&self, request: StartTurnRequest) -> String {
        self.start(request).await.unwrap().run.unwrap().run_id
    }

    /// Starts a turn, follows it to its end and replays it (rule G1002).
    pub(crate) async fn play(&self, request: StartTurnRequest) -> Ended {
        let run_id = self.begin(request).await;
        self.play_on(&run_id).await
    }

    /// Follows a turn to its end, and replays it.
    pub(crate) async fn play_on(&self, run_id: &str) -> Ended {
        let ended = self.follow(run_id, 0).await;
        if let Ok(fixture) = self.export(run_id).await {
            let replayed = replay(&Fixture::read(&fixture).unwrap());
            if let Err(divergence) = replayed {
                panic!("{divergence}");
            }
        }
        ended
    }

    /// Returns a turn as the lines of a fixture.
    pub(crate) async fn export(&self, run_id: &str) -> Result<String, Status> {
        let request = ExportTurnRequest {
            run_id: run_id.to_owned(),
        };
        let mut pieces = self.agent.clone().export_turn(request).await?.into_inner();
        let mut text = String::new();
        while let Some(piece) = pieces.message().await? {
            text.push_str(&piece.text);
            if piece.ends_line {
                text.push('\n');
            }
        }
        Ok(text)
    }

    /// Follows a run to its end.
    pub(crate) async fn follow(&self, run_id: &str, after_sequence: u64) -> Ended {
        let request = WatchRunRequest {
            run_id: run_id.to_owned(),
            after_sequence,
        };
        let mut records = self
            .runs
            .clone()
            .watch_run(request)
            .await
            .unwrap()
            .into_inner();
        let mut events = Vec::new();
        while let Some(response) = records.message().await.unwrap() {
            match contracts::watch::decode(response.record).unwrap().unwrap() {
                Record::Event(event) => events.push(event),
                Record::Terminal(terminal) => {
                    return Ended {
                        run: terminal.run.unwrap(),
                        events,
                    };
                }
                _ => {}
            }
        }
        panic!("the watch ended before the run: {events:?}");
    }

    /// Follows a run until an event of it is `wanted`.
    pub(crate) async fn until(&self, run_id: &str, wanted: fn(&Kind) -> bool) -> RunEvent {
        let request = WatchRunRequest {
            run_id: run_id.to_owned(),
            after_sequence: 0,
        };
        let mut records = self
            .runs
            .clone()
            .watch_run(request)
            .await
            .unwrap()
            .into_inner();
        while let Some(response) = records.message().await.unwrap() {
            match contracts::watch::decode(response.record).unwrap().unwrap() {
                Record::Event(event) if event.kind.as_ref().is_some_and(wanted) => return event,
                Record::Terminal(terminal) => panic!("the run ended before: {terminal:?}"),
                _ => {}
            }
        }
        panic!("the watch ended before");
    }

    /// Cancels a run.
    pub(crate) async fn cancel(&self, run_id: &str) -> CancelRunResponse {
        let request = CancelRunRequest {
            run_id: run_id.to_owned(),
            reason: "enough".to_owned(),
        };
        self.runs
            .clone()
            .cancel_run(request)
            .await
            .unwrap()
            .into_inner()
    }

    /// Pauses a run.
    pub(crate) async fn pause(&self, run_id: &str) -> Run {
        let request = PauseRunRequest {
            run_id: run_id.to_owned(),
            reason: String::new(),
        };
        let response = self.runs.clone().pause_run(request).await;
        response.unwrap().into_inner().run.unwrap()
    }

    /// Resumes a run.
    pub(crate) async fn resume(&self, run_id: &str) -> Run {
        let request = ResumeRunRequest {
            run_id: run_id.to_owned(),
        };
        let response = self.runs.clone().resume_run(request).await;
        response.unwrap().into_inner().run.unwrap()
    }

    /// Returns a run.
    pub(crate) async fn run(&self, run_id: &str) -> Run {
        let request = GetRunRequest {
            run_id: run_id.to_owned(),
        };
        self.runs
            .clone()
            .get_run(request)
            .await
            .unwrap()
            .into_inner()
            .run
            .unwrap()
    }

    /// Returns the messages of a conversation.
    pub(crate) async fn messages(&self, conversation_id: &str) -> Vec<Message> {
        let request = ListMessagesRequest {
            conversation_id: conversation_id.to_owned(),
            ..Default::default()
        };
        self.conversations
            .clone()
            .list_messages(request)
            .await
            .unwrap()
            .into_inner()
            .messages
    }
}

impl Ended {
    /// Returns the result as text.
    pub(crate) fn text(&self) -> String {
        let outcome = self.run.outcome.as_ref().unwrap();
        serde_json::from_str(&outcome.result_json)
            .unwrap_or_else(|_| panic!("no text: {outcome:?}"))
    }

    /// Returns the reason for which the turn stopped.
    pub(crate) fn stop_reason(&self) -> StopReason {
        self.run.outcome.as_ref().unwrap().stop_reason()
    }

    /// Returns the code of the error.
    pub(crate) fn error_code(&self) -> &str {
        self.run
            .outcome
            .as_ref()
            .unwrap()
            .error
            .as_ref()
            .map_or("", |error| &error.code)
    }

    /// Returns the message of the error.
    pub(crate) fn error_message(&self) -> &str {
        self.run
            .outcome
            .as_ref()
            .unwrap()
            .error
            .as_ref()
            .map_or("", |error| &error.message)
    }

    /// Returns all texts that the model read about its calls.
    pub(crate) fn observations(&self) -> Vec<&str> {
        let observed = |event| match event {
            &RunEvent {
                kind: Some(Kind::Observation(ref observation)),
                ..
            } => Some(observation.text.as_str()),
            _ => None,
        };
        self.events.iter().filter_map(observed).collect()
    }

    /// Returns the kinds of events, in order, as words; pieces of text and of thinking are joined.
    pub(crate) fn story(&self) -> Vec<&'static str> {
        let mut story: Vec<&'static str> = self
            .events
            .iter()
            .map(|event| word(event.kind.as_ref().unwrap()))
            .collect();
        story.dedup_by(|a, b| a == b && matches!(*a, "text" | "thinking"));
        story
    }

    /// Returns the number of events that are `wanted`.
    pub(crate) fn count(&self, wanted: fn(&Kind) -> bool) -> usize {
        self.events
            .iter()
            .filter(|event| event.kind.as_ref().is_some_and(wanted))
            .count()
    }
}

fn word(kind: &Kind) -> &'static str {
    match kind {
        Kind::RunStarted(_) => "started",
        Kind::IterationStarted(_) => "iteration",
        Kind::ModelRequested(_) => "asked",
        Kind::Thinking(_) => "thinking",
        Kind::Text(_) => "text",
        Kind::ModelAnswered(_) => "answered",
        Kind::Diagnosed(_) => "diagnosed",
        Kind::ToolSelected(_) => "selected",
        Kind::CallDispatched(_) => "dispatched",
        Kind::OutputChunk(_) => "output",
        Kind::CallSettled(_) => "settled",
        Kind::NodeStarted(_) => "node",
        Kind::NodeFinished(_) => "node finished",
        Kind::Observation(_) => "observed",
        Kind::RunFinished(_) => "finished",
        Kind::CancelRequested(_) => "cancel",
        Kind::MessageGiven(_) => "given",
        Kind::RunPaused(_) => "paused",
        Kind::RunResumed(_) => "resumed",
        Kind::RunQueued(_) => "queued",
        Kind::RunDequeued(_) => "dequeued",
        Kind::Checkpoint(_) => "checkpoint",
        Kind::OutputReset(_) => "output reset",
        Kind::ProgressReported(_) => "progress",
        Kind::NodeRetrying(_) => "node retrying",
        Kind::IterationFinished(_) => "iteration finished",
        Kind::NodeWaiting(_) => "node waiting",
        Kind::NodeWoken(_) => "node woken",
        Kind::SignalReceived(_) => "signal received",
        Kind::BudgetReached(_) => "budget reached",
        Kind::SteeringAccepted(_) => "steering accepted",
        Kind::Steered(_) => "steered",
        Kind::BudgetsEdited(_) => "budgets edited",
        Kind::ApprovalRequested(_) => "approval requested",
        Kind::ApprovalEnded(_) => "approval ended",
        Kind::CallInDoubt(_) => "call in doubt",
        Kind::CallDecided(_) => "call decided",
        Kind::EventPublished(_) => "event published",
        Kind::EventDropped(_) => "event dropped",
        Kind::EventsTaken(_) => "events taken",
        Kind::EventsHandled(_) => "events handled",
        Kind::SceneWorkflowStarted(_) => "scene workflow started",
        Kind::SceneWorkflowEnded(_) => "scene workflow ended",
        Kind::SceneEnding(_) => "scene ending",
        Kind::ConversationCompacted(_) => "compacted",
        Kind::InstanceSlept(_) => "slept",
        Kind::InstanceWoke(_) => "woke",
        Kind::UsageReported(_) => "used",
        Kind::TurnForked(_) => "forked",
        Kind::ResultTaken(_) => "result taken",
        Kind::HookApplied(_) => "hook applied",
    }
}
