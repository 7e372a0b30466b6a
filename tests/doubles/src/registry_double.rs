//! A double of tool-registry: tools with fixed behaviour, and a ledger in memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use contracts::tavern::{
    common::v1::{
        CallError, CallResult, CallStatus, ErrorCategory, ErrorReason, OutputChunk, OutputStream,
        RunEvent, run_event::Kind,
    },
    registry::v1::{
        self as proto, BatchGetToolsRequest, BatchGetToolsResponse, CallToolRequest,
        CallToolResponse, CancelCallRequest, CancelCallResponse, ImplementationType,
        ListToolsRequest, ListToolsResponse, Tool,
        call_service_server::{CallService, CallServiceServer},
        call_tool_response::Record,
        tool_registry_service_server::{ToolRegistryService, ToolRegistryServiceServer},
    },
};
use futures::stream::BoxStream;
use grpc_kit::{Failure, Services};
use serde_json::Value;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status};

use crate::tools::{Declared, Played, PlayedTools};

/// A call that was dispatched.
#[derive(Debug)]
struct Effect {
    /// The request: the tool and its arguments.
    body: (String, Value),
    cancel: watch::Sender<bool>,
    settled: watch::Receiver<Option<CallResult>>,
}

/// The double. Clones share it; it survives the service that calls it.
#[derive(Clone, Debug, Default)]
pub struct RegistryDouble {
    tools: PlayedTools,
    effects: Arc<Mutex<HashMap<String, Effect>>>,
}

impl RegistryDouble {
    /// Creates the double with its tools.
    pub fn with(tools: PlayedTools) -> Self {
        Self {
            tools,
            effects: Arc::default(),
        }
    }

    /// Returns the services of the registry that it plays.
    pub fn services(&self) -> Services {
        Services::new()
            .add(ToolRegistryServiceServer::new(self.clone()))
            .add(CallServiceServer::new(self.clone()))
    }

    /// Joins the call of an effect, or dispatches it. Returns a receiver of its end, and whether it
    /// had ended before.
    fn join(
        &self,
        request: &CallToolRequest,
    ) -> Result<(watch::Receiver<Option<CallResult>>, bool), Failure> {
        if let Some(code) = self.tools.refusal(&request.tool_id, &request.effect_id) {
            return Err(Failure::new(code, ErrorReason::Unspecified, "as asked"));
        }
        let mut effects = self.effects.lock().unwrap();
        let arguments: Value = serde_json::from_str(&request.arguments_json).unwrap();
        let body = (request.tool_id.clone(), arguments);
        if let Some(effect) = effects.get(&request.effect_id) {
            if effect.body != body {
                let message = "the effect id was used before with another body; use a new one";
                let reason = ErrorReason::RequestIdReused;
                return Err(Failure::new(Code::AlreadyExists, reason, message));
            }
            let has_ended = effect.settled.borrow().is_some();
            return Ok((effect.settled.clone(), has_ended));
        }
        let (cancel, cancelled) = watch::channel(false);
        let (settle, settled) = watch::channel(None);
        let (double, dispatched, arguments) = (self.clone(), request.clone(), body.1.clone());
        // A task of its own, as in the registry: a call outlives its caller.
        tokio::spawn(async move {
            let result = double.execute(&dispatched, &arguments, cancelled).await;
            // It fails if no caller is left.
            let _ = settle.send(Some(result));
        });
        let effect = Effect {
            body,
            cancel,
            settled: settled.clone(),
        };
        if !request.effect_id.is_empty() {
            effects.insert(request.effect_id.clone(), effect);
        }
        Ok((settled, false))
    }

    async fn execute(
        &self,
        request: &CallToolRequest,
        arguments: &Value,
        mut cancelled: watch::Receiver<bool>,
    ) -> CallResult {
        let result = CallResult {
            index: request.index,
            effect_id: request.effect_id.clone(),
            tool_id: request.tool_id.clone(),
            ..CallResult::default()
        };
        let ended = |status: CallStatus, category: ErrorCategory, code: &str, message: &str| {
            let error = CallError {
                category: category.into(),
                code: code.to_owned(),
                message: message.to_owned(),
                ..CallError::default()
            };
            CallResult {
                status: status.into(),
                error: Some(error),
                ..result.clone()
            }
        };
        let id = request.tool_id.as_str();
        if !self.tools.declared().iter().any(|tool| tool.id == id) {
            let (message, category) = (
                format!("no tool has the id `{id}`"),
                ErrorCategory::Validation,
            );
            return ended(CallStatus::Rejected, category, "unknown_tool", &message);
        }
        let played = tokio::select! {
            played = self.tools.play(id, &request.effect_id, arguments) => played,
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                let category = ErrorCategory::Cancelled;
                return ended(CallStatus::Cancelled, category, "cancelled", "the call was cancelled");
            }
        };
        match played {
            Played::Gave(output) => CallResult {
                status: CallStatus::Succeeded.into(),
                output_json: output.to_string(),
                ..result
            },
            Played::Failed(message) => ended(
                CallStatus::Failed,
                ErrorCategory::Domain,
                "script_error",
                message,
            ),
            Played::Lost => {
                let category = ErrorCategory::Dependency;
                ended(
                    CallStatus::InDoubt,
                    category,
                    "sandbox_lost",
                    "the tool is lost",
                )
            }
        }
    }
}

/// Returns a tool as the registry describes it.
fn described(tool: &Declared) -> Tool {
    let implementation = match tool.id.starts_with("workflow:") {
        true => ImplementationType::Workflow,
        false => ImplementationType::Service,
    };
    Tool {
        tool_id: tool.id.clone(),
        description: format!("The tool {}.", tool.id),
        parameters_json: tool.schema.to_string(),
        read_only: tool.read_only,
        parallel_safe: tool.parallel_safe,
        implementation: implementation.into(),
        ..Tool::default()
    }
}

fn chunk(request: &CallToolRequest) -> RunEvent {
    RunEvent {
        run_id: "call_00000000000000000000000000000001".to_owned(),
        parent_path: vec!["above".to_owned()],
        kind: Some(Kind::OutputChunk(OutputChunk {
            effect_id: request.effect_id.clone(),
            stream: OutputStream::Err.into(),
            text: format!("{} works", request.tool_id),
            ..OutputChunk::default()
        })),
        ..RunEvent::default()
    }
}

#[tonic::async_trait]
impl CallService for RegistryDouble {
    type CallToolStream = BoxStream<'static, Result<CallToolResponse, Status>>;
    type InvokeCallsStream = BoxStream<'static, Result<proto::InvokeCallsResponse, Status>>;
    type WatchCallStream = BoxStream<'static, Result<proto::WatchCallResponse, Status>>;

    async fn call_tool(
        &self,
        request: Request<CallToolRequest>,
    ) -> Result<Response<Self::CallToolStream>, Status> {
        let request = request.into_inner();
        let (mut settled, replayed) = self.join(&request)?;
        let records = async_stream::stream! {
            yield Ok(CallToolResponse { record: Some(Record::Event(chunk(&request))) });
            let result = settled.wait_for(Option::is_some).await.unwrap().clone();
            let result = CallResult { replayed, ..result.unwrap() };
            yield Ok(CallToolResponse { record: Some(Record::Result(result)) });
        };
        Ok(Response::new(Box::pin(records)))
    }

    async fn cancel_call(
        &self,
        request: Request<CancelCallRequest>,
    ) -> Result<Response<CancelCallResponse>, Status> {
        let effects = self.effects.lock().unwrap();
        let effect = effects.get(&request.into_inner().effect_id);
        let effect = effect.ok_or_else(|| {
            let reason = ErrorReason::CallNotFound;
            Failure::new(Code::NotFound, reason, "there is no such call").into_status()
        })?;
        // It fails if the call has ended.
        let _ = effect.cancel.send(true);
        Ok(Response::new(CancelCallResponse::default()))
    }

    async fn start_call(
        &self,
        request: Request<proto::StartCallRequest>,
    ) -> Result<Response<proto::StartCallResponse>, Status> {
        let request = request.into_inner();
        let (_, replayed) = self.join(&CallToolRequest {
            tool_id: request.tool_id.clone(),
            arguments_json: request.arguments_json,
            effect_id: request.effect_id.clone(),
            conversation_id: request.conversation_id,
            ..CallToolRequest::default()
        })?;
        let call = proto::Call {
            effect_id: request.effect_id,
            tool_id: request.tool_id,
            state: proto::CallState::Running.into(),
            attempt: 1,
            ..proto::Call::default()
        };
        Ok(Response::new(proto::StartCallResponse {
            call: Some(call),
            replayed,
        }))
    }

    async fn get_call(
        &self,
        _: Request<proto::GetCallRequest>,
    ) -> Result<Response<proto::GetCallResponse>, Status> {
        Err(Status::not_found("the test double keeps no ledger"))
    }

    async fn list_calls(
        &self,
        _: Request<proto::ListCallsRequest>,
    ) -> Result<Response<proto::ListCallsResponse>, Status> {
        Err(Status::unimplemented("the test double only calls"))
    }

    async fn read_output(
        &self,
        _: Request<proto::ReadOutputRequest>,
    ) -> Result<Response<proto::ReadOutputResponse>, Status> {
        Err(Status::unimplemented("the test double only calls"))
    }

    async fn get_raw_result(
        &self,
        _: Request<proto::GetRawResultRequest>,
    ) -> Result<Response<proto::GetRawResultResponse>, Status> {
        Err(Status::unimplemented("the test double only calls"))
    }

    async fn resolve_call(
        &self,
        _: Request<proto::ResolveCallRequest>,
    ) -> Result<Response<proto::ResolveCallResponse>, Status> {
        Err(Status::unimplemented("the test double only calls"))
    }

    async fn watch_call(
        &self,
        _: Request<proto::WatchCallRequest>,
    ) -> Result<Response<Self::WatchCallStream>, Status> {
        Err(Status::unimplemented("the test double only calls"))
    }

    async fn invoke_calls(
        &self,
        _: Request<proto::InvokeCallsRequest>,
    ) -> Result<Response<Self::InvokeCallsStream>, Status> {
        Err(Status::unimplemented("the test double has no runs"))
    }
}

#[tonic::async_trait]
impl ToolRegistryService for RegistryDouble {
    async fn batch_get_tools(
        &self,
        request: Request<BatchGetToolsRequest>,
    ) -> Result<Response<BatchGetToolsResponse>, Status> {
        let declared = self.tools.declared();
        let mut response = BatchGetToolsResponse::default();
        for id in request.into_inner().tool_ids {
            match declared.iter().find(|tool| tool.id == id) {
                Some(tool) => response.tools.push(described(tool)),
                None => response.missing_tool_ids.push(id),
            }
        }
        Ok(Response::new(response))
    }

    async fn list_tools(
        &self,
        _: Request<ListToolsRequest>,
    ) -> Result<Response<ListToolsResponse>, Status> {
        Ok(Response::new(ListToolsResponse::default()))
    }

    async fn explain_availability(
        &self,
        _: Request<proto::ExplainAvailabilityRequest>,
    ) -> Result<Response<proto::ExplainAvailabilityResponse>, Status> {
        Err(Status::unimplemented("the test double explains nothing"))
    }

    async fn put_tool(
        &self,
        _: Request<proto::PutToolRequest>,
    ) -> Result<Response<proto::PutToolResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn delete_tool(
        &self,
        _: Request<proto::DeleteToolRequest>,
    ) -> Result<Response<proto::DeleteToolResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn get_tool(
        &self,
        _: Request<proto::GetToolRequest>,
    ) -> Result<Response<proto::GetToolResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn put_backend(
        &self,
        _: Request<proto::PutBackendRequest>,
    ) -> Result<Response<proto::PutBackendResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn delete_backend(
        &self,
        _: Request<proto::DeleteBackendRequest>,
    ) -> Result<Response<proto::DeleteBackendResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn get_backend(
        &self,
        _: Request<proto::GetBackendRequest>,
    ) -> Result<Response<proto::GetBackendResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn list_backends(
        &self,
        _: Request<proto::ListBackendsRequest>,
    ) -> Result<Response<proto::ListBackendsResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn get_plugin(
        &self,
        _: Request<proto::GetPluginRequest>,
    ) -> Result<Response<proto::GetPluginResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn list_plugins(
        &self,
        _: Request<proto::ListPluginsRequest>,
    ) -> Result<Response<proto::ListPluginsResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }

    async fn validate_call(
        &self,
        _: Request<proto::ValidateCallRequest>,
    ) -> Result<Response<proto::ValidateCallResponse>, Status> {
        Err(Status::unimplemented("the test double has fixed tools"))
    }
}
