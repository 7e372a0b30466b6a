//! The runs of workflows that the registry's double starts at the service under test, as the
//! registry does: under the effect id, so that a repeated call finds its run.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contracts::tavern::common::v1::{CallResult, CallStatus, Run, RunState};
use contracts::tavern::registry::v1::call_tool_response::Record;
use contracts::tavern::registry::v1::{CallToolRequest, CallToolResponse};
use contracts::tavern::run::v1::CancelRunRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use futures::stream::{Stream, StreamExt};
use grpc_kit::{CallContext, Transport};
use run_client::{ChildRun, Followed};
use serde_json::{Map, Value};
use tonic::Status;

const WORKFLOW: &str = "workflow:";

/// The longest time for which a run is followed.
const FOLLOW_LIMIT: Duration = Duration::from_secs(60);

/// The runs below others, by the effect that they are. Clones are handles of the same.
#[derive(Clone, Default)]
pub(crate) struct RunsBelow {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The connection to the service.
    service: Option<Transport>,
    run_ids: BTreeMap<String, String>,
}

impl RunsBelow {
    /// Sets the connection to the service, anew after each restart.
    pub(crate) fn reach(&self, service: Transport) {
        self.state.lock().unwrap().service = Some(service);
    }

    /// The runs so far, by effect.
    pub(crate) fn run_ids(&self) -> BTreeMap<String, String> {
        self.state.lock().unwrap().run_ids.clone()
    }

    /// Whether a request is for a workflow of the service.
    pub(super) fn carries_out(request: &CallToolRequest) -> bool {
        request.tool_id.starts_with(WORKFLOW) && request.tool_id != "workflow:run_and_report"
    }

    /// Starts a run, or finds it, and shows its events and its end.
    pub(super) fn call(
        &self,
        context: CallContext,
        request: CallToolRequest,
    ) -> impl Stream<Item = Result<CallToolResponse, Status>> + Send + use<> {
        let below = self.clone();
        async_stream::try_stream! {
            let run_id = below.start(&context, &request).await?;
            let run = ChildRun::of(&below.service(), &context, run_id);
            let until = tokio::time::Instant::now() + FOLLOW_LIMIT;
            let mut followed = pin!(run.follow(0, until));
            while let Some(next) = followed.next().await {
                let (record, is_last) = match next? {
                    Followed::Event(event) => (Record::Event(*event), false),
                    Followed::Ended(run) => (Record::Result(result_of(&request, &run)), true),
                };
                yield CallToolResponse { record: Some(record) };
                if is_last {
                    return;
                }
            }
        }
    }

    async fn start(
        &self,
        context: &CallContext,
        request: &CallToolRequest,
    ) -> Result<String, Status> {
        let workflow_id = request.tool_id.trim_start_matches(WORKFLOW).to_owned();
        let start = StartRunRequest {
            request_id: request.effect_id.clone(),
            target: Some(Target::WorkflowId(workflow_id)),
            inputs_json: request.arguments_json.clone(),
            ..StartRunRequest::default()
        };
        let mut client = WorkflowServiceClient::new(self.service().with(context));
        let started = client.start_run(start).await?.into_inner();
        let run_id = started.run.unwrap_or_default().run_id;
        let run_ids = &mut self.state.lock().unwrap().run_ids;
        run_ids.insert(request.effect_id.clone(), run_id.clone());
        Ok(run_id)
    }

    /// Cancels the run of a call, if it has one.
    pub(super) async fn cancel(&self, effect_id: &str, reason: &str) -> Result<(), Status> {
        let run_id = self.run_ids().get(effect_id).cloned();
        let Some(run_id) = run_id else {
            return Ok(());
        };
        let request = CancelRunRequest {
            run_id,
            reason: reason.to_owned(),
        };
        let mut client = RunServiceClient::new(self.service().outermost());
        client.cancel_run(request).await.map(drop)
    }

    fn service(&self) -> Transport {
        let state = self.state.lock().unwrap();
        state.service.clone().unwrap()
    }
}

fn result_of(request: &CallToolRequest, run: &Run) -> CallResult {
    let outcome = run.outcome.clone().unwrap_or_default();
    let status = match outcome.state() {
        RunState::Succeeded => CallStatus::Succeeded,
        RunState::Cancelled => CallStatus::Cancelled,
        _ => CallStatus::Failed,
    };
    let outputs: Map<String, Value> =
        serde_json::from_str(&outcome.result_json).unwrap_or_default();
    let output = match outputs.len() {
        0 => String::new(),
        1 => outputs.values().map(Value::to_string).collect(),
        _ => Value::Object(outputs).to_string(),
    };
    CallResult {
        effect_id: request.effect_id.clone(),
        tool_id: request.tool_id.clone(),
        status: status.into(),
        output_json: output,
        error: outcome.error,
        child_run_id: run.run_id.clone(),
        ..CallResult::default()
    }
}
