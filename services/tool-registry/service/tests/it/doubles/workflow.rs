//! A workflow service whose runs are played: a run gives its inputs back, fails, or continues until it
//! is let go or cancelled, by the id of its workflow.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex},
};

use contracts::tavern::{
    common::v1::{
        CallError, ErrorReason, NodeStarted, OutputChunk, OutputStream, PendingWork, Run, RunEvent,
        RunOutcome, RunStarted, RunState, WatchEnd, WorkKind, run_event::Kind,
        watch_record::Record,
    },
    run::v1::{
        AnswerWaitRequest, AnswerWaitResponse, CancelRunRequest, CancelRunResponse,
        DeleteRunRequest, DeleteRunResponse, GetRunRequest, GetRunResponse, ListQuestionsRequest,
        ListQuestionsResponse, ListRunsRequest, ListRunsResponse, ListWaitsRequest,
        ListWaitsResponse, PauseRunRequest, PauseRunResponse, ResumeRunRequest, ResumeRunResponse,
        SignalRunRequest, SignalRunResponse, WatchRunRequest, WatchRunResponse,
        run_service_server::RunService,
    },
    workflow::v1::{
        BatchGetWorkflowsRequest, BatchGetWorkflowsResponse, DataFlowType, DeleteWorkflowRequest,
        DeleteWorkflowResponse, ForkRunRequest, ForkRunResponse, GetToolChoiceRequest,
        GetToolChoiceResponse, GetWorkflowRequest, GetWorkflowResponse, ListNodeTypesRequest,
        ListNodeTypesResponse, ListWorkflowsRequest, ListWorkflowsResponse, NodeMode, NodeType,
        PutWorkflowRequest, PutWorkflowResponse, ReloadWorkflowsRequest, ReloadWorkflowsResponse,
        Slot, StartRunRequest, StartRunResponse, ValidateWorkflowRequest, ValidateWorkflowResponse,
        Workflow, start_run_request::Target, workflow_service_server::WorkflowService,
    },
};
use futures::Stream;
use grpc_kit::Failure;
use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status};

/// Runs by id, each followed through a channel.
type Runs = BTreeMap<String, watch::Sender<Run>>;

/// A workflow service whose runs are played.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlayedWorkflows {
    pub(crate) definitions: Arc<Mutex<BTreeMap<String, Value>>>,
    pub(crate) started: Arc<Mutex<Vec<StartRunRequest>>>,
    runs: Arc<Mutex<Runs>>,
    /// Makes cancels go unheard.
    pub(crate) deaf: Arc<Mutex<bool>>,
    /// Lets starts go unanswered, although they happen.
    pub(crate) silent: Arc<Mutex<bool>>,
    /// The metadata of the `GetWorkflow` requests, key and value.
    pub(crate) seen: Arc<Mutex<Vec<(String, String)>>>,
    /// The output of each run, chunk by chunk.
    pub(crate) writes: Arc<Mutex<Vec<String>>>,
}

impl PlayedWorkflows {
    pub(crate) fn put(&self, id: &str, definition: Value) {
        self.definitions
            .lock()
            .unwrap()
            .insert(id.to_owned(), definition);
    }

    /// Ends every run that continues.
    pub(crate) fn let_go(&self) {
        for run in self.runs.lock().unwrap().values() {
            run.send_modify(|run| {
                run.outcome
                    .get_or_insert(succeeded(&json!({"out": "let go"})));
            });
        }
    }

    /// The number of runs that continue.
    pub(crate) fn open_count(&self) -> usize {
        let runs = self.runs.lock().unwrap();
        let open = runs.values().filter(|run| run.borrow().outcome.is_none());
        open.count()
    }

    pub(crate) fn run_count(&self) -> usize {
        self.runs.lock().unwrap().len()
    }

    fn workflow(&self, id: &str) -> Option<Workflow> {
        let definition = self.definitions.lock().unwrap().get(id)?.clone();
        let text = definition.to_string();
        Some(Workflow {
            workflow_id: id.to_owned(),
            name: definition["name"].as_str().unwrap_or_default().to_owned(),
            etag: format!("{:x}", text.len()),
            definition_json: text,
            ..Workflow::default()
        })
    }

    fn run(&self, id: &str) -> Result<watch::Sender<Run>, Status> {
        let found = self.runs.lock().unwrap().get(id).cloned();
        found.ok_or_else(|| {
            Failure::new(Code::NotFound, ErrorReason::RunNotFound, "no such run").into_status()
        })
    }
}

fn succeeded(outputs: &Value) -> RunOutcome {
    RunOutcome {
        state: RunState::Succeeded.into(),
        result_json: outputs.to_string(),
        ..RunOutcome::default()
    }
}

fn ended(state: RunState, code: &str) -> RunOutcome {
    let error = CallError {
        code: code.to_owned(),
        message: code.to_owned(),
        category: 4,
        ..CallError::default()
    };
    RunOutcome {
        state: state.into(),
        error: Some(error),
        ..RunOutcome::default()
    }
}

fn outcome_of(request: &StartRunRequest) -> Option<RunOutcome> {
    let inputs: Value = serde_json::from_str(&request.inputs_json).unwrap();
    match request.target.as_ref().unwrap() {
        Target::WorkflowId(id) if id == "hold" => None,
        Target::WorkflowId(id) if id == "fail" => Some(ended(RunState::Failed, "node_failed")),
        Target::WorkflowId(id) if id == "busy" => {
            let mut busy = ended(RunState::Failed, "node_busy");
            busy.error.as_mut().unwrap().retryable = true;
            Some(busy)
        }
        Target::WorkflowId(id) if id == "unknown" => {
            Some(ended(RunState::InDoubt, "unsettled_after_crash"))
        }
        Target::WorkflowId(id) if id == "two" => Some(succeeded(&json!({"a": 1, "b": inputs}))),
        _ => Some(succeeded(&json!({"out": inputs}))),
    }
}

#[tonic::async_trait]
impl WorkflowService for PlayedWorkflows {
    async fn put_workflow(
        &self,
        _: Request<PutWorkflowRequest>,
    ) -> Result<Response<PutWorkflowResponse>, Status> {
        Err(Status::unimplemented("the double does not save"))
    }

    async fn fork_run(
        &self,
        _: Request<ForkRunRequest>,
    ) -> Result<Response<ForkRunResponse>, Status> {
        Err(Status::unimplemented("the double does not fork"))
    }

    async fn get_workflow(
        &self,
        request: Request<GetWorkflowRequest>,
    ) -> Result<Response<GetWorkflowResponse>, Status> {
        for key in [
            "tavern-effect-id",
            "tavern-conversation-id",
            "traceparent",
            "grpc-timeout",
        ] {
            if let Some(value) = request.metadata().get(key) {
                self.seen
                    .lock()
                    .unwrap()
                    .push((key.to_owned(), value.to_str().unwrap().to_owned()));
            }
        }
        let id = request.into_inner().workflow_id;
        let workflow = self.workflow(&id).ok_or_else(|| {
            Failure::new(
                Code::NotFound,
                ErrorReason::WorkflowNotFound,
                "no such workflow",
            )
            .into_status()
        })?;
        Ok(Response::new(GetWorkflowResponse {
            workflow: Some(workflow),
        }))
    }

    async fn batch_get_workflows(
        &self,
        _: Request<BatchGetWorkflowsRequest>,
    ) -> Result<Response<BatchGetWorkflowsResponse>, Status> {
        Err(Status::unimplemented("the double returns one at a time"))
    }

    async fn delete_workflow(
        &self,
        _: Request<DeleteWorkflowRequest>,
    ) -> Result<Response<DeleteWorkflowResponse>, Status> {
        Err(Status::unimplemented("the double does not delete"))
    }

    async fn reload_workflows(
        &self,
        _: Request<ReloadWorkflowsRequest>,
    ) -> Result<Response<ReloadWorkflowsResponse>, Status> {
        Err(Status::unimplemented("the double has no directory"))
    }

    async fn list_workflows(
        &self,
        _: Request<ListWorkflowsRequest>,
    ) -> Result<Response<ListWorkflowsResponse>, Status> {
        let ids: Vec<String> = self.definitions.lock().unwrap().keys().cloned().collect();
        let workflows = ids.iter().filter_map(|id| self.workflow(id)).collect();
        Ok(Response::new(ListWorkflowsResponse {
            workflows,
            next_page_token: String::new(),
            ..Default::default()
        }))
    }

    /// Every workflow has `read` for its models, of whose nodes `ask` adds `give`.
    async fn get_tool_choice(
        &self,
        request: Request<GetToolChoiceRequest>,
    ) -> Result<Response<GetToolChoiceResponse>, Status> {
        let listed: &[&str] = match request.into_inner().node_path.as_str() {
            "ask" => &["read", "give"],
            _ => &["read"],
        };
        Ok(Response::new(GetToolChoiceResponse {
            initial_tool_ids: vec!["read".to_owned()],
            listed_tool_ids: listed.iter().map(|id| (*id).to_owned()).collect(),
            has_listing_nodes: true,
            etag: "1".to_owned(),
        }))
    }

    async fn validate_workflow(
        &self,
        _: Request<ValidateWorkflowRequest>,
    ) -> Result<Response<ValidateWorkflowResponse>, Status> {
        Ok(Response::new(ValidateWorkflowResponse::default()))
    }

    async fn list_node_types(
        &self,
        _: Request<ListNodeTypesRequest>,
    ) -> Result<Response<ListNodeTypesResponse>, Status> {
        let slot = Slot {
            key: "text".into(),
            data_flow_type: DataFlowType::String.into(),
            required: true,
            ..Slot::default()
        };
        let node = NodeType {
            full_type: "core:Echo".into(),
            display_name: "Echo".into(),
            description: "Gives its text back.".into(),
            inputs: vec![slot],
            pure: true,
            ..NodeType::default()
        };
        let act = NodeType {
            full_type: "letters:Send".into(),
            pure: false,
            ..node.clone()
        };
        let number = |key: &str| Slot {
            key: key.into(),
            data_flow_type: DataFlowType::Float.into(),
            ..Slot::default()
        };
        let mode = |mode_id: &str, inputs: &[&str]| NodeMode {
            mode_id: mode_id.into(),
            inputs: inputs.iter().map(|key| number(key)).collect(),
            outputs: Vec::new(),
        };
        let settings = json!({"properties": {
            "mode": {"type": "string"},
            "round": {"type": "boolean"},
        }});
        let calculate = NodeType {
            full_type: "numbers:Calculate".into(),
            inputs: ["a", "b", "c"].map(number).into(),
            mode_config_key: "mode".into(),
            modes: vec![mode("add", &["a", "b"]), mode("root", &["c"])],
            config_schema_json: settings.to_string(),
            ..node.clone()
        };
        Ok(Response::new(ListNodeTypesResponse {
            node_types: vec![node, act, calculate],
            next_page_token: String::new(),
        }))
    }

    async fn start_run(
        &self,
        request: Request<StartRunRequest>,
    ) -> Result<Response<StartRunResponse>, Status> {
        let request = request.into_inner();
        if matches!(&request.target, Some(Target::WorkflowId(id)) if id == "lost") {
            let broken = Failure::dependency_unavailable("workflow").after_sending();
            return Err(broken.into_status());
        }
        let earlier = {
            let started = self.started.lock().unwrap();
            started.iter().position(|each| {
                !each.request_id.is_empty() && each.request_id == request.request_id
            })
        };
        if let Some(place) = earlier {
            let same = self.started.lock().unwrap()[place] == request;
            if !same {
                let reason = ErrorReason::RequestIdReused;
                return Err(Failure::new(Code::AlreadyExists, reason, "another body").into_status());
            }
            let run = self.run(&run_id(place))?.borrow().clone();
            return Ok(Response::new(StartRunResponse {
                run: Some(run),
                replayed: true,
            }));
        }
        let run = {
            let mut started = self.started.lock().unwrap();
            let run = Run {
                run_id: run_id(started.len()),
                request_id: request.request_id.clone(),
                outcome: outcome_of(&request),
                ..Run::default()
            };
            started.push(request);
            run
        };
        self.runs
            .lock()
            .unwrap()
            .insert(run.run_id.clone(), watch::Sender::new(run.clone()));
        if *self.silent.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(StartRunResponse {
            run: Some(run),
            replayed: false,
        }))
    }
}

#[tonic::async_trait]
impl RunService for PlayedWorkflows {
    type WatchRunStream = Pin<Box<dyn Stream<Item = Result<WatchRunResponse, Status>> + Send>>;

    async fn get_run(
        &self,
        request: Request<GetRunRequest>,
    ) -> Result<Response<GetRunResponse>, Status> {
        let run = self.run(&request.into_inner().run_id)?.borrow().clone();
        Ok(Response::new(GetRunResponse { run: Some(run) }))
    }

    async fn list_runs(
        &self,
        _: Request<ListRunsRequest>,
    ) -> Result<Response<ListRunsResponse>, Status> {
        Err(Status::unimplemented("the double lists no runs"))
    }

    async fn watch_run(
        &self,
        request: Request<WatchRunRequest>,
    ) -> Result<Response<Self::WatchRunStream>, Status> {
        let request = request.into_inner();
        let mut run = self.run(&request.run_id)?.subscribe();
        let mut events = vec![
            Kind::RunStarted(RunStarted::default()),
            Kind::NodeStarted(NodeStarted {
                node_id: "n1".into(),
                node_type: "core:Echo".into(),
            }),
        ];
        let writes = self.writes.lock().unwrap().clone();
        events.extend(writes.into_iter().map(|text| {
            Kind::OutputChunk(OutputChunk {
                stream: OutputStream::Out.into(),
                text,
                ..OutputChunk::default()
            })
        }));
        let stream = async_stream::stream! {
            for (kind, sequence) in events.into_iter().zip(1..) {
                if sequence > request.after_sequence {
                    let event = RunEvent { sequence, run_id: request.run_id.clone(), kind: Some(kind), ..RunEvent::default() };
                    yield Ok(response(Record::Event(event)));
                }
            }
            if run.wait_for(|run| run.outcome.is_some()).await.is_ok() {
                let run = run.borrow().clone();
                yield Ok(response(Record::Terminal(WatchEnd { run: Some(run) })));
            }
        };
        Ok(Response::new(Box::pin(stream)))
    }

    async fn pause_run(
        &self,
        _: Request<PauseRunRequest>,
    ) -> Result<Response<PauseRunResponse>, Status> {
        Err(Status::unimplemented("the double does not pause"))
    }

    async fn resume_run(
        &self,
        _: Request<ResumeRunRequest>,
    ) -> Result<Response<ResumeRunResponse>, Status> {
        Err(Status::unimplemented("the double does not pause"))
    }

    async fn signal_run(
        &self,
        _: Request<SignalRunRequest>,
    ) -> Result<Response<SignalRunResponse>, Status> {
        Err(Status::unimplemented("the double does not wait"))
    }

    async fn answer_wait(
        &self,
        _: Request<AnswerWaitRequest>,
    ) -> Result<Response<AnswerWaitResponse>, Status> {
        Err(Status::unimplemented("the double does not wait"))
    }

    async fn list_waits(
        &self,
        _: Request<ListWaitsRequest>,
    ) -> Result<Response<ListWaitsResponse>, Status> {
        Err(Status::unimplemented("the double does not wait"))
    }

    async fn list_questions(
        &self,
        _: Request<ListQuestionsRequest>,
    ) -> Result<Response<ListQuestionsResponse>, Status> {
        Err(Status::unimplemented("the double does not wait"))
    }

    async fn delete_run(
        &self,
        _: Request<DeleteRunRequest>,
    ) -> Result<Response<DeleteRunResponse>, Status> {
        Err(Status::unimplemented("the double keeps its runs"))
    }

    async fn cancel_run(
        &self,
        request: Request<CancelRunRequest>,
    ) -> Result<Response<CancelRunResponse>, Status> {
        let run = self.run(&request.into_inner().run_id)?;
        if !*self.deaf.lock().unwrap() {
            run.send_modify(|run| {
                run.outcome
                    .get_or_insert(ended(RunState::Cancelled, "cancelled"));
            });
        }
        let run = run.borrow().clone();
        let still_running = if run.outcome.is_none() {
            vec![PendingWork {
                kind: WorkKind::Run.into(),
                id: run.run_id.clone(),
            }]
        } else {
            Vec::new()
        };
        Ok(Response::new(CancelRunResponse {
            run: Some(run),
            still_running,
        }))
    }
}

fn run_id(place: usize) -> String {
    format!("flow_{place:032x}")
}

fn response(record: Record) -> WatchRunResponse {
    WatchRunResponse {
        record: contracts::watch::encode(record),
    }
}
