//! A service on a directory of its own, and the helpers of its tests.

pub(crate) mod below;
pub(crate) mod clock;
pub(crate) mod conversations;
pub(crate) mod models;
pub(crate) mod registry;
pub(crate) mod tools;

use std::path::Path;
use std::sync::Arc;

use contracts::tavern::agent::v1::conversation_service_server::ConversationServiceServer;
use contracts::tavern::agent::v1::model_service_server::ModelServiceServer;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::common::v1::{OutputChunk, Run, RunEvent, RunOutcome};
use contracts::tavern::registry::v1::call_service_server::CallServiceServer;
use contracts::tavern::registry::v1::plugin_service_server::PluginServiceServer;
use contracts::tavern::registry::v1::tool_registry_service_server::ToolRegistryServiceServer;
use contracts::tavern::run::v1::{WatchRunRequest, run_service_client::RunServiceClient};
use contracts::tavern::sandbox::v1::script_sandbox_service_server::ScriptSandboxServiceServer;
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use core_types::SystemIds;
use doubles::{Passing, TestRegistry, UnconfinedSandbox, Way};
use grpc_kit::{Outbound, Services};
use serde_json::{Value, json};
use workflow_execution::{Peers, WorkflowExecution, WorkflowSettings};

use clock::MovedClock;
use conversations::ConversationDouble;
use models::ModelDouble;
use registry::RegistryDouble;
use tools::ToolsDouble;

pub(crate) type Client = WorkflowServiceClient<Outbound>;

/// A service with its doubles. Its data outlive it as long as the directory does.
pub(crate) struct World {
    pub(crate) directory: Arc<tempfile::TempDir>,
    pub(crate) registry: RegistryDouble,
    /// The registry itself, where it replaces its double.
    pub(crate) tools: Option<TestRegistry>,
    pub(crate) sandbox: UnconfinedSandbox,
    pub(crate) models: ModelDouble,
    pub(crate) conversations: ConversationDouble,
    pub(crate) clock: MovedClock,
    pub(crate) service: WorkflowExecution,
    pub(crate) client: Client,
    pub(crate) runs: RunServiceClient<Outbound>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A service whose calls go to tool-registry itself, with these tools.
    pub(crate) async fn with_tools(tools: TestRegistry) -> Self {
        Self::begun(Some(tools), |_| {}).await
    }

    pub(crate) async fn with(adjust: impl FnOnce(&mut WorkflowSettings)) -> Self {
        Self::begun(None, adjust).await
    }

    async fn begun(
        tools: Option<TestRegistry>,
        adjust: impl FnOnce(&mut WorkflowSettings),
    ) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        Self::on(
            directory,
            (RegistryDouble::default(), tools),
            UnconfinedSandbox::default(),
            ModelDouble::default(),
            ConversationDouble::default(),
            MovedClock::default(),
            adjust,
        )
        .await
    }

    async fn on(
        directory: Arc<tempfile::TempDir>,
        (registry, tools): (RegistryDouble, Option<TestRegistry>),
        sandbox: UnconfinedSandbox,
        models: ModelDouble,
        conversations: ConversationDouble,
        clock: MovedClock,
        adjust: impl FnOnce(&mut WorkflowSettings),
    ) -> Self {
        telemetry::init_for_tests();
        let mut settings = WorkflowSettings {
            data_dir: directory.path().join("data"),
            workflows_dir: deploy().join("workflows"),
            ..WorkflowSettings::default()
        };
        adjust(&mut settings);
        let services = match &tools {
            Some(tools) => {
                let way = Way::to(tools.connect(grpc_kit::local(&Services::new())).await);
                Services::new()
                    .add(Passing::<CallServiceServer<()>>::over(&way))
                    .add(Passing::<ToolRegistryServiceServer<()>>::over(&way))
                    .add(Passing::<PluginServiceServer<()>>::over(&way))
            }
            None => Services::new()
                .add(CallServiceServer::new(registry.clone()))
                .add(ToolRegistryServiceServer::new(ToolsDouble)),
        };
        let services = services
            .add(registry.identities.clone())
            .add(ScriptSandboxServiceServer::new(sandbox.clone()))
            .add(ModelServiceServer::new(models.clone()))
            .add(ConversationServiceServer::new(conversations.clone()));
        let transport = grpc_kit::local(&services);
        let peers = Peers::over(transport.clone(), transport.clone(), transport);
        let (of_service, ids) = (Arc::new(clock.clone()), Arc::new(SystemIds));
        let built = workflow_execution::build_with(settings, peers, of_service, ids);
        let service = built.await.unwrap();
        let transport = grpc_kit::local(&service.services());
        registry.below().reach(transport.clone());
        Self {
            directory,
            registry,
            tools,
            sandbox,
            models,
            conversations,
            clock,
            service,
            client: Client::new(transport.clone().outermost()),
            runs: RunServiceClient::new(transport.outermost()),
        }
    }

    /// Ends the process, as far as runs can tell, and starts it again on the same data.
    pub(crate) async fn restart(self) -> Self {
        self.restart_with(|_| {}).await
    }

    /// Restarts it with other settings.
    pub(crate) async fn restart_with(self, adjust: impl FnOnce(&mut WorkflowSettings)) -> Self {
        self.service.shutdown().await;
        let Self {
            directory,
            registry,
            tools,
            sandbox,
            models,
            conversations,
            clock,
            service,
            client,
            runs,
        } = self;
        drop((service, client, runs));
        let again = Self::on(
            directory,
            (registry, tools),
            sandbox,
            models,
            conversations,
            clock,
            adjust,
        )
        .await;
        again.service.recover().await.unwrap();
        again
    }

    /// Copies the present files of the disk.
    pub(crate) fn copy_of_data(&self) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (
            self.directory.path().join("data"),
            directory.path().join("data"),
        );
        std::fs::create_dir(&to).unwrap();
        for file in std::fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        directory
    }

    /// Starts another process on the present files of the disk, as after a kill. The earlier one
    /// sends no more requests.
    pub(crate) async fn killed(self) -> Self {
        let directory = Arc::new(self.copy_of_data());
        self.service.shutdown().await;
        let again = Self::on(
            directory,
            (self.registry.clone(), self.tools.clone()),
            self.sandbox.clone(),
            self.models.clone(),
            self.conversations.clone(),
            self.clock.clone(),
            |_| {},
        )
        .await;
        again.service.recover().await.unwrap();
        again
    }

    /// Follows a run until a chunk was written after the given number of restarts of its script.
    pub(crate) async fn until_chunk(&self, run_id: &str, restarts: usize) -> OutputChunk {
        let request = WatchRunRequest {
            run_id: run_id.to_owned(),
            after_sequence: 0,
        };
        let records = self.runs.clone().watch_run(request).await.unwrap();
        let (mut records, mut resets) = (records.into_inner(), 0);
        while let Some(response) = records.message().await.unwrap() {
            let Some(Record::Event(event)) = contracts::watch::decode(response.record).unwrap()
            else {
                continue;
            };
            match event.kind.unwrap() {
                Kind::OutputReset(_) => resets += 1,
                Kind::OutputChunk(chunk) if resets == restarts => return chunk,
                _ => {}
            }
        }
        panic!("the run ended and wrote nothing");
    }

    /// Starts a run of a definition and returns it.
    pub(crate) async fn start(&self, definition: &Value, inputs: Value) -> Run {
        self.begin(of_definition(definition, inputs)).await
    }

    /// Starts a run of a valid request.
    pub(crate) async fn begin(&self, request: StartRunRequest) -> Run {
        let started = self.client.clone().start_run(request).await;
        started.unwrap().into_inner().run.unwrap()
    }

    /// Runs a definition to its end.
    pub(crate) async fn run(&self, definition: &Value, inputs: Value) -> RunOutcome {
        let run = self.start(definition, inputs).await;
        self.outcome(&run.run_id).await
    }

    /// Waits for the end of a run.
    pub(crate) async fn outcome(&self, run_id: &str) -> RunOutcome {
        let events = self.events(run_id).await;
        match events.last().and_then(|event| event.kind.clone()) {
            Some(Kind::RunFinished(finished)) => finished.outcome.unwrap(),
            other => panic!("the last event is {other:?}"),
        }
    }

    /// Follows a run to its end and returns all its events.
    pub(crate) async fn events(&self, run_id: &str) -> Vec<RunEvent> {
        self.events_until(run_id, |_| false).await
    }

    /// Follows a run until an event is `wanted`.
    pub(crate) async fn events_until(
        &self,
        run_id: &str,
        wanted: impl Fn(&Kind) -> bool,
    ) -> Vec<RunEvent> {
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
        let mut events: Vec<RunEvent> = Vec::new();
        while let Some(record) = records.message().await.unwrap() {
            match contracts::watch::decode(record.record).unwrap() {
                Some(Record::Event(event)) => {
                    assert_eq!(event.sequence, events.len() as u64 + 1);
                    let found = event.kind.as_ref().is_some_and(&wanted);
                    events.push(event);
                    if found {
                        break;
                    }
                }
                Some(Record::Terminal(_)) => break,
                _ => {}
            }
        }
        events
    }
}

/// Makes a request for a run of a definition that is not stored.
pub(crate) fn of_definition(definition: &Value, inputs: Value) -> StartRunRequest {
    StartRunRequest {
        target: Some(Target::DefinitionJson(definition.to_string())),
        inputs_json: inputs.to_string(),
        ..StartRunRequest::default()
    }
}

/// Makes a request for a run of a stored workflow.
pub(crate) fn of_workflow(id: &str, inputs: Value) -> StartRunRequest {
    StartRunRequest {
        target: Some(Target::WorkflowId(id.to_owned())),
        inputs_json: inputs.to_string(),
        ..StartRunRequest::default()
    }
}

/// The directory with the example files.
pub(crate) fn deploy() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy")
}

/// The result of a run that succeeded.
#[track_caller]
pub(crate) fn result(outcome: &RunOutcome) -> Value {
    assert_eq!(outcome.error, None);
    serde_json::from_str(&outcome.result_json).unwrap()
}

/// The events as one word each, with the node if it has one.
pub(crate) fn words(events: &[RunEvent]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| event.kind.as_ref())
        .map(|kind| match kind {
            Kind::RunStarted(_) => "run started".to_owned(),
            Kind::NodeStarted(started) => format!("{} started", started.node_id),
            Kind::NodeFinished(finished) => {
                let state = finished
                    .state()
                    .as_str_name()
                    .trim_start_matches("NODE_STATE_")
                    .to_lowercase();
                format!("{} {state}", finished.node_id)
            }
            Kind::CallDispatched(dispatched) => format!("{} dispatched", dispatched.node_id),
            Kind::CallSettled(_) => "call settled".to_owned(),
            Kind::RunFinished(_) => "run finished".to_owned(),
            Kind::CancelRequested(_) => "cancel requested".to_owned(),
            Kind::RunPaused(paused) => format!("run paused: {}", paused.reason),
            Kind::NodeRetrying(retrying) => {
                format!("{} attempt {} failed", retrying.node_id, retrying.attempt)
            }
            Kind::IterationFinished(finished) => {
                format!("iteration {} of {}", finished.index, finished.node_id)
            }
            Kind::RunResumed(_) => "run resumed".to_owned(),
            Kind::RunQueued(_) => "run queued".to_owned(),
            Kind::RunDequeued(_) => "run dequeued".to_owned(),
            Kind::NodeWaiting(waiting) => {
                format!("{} waiting", waiting.wait.as_ref().unwrap().node_id)
            }
            Kind::NodeWoken(woken) => {
                let cause = woken.cause().as_str_name();
                let cause = cause.trim_start_matches("WAKE_CAUSE_").to_lowercase();
                format!("{} woken: {cause}", woken.node_id)
            }
            Kind::SignalReceived(signal) => format!("signal {}", signal.name),
            Kind::OutputReset(_) => "output reset".to_owned(),
            Kind::OutputChunk(chunk) => format!("chunk {}", chunk.text),
            other => format!("{other:?}"),
        })
        .collect()
}

/// A node that calls a tool of the registry's double.
pub(crate) fn tool(id: &str, tool_id: &str) -> Value {
    json!({"id": id, "type": "core:ExecuteTool", "inputValues": {"tool_id": tool_id}})
}

/// A node that runs a Python script.
pub(crate) fn python(id: &str, code: &str) -> Value {
    let prelude = "import json, os\ninputs = json.load(open(os.environ['TAVERN_INPUT_PATH']))\n\
                   def give(value): os.write(3, json.dumps(value).encode())\n";
    json!({"id": id, "type": "core:Script", "inputValues": {"code": format!("{prelude}{code}")}})
}

/// An edge.
pub(crate) fn edge(source: &str, source_handle: &str, target: &str, target_handle: &str) -> Value {
    json!({"source": source, "sourceHandle": source_handle, "target": target, "targetHandle": target_handle})
}
