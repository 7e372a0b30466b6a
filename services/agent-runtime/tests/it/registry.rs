//! A test double of tool-registry: named tools with fixed behaviour, and a ledger of effects.

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

/// What a tool does.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Gives this, by the arguments.
    Gives(Arc<dyn Fn(&Value) -> Value + Send + Sync>),
    /// Fails in its own terms.
    Fails(&'static str),
    /// Says nothing until it is cancelled.
    Hangs,
    /// Leaves the outcome undecided.
    Unknown,
    /// Answers with these statuses one after the other, and with the last again and again.
    Refuses(&'static [Code]),
}

struct Known {
    tool: Tool,
    behaviour: Behaviour,
}

/// One effect.
struct Effect {
    request: CallToolRequest,
    cancel: watch::Sender<bool>,
    settled: Option<CallResult>,
}

#[derive(Default)]
struct State {
    tools: HashMap<String, Known>,
    effects: HashMap<String, Effect>,
    dispatches: Vec<String>,
    asked: Vec<CallToolRequest>,
}

/// The double. Clone, cheap; survives the runtime that calls it.
#[derive(Clone, Default)]
pub(crate) struct TestRegistry {
    state: Arc<Mutex<State>>,
}

impl TestRegistry {
    /// Adds a tool with parameters that are all required texts.
    pub(crate) fn tool(self, id: &str, parameters: &[&str], behaviour: Behaviour) -> Self {
        let properties: serde_json::Map<String, Value> = parameters
            .iter()
            .map(|name| ((*name).to_owned(), serde_json::json!({"type": "string"})))
            .collect();
        let schema =
            serde_json::json!({"type": "object", "properties": properties, "required": parameters});
        self.tool_with(id, &schema, behaviour)
    }

    /// Adds a tool with its own schema.
    pub(crate) fn tool_with(self, id: &str, schema: &Value, behaviour: Behaviour) -> Self {
        let implementation = match id.starts_with("workflow:") {
            true => ImplementationType::Workflow,
            false => ImplementationType::Service,
        };
        let tool = Tool {
            tool_id: id.to_owned(),
            description: format!("The tool {id}."),
            parameters_json: schema.to_string(),
            implementation: implementation.into(),
            ..Tool::default()
        };
        self.state
            .lock()
            .unwrap()
            .tools
            .insert(id.to_owned(), Known { tool, behaviour });
        self
    }

    /// Adds a tool that gives a fixed text.
    pub(crate) fn gives(self, id: &str, parameters: &[&str], output: Value) -> Self {
        self.tool(
            id,
            parameters,
            Behaviour::Gives(Arc::new(move |_| output.clone())),
        )
    }

    /// Declares that a tool changes nothing.
    pub(crate) fn read_only(self, id: &str) -> Self {
        self.declare(id, |tool| tool.read_only = true)
    }

    /// Declares that calls of a tool may run beside others.
    pub(crate) fn parallel_safe(self, id: &str) -> Self {
        self.declare(id, |tool| tool.parallel_safe = true)
    }

    fn declare(self, id: &str, change: impl FnOnce(&mut Tool)) -> Self {
        let mut state = self.state.lock().unwrap();
        let known = state.tools.get_mut(id).expect("the tool exists");
        change(&mut known.tool);
        drop(state);
        self
    }

    /// Returns the effects that were dispatched, each as often as it was.
    pub(crate) fn dispatches(&self) -> Vec<String> {
        self.state.lock().unwrap().dispatches.clone()
    }

    /// Returns every request to call a tool.
    pub(crate) fn asked(&self) -> Vec<CallToolRequest> {
        self.state.lock().unwrap().asked.clone()
    }

    /// Lets a call that hangs end well.
    pub(crate) fn release(&self, tool_id: &str, output: Value) {
        let mut state = self.state.lock().unwrap();
        let known = state.tools.get_mut(tool_id).expect("the tool exists");
        known.behaviour = Behaviour::Gives(Arc::new(move |_| output.clone()));
        for effect in state
            .effects
            .values()
            .filter(|effect| effect.request.tool_id == tool_id)
        {
            let _ = effect.cancel.send(false);
        }
    }

    fn begin(
        &self,
        request: CallToolRequest,
    ) -> Result<(Behaviour, watch::Receiver<bool>, Option<CallResult>), Failure> {
        let mut state = self.state.lock().unwrap();
        state.asked.push(request.clone());
        let Some(known) = state.tools.get(&request.tool_id) else {
            let message = format!("no tool has the id `{}`", request.tool_id);
            return Err(Failure::new(
                Code::NotFound,
                ErrorReason::ToolNotFound,
                message,
            ));
        };
        let behaviour = known.behaviour.clone();
        if !state.effects.contains_key(&request.effect_id) {
            state.dispatches.push(request.effect_id.clone());
            let effect = Effect {
                request: request.clone(),
                cancel: watch::channel(false).0,
                settled: None,
            };
            state.effects.insert(request.effect_id.clone(), effect);
        }
        let effect = &state.effects[&request.effect_id];
        Ok((behaviour, effect.cancel.subscribe(), effect.settled.clone()))
    }

    async fn execute(&self, request: CallToolRequest) -> Result<CallResult, Failure> {
        let (behaviour, mut signal, settled) = self.begin(request.clone())?;
        if let Some(settled) = settled {
            return Ok(CallResult {
                replayed: true,
                ..settled
            });
        }
        let arguments: Value = serde_json::from_str(&request.arguments_json).unwrap();
        let mut result = CallResult {
            index: request.index,
            effect_id: request.effect_id.clone(),
            tool_id: request.tool_id.clone(),
            ..CallResult::default()
        };
        let mut behaviour = behaviour;
        if matches!(behaviour, Behaviour::Hangs) {
            signal
                .changed()
                .await
                .expect("the effect lives as long as the double");
            behaviour = match *signal.borrow() {
                true => Behaviour::Fails("cancelled"),
                false => self.state.lock().unwrap().tools[&request.tool_id]
                    .behaviour
                    .clone(),
            };
        }
        match behaviour {
            Behaviour::Gives(give) => {
                result.status = CallStatus::Succeeded.into();
                result.output_json = give(&arguments).to_string();
            }
            Behaviour::Fails(message) => {
                let cancelled = message == "cancelled";
                let status = if cancelled {
                    CallStatus::Cancelled
                } else {
                    CallStatus::Failed
                };
                let category = if cancelled {
                    ErrorCategory::Cancelled
                } else {
                    ErrorCategory::Domain
                };
                result.status = status.into();
                result.error = Some(CallError {
                    category: category.into(),
                    code: "test_failure".to_owned(),
                    message: message.to_owned(),
                    ..CallError::default()
                });
            }
            Behaviour::Unknown => result.status = CallStatus::InDoubt.into(),
            Behaviour::Refuses(codes) => {
                let asked = self.asked();
                let of_effect = asked
                    .iter()
                    .filter(|asked| asked.effect_id == request.effect_id);
                let code = codes[of_effect.count().min(codes.len()) - 1];
                return Err(Failure::new(code, ErrorReason::Unspecified, "as asked"));
            }
            Behaviour::Hangs => unreachable!("a released tool gives something"),
        }
        let mut state = self.state.lock().unwrap();
        state
            .effects
            .get_mut(&request.effect_id)
            .expect("begun above")
            .settled = Some(result.clone());
        Ok(result)
    }
}

fn chunk(request: &CallToolRequest) -> RunEvent {
    RunEvent {
        run_id: "call_00000000000000000000000000000001".to_owned(),
        parent_path: vec!["above".to_owned()],
        kind: Some(Kind::OutputChunk(OutputChunk {
            effect_id: request.effect_id.clone(),
            stream: OutputStream::Out.into(),
            text: format!("{} works", request.tool_id),
            ..OutputChunk::default()
        })),
        ..RunEvent::default()
    }
}

impl TestRegistry {
    /// Returns both services of the registry.
    pub(crate) fn services(&self) -> Services {
        Services::new()
            .add(ToolRegistryServiceServer::new(self.clone()))
            .add(CallServiceServer::new(self.clone()))
    }
}

#[tonic::async_trait]
impl CallService for TestRegistry {
    type CallToolStream = BoxStream<'static, Result<CallToolResponse, Status>>;
    type InvokeCallsStream = BoxStream<'static, Result<proto::InvokeCallsResponse, Status>>;
    type WatchCallStream = BoxStream<'static, Result<proto::WatchCallResponse, Status>>;

    async fn call_tool(
        &self,
        request: Request<CallToolRequest>,
    ) -> Result<Response<Self::CallToolStream>, Status> {
        let request = request.into_inner();
        let this = self.clone();
        let records = async_stream::try_stream! {
            yield CallToolResponse { record: Some(Record::Event(chunk(&request))) };
            let result = this.execute(request).await?;
            yield CallToolResponse { record: Some(Record::Result(result)) };
        };
        Ok(Response::new(Box::pin(records)))
    }

    async fn cancel_call(
        &self,
        request: Request<CancelCallRequest>,
    ) -> Result<Response<CancelCallResponse>, Status> {
        let effects = &self.state.lock().unwrap().effects;
        let effect = effects.get(&request.into_inner().effect_id);
        let effect = effect.ok_or_else(|| {
            let reason = ErrorReason::CallNotFound;
            Failure::new(Code::NotFound, reason, "there is no such call").into_status()
        })?;
        let _ = effect.cancel.send(true);
        Ok(Response::new(CancelCallResponse::default()))
    }

    async fn start_call(
        &self,
        request: Request<proto::StartCallRequest>,
    ) -> Result<Response<proto::StartCallResponse>, Status> {
        let request = request.into_inner();
        self.begin(CallToolRequest {
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
            replayed: false,
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
impl ToolRegistryService for TestRegistry {
    async fn batch_get_tools(
        &self,
        request: Request<BatchGetToolsRequest>,
    ) -> Result<Response<BatchGetToolsResponse>, Status> {
        let state = self.state.lock().unwrap();
        let mut response = BatchGetToolsResponse::default();
        for id in request.into_inner().tool_ids {
            match state.tools.get(&id) {
                Some(known) => response.tools.push(known.tool.clone()),
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

    async fn batch_get_backends(
        &self,
        _: Request<proto::BatchGetBackendsRequest>,
    ) -> Result<Response<proto::BatchGetBackendsResponse>, Status> {
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
