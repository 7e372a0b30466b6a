//! A double of the tool registry: a few tools that tests control, and a ledger in memory.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use super::below::RunsBelow;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{
    CallError, CallResult, CallStatus, ErrorCategory, ErrorReason, OutputChunk, OutputStream,
    RunEvent,
};
use contracts::tavern::registry::v1::call_service_server::CallService;
use contracts::tavern::registry::v1::call_tool_response::Record;
use contracts::tavern::registry::v1::*;
use doubles::IdentityDouble;
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::stream::{self, Stream, StreamExt};
use grpc_kit::{CallContext, Failure};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status};

/// The registry's double. Clones are handles of the same.
///
/// Tools: `echo` returns its arguments; `fail` fails; `recovers` fails before its third attempt;
/// `reject` is refused; `unknown` does not exist; `chatty` and `says` write a chunk first, `says`
/// as the run; `talks` writes a chunk and then waits like `wait`; `counts` returns 1 and 2 one
/// after the other and waits in between; `workflow:run_and_report` is a run that shows `hello` and
/// then waits; `wait` waits until [`RegistryDouble::release`]; `flaky` is unavailable for the first
/// two requests, and `absent` always; `refuses` answers with a refusal, `breaks` with a failure of
/// its own, `forgets` waits and `loses` is gone before they refuse each further request; `late` is
/// accepted after a cancel, and ends after another; `busy` waits for others as set by
/// [`RegistryDouble::keep_busy`]. Other workflows than `run_and_report` are run by the service
/// under test.
#[derive(Clone, Default)]
pub(crate) struct RegistryDouble {
    inner: Arc<Inner>,
    /// The principals that it knows.
    pub(crate) identities: IdentityDouble,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// The number of calls of `wait` that may still end.
    released: watch::Sender<usize>,
    /// Whether enough calls of `busy` were in flight together.
    enough: watch::Sender<bool>,
    cancelled: watch::Sender<Vec<String>>,
    below: RunsBelow,
}

impl Inner {
    /// Waits until the cancellation of a call was requested `times` times.
    async fn until_cancelled(&self, request: &CallToolRequest, times: usize) {
        let effect_id = &request.effect_id;
        let mut cancelled = self.cancelled.subscribe();
        let enough = cancelled.wait_for(|all| {
            let of_call = all.iter().filter(|cancelled| *cancelled == effect_id);
            of_call.count() >= times
        });
        enough.await.expect("its sender is here");
    }

    /// Waits until a call of `wait` may end.
    async fn may_end(&self) {
        let mut released = self.released.subscribe();
        let mut mine = false;
        while !mine {
            let some = released.wait_for(|left| *left > 0).await;
            some.expect("its sender is here");
            self.released.send_if_modified(|left| {
                mine = *left > 0;
                if mine && *left < usize::MAX {
                    *left -= 1;
                }
                false
            });
        }
    }
}

#[derive(Default)]
struct State {
    /// Every request, in order.
    asked: Vec<CallToolRequest>,
    /// The number of dispatches of each effect to its tool.
    dispatched: HashMap<String, usize>,
    settled: HashMap<String, CallResult>,
    /// Every attempt that was dispatched, which a repeated request joins.
    attempts: HashMap<String, Shared<BoxFuture<'static, CallResult>>>,
    /// The number of requests before the first cancel.
    asked_before_cancel: Option<usize>,
    /// The calls of `busy` in flight, and the most of them at once.
    busy: (usize, usize),
    /// The number of them that must be in flight before the first ends.
    together: usize,
}

impl RegistryDouble {
    /// Lets all calls of `wait` end.
    pub(crate) fn release(&self) {
        self.inner.released.send_replace(usize::MAX);
    }

    /// Lets one call of `wait` end.
    pub(crate) fn release_one(&self) {
        self.inner.released.send_replace(1);
    }

    /// The runs that it starts at the service under test.
    pub(crate) fn below(&self) -> &RunsBelow {
        &self.inner.below
    }

    /// Every request so far.
    pub(crate) fn asked(&self) -> Vec<CallToolRequest> {
        self.inner.state.lock().unwrap().asked.clone()
    }

    /// Waits for this many requests.
    pub(crate) async fn until_asked(&self, times: usize) {
        while self.asked().len() < times {
            tokio::task::yield_now().await;
        }
    }

    /// The number of requests after the first cancel.
    pub(crate) fn asked_after_cancel(&self) -> usize {
        let state = self.inner.state.lock().unwrap();
        state.asked.len() - state.asked_before_cancel.unwrap_or_default()
    }

    /// The most dispatches of any effect.
    pub(crate) fn most_dispatched(&self) -> usize {
        self.inner
            .state
            .lock()
            .unwrap()
            .dispatched
            .values()
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// The most calls of `busy` in flight together.
    pub(crate) fn most_busy(&self) -> usize {
        self.inner.state.lock().unwrap().busy.1
    }

    /// Keeps calls of `busy` until this many are in flight together.
    pub(crate) fn keep_busy(&self, together: usize) {
        self.inner.state.lock().unwrap().together = together;
    }

    /// Counts the call until enough were in flight together, and others had a few turns since.
    async fn be_busy(&self) {
        let enough = {
            let state = &mut *self.inner.state.lock().unwrap();
            let (now, most) = &mut state.busy;
            *now += 1;
            *most = (*most).max(*now);
            *most >= state.together
        };
        if enough {
            self.inner.enough.send_replace(true);
        }
        let mut enough = self.inner.enough.subscribe();
        enough.wait_for(|enough| *enough).await.unwrap();
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        self.inner.state.lock().unwrap().busy.0 -= 1;
    }

    /// The effects that were to be cancelled.
    pub(crate) fn cancelled(&self) -> Vec<String> {
        self.inner.cancelled.borrow().clone()
    }

    /// Records a request; returns the result of the call, if it has settled.
    fn take(&self, request: &CallToolRequest) -> Result<Option<CallResult>, Status> {
        let mut state = self.inner.state.lock().unwrap();
        state.asked.push(request.clone());
        let times = state
            .asked
            .iter()
            .filter(|asked| asked.effect_id == request.effect_id)
            .count();
        match request.tool_id.as_str() {
            "flaky" if times <= 2 => Err(Status::unavailable("not there yet")),
            "absent" => Err(Status::unavailable("never there")),
            "breaks" => Err(Status::internal("the registry failed")),
            "loses" if times == 1 => Err(Status::unavailable("the registry went away")),
            "refuses" => Err(Status::invalid_argument("no such call")),
            "forgets" | "loses" if times > 1 => Err(Status::not_found("no such tool")),
            _ => Ok(state.settled.get(&attempt_of(request)).cloned()),
        }
    }

    fn dispatch(&self, request: &CallToolRequest) {
        let mut state = self.inner.state.lock().unwrap();
        *state
            .dispatched
            .entry(request.effect_id.clone())
            .or_default() += 1;
    }

    async fn execute(&self, request: &CallToolRequest) -> CallResult {
        let base = CallResult {
            effect_id: request.effect_id.clone(),
            tool_id: request.tool_id.clone(),
            ..CallResult::default()
        };
        let ended = |status: CallStatus, code: &str| CallResult {
            status: status.into(),
            error: Some(CallError {
                category: ErrorCategory::Domain.into(),
                code: code.to_owned(),
                message: format!("the double says {code}"),
                ..CallError::default()
            }),
            ..base.clone()
        };
        match request.tool_id.as_str() {
            "fail" => ended(CallStatus::Failed, "failed_as_asked"),
            "recovers" if request.attempt < 3 => ended(CallStatus::Failed, "not_yet"),
            "recovers" => CallResult {
                status: CallStatus::Succeeded.into(),
                output_json: "\"recovered\"".to_owned(),
                ..base
            },
            "reject" => ended(CallStatus::Rejected, "rejected_as_asked"),
            "fail_below" => {
                let mut ended = ended(CallStatus::Failed, "script_exited");
                let error = ended.error.get_or_insert_default();
                error.message = "node `b/s` (core:Script): the script ended".to_owned();
                error.details_json = r#"{"node_id":"b/s","node_type":"core:Script"}"#.to_owned();
                ended
            }
            "late" => {
                self.inner.until_cancelled(request, 2).await;
                ended(CallStatus::Cancelled, "cancelled")
            }
            "unknown" => ended(CallStatus::InDoubt, "nobody_knows"),
            "busy" => {
                self.be_busy().await;
                CallResult {
                    status: CallStatus::Succeeded.into(),
                    output_json: request.arguments_json.clone(),
                    ..base
                }
            }
            "wait" | "forgets" | "talks" | "counts" | "workflow:run_and_report" => {
                let mut cancelled = self.inner.cancelled.subscribe();
                tokio::select! {
                    () = self.inner.may_end() => {}
                    _ = cancelled.wait_for(|cancelled| cancelled.contains(&request.effect_id)) => {
                        return ended(CallStatus::Cancelled, "cancelled");
                    }
                }
                let output = match request.tool_id.as_str() {
                    "counts" => "[1,2]",
                    "workflow:run_and_report" => r#"{"live":"hello","report":"It ran."}"#,
                    _ => "\"waited\"",
                };
                CallResult {
                    status: CallStatus::Succeeded.into(),
                    output_json: output.to_owned(),
                    ..base
                }
            }
            _ => CallResult {
                status: CallStatus::Succeeded.into(),
                output_json: request.arguments_json.clone(),
                ..base
            },
        }
    }
}

/// The end of a call as the last record of a stream.
fn ending(
    call: Shared<BoxFuture<'static, CallResult>>,
) -> impl Stream<Item = Result<CallToolResponse, Status>> + Send + 'static {
    let result = |result| CallToolResponse {
        record: Some(Record::Result(result)),
    };
    stream::once(call.map(move |ended| Ok(result(ended))))
}

/// The key of an attempt in the ledger.
fn attempt_of(request: &CallToolRequest) -> String {
    format!("{} {}", request.effect_id, request.attempt.max(1))
}

fn chunk(effect_id: &str, run_id: &str) -> CallToolResponse {
    let chunk = OutputChunk {
        effect_id: effect_id.to_owned(),
        stream: OutputStream::Out.into(),
        text: "hello".to_owned(),
        ..OutputChunk::default()
    };
    shown(run_id, Vec::new(), chunk)
}

fn shown(run_id: &str, parent_path: Vec<String>, chunk: OutputChunk) -> CallToolResponse {
    let event = RunEvent {
        run_id: run_id.to_owned(),
        parent_path,
        kind: Some(Kind::OutputChunk(chunk)),
        ..RunEvent::default()
    };
    CallToolResponse {
        record: Some(Record::Event(event)),
    }
}

#[tonic::async_trait]
impl CallService for RegistryDouble {
    type CallToolStream = Pin<Box<dyn Stream<Item = Result<CallToolResponse, Status>> + Send>>;
    type InvokeCallsStream =
        Pin<Box<dyn Stream<Item = Result<InvokeCallsResponse, Status>> + Send>>;
    type WatchCallStream = Pin<Box<dyn Stream<Item = Result<WatchCallResponse, Status>> + Send>>;

    async fn call_tool(
        &self,
        request: Request<CallToolRequest>,
    ) -> Result<Response<Self::CallToolStream>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let before = self.take(&request)?;
        if request.tool_id == "late" {
            self.inner.until_cancelled(&request, 1).await;
        }
        if RunsBelow::carries_out(&request) {
            return Ok(Response::new(self.below().call(context, request).boxed()));
        }
        if let Some(mut settled) = before {
            settled.replayed = true;
            let record = CallToolResponse {
                record: Some(Record::Result(settled)),
            };
            return Ok(Response::new(stream::iter([Ok(record)]).boxed()));
        }
        let events = match request.tool_id.as_str() {
            "chatty" => vec![Ok(chunk(&request.effect_id, "call_below"))],
            "talks" | "says" => {
                let run_id = request.effect_id.split('/').next().unwrap_or_default();
                vec![Ok(chunk(&request.effect_id, run_id))]
            }
            "counts" => {
                let run_id = request.effect_id.split('/').next().unwrap_or_default();
                let first = OutputChunk {
                    effect_id: request.effect_id.clone(),
                    stream: OutputStream::Out.into(),
                    text: "1\n".to_owned(),
                    json_lines: true,
                    ..OutputChunk::default()
                };
                vec![Ok(shown(run_id, Vec::new(), first))]
            }
            "workflow:run_and_report" => {
                let run_id = request.effect_id.split('/').next().unwrap_or_default();
                let of_key = |key: &str| OutputChunk {
                    stream: OutputStream::Out.into(),
                    text: "hello".to_owned(),
                    interface_key: key.to_owned(),
                    ..OutputChunk::default()
                };
                let above = vec![run_id.to_owned()];
                let deeper = vec![run_id.to_owned(), "flow_below".to_owned()];
                vec![
                    Ok(shown("flow_deeper", deeper, of_key("live"))),
                    Ok(shown("flow_below", above, of_key("live"))),
                ]
            }
            _ => Vec::new(),
        };
        let attempt = attempt_of(&request);
        let in_flight = self
            .inner
            .state
            .lock()
            .unwrap()
            .attempts
            .get(&attempt)
            .cloned();
        if let Some(call) = in_flight {
            return Ok(Response::new(
                stream::iter(events).chain(ending(call)).boxed(),
            ));
        }
        self.dispatch(&request);
        let double = self.clone();
        // The call is a task of its own, as in the registry: it outlives its caller.
        let work = tokio::spawn(async move {
            let result = double.execute(&request).await;
            let mut state = double.inner.state.lock().unwrap();
            state.settled.insert(attempt_of(&request), result.clone());
            result
        });
        let call = work.map(Result::unwrap).boxed().shared();
        let mut state = self.inner.state.lock().unwrap();
        state.attempts.insert(attempt, call.clone());
        Ok(Response::new(
            stream::iter(events).chain(ending(call)).boxed(),
        ))
    }

    async fn cancel_call(
        &self,
        request: Request<CancelCallRequest>,
    ) -> Result<Response<CancelCallResponse>, Status> {
        let CancelCallRequest { effect_id, reason } = request.into_inner();
        self.below().cancel(&effect_id, &reason).await?;
        let state = &mut *self.inner.state.lock().unwrap();
        state.asked_before_cancel.get_or_insert(state.asked.len());
        self.inner
            .cancelled
            .send_modify(|cancelled| cancelled.push(effect_id.clone()));
        match state.asked.iter().any(|call| call.effect_id == effect_id) {
            true => Ok(Response::new(CancelCallResponse::default())),
            false => {
                let reason = ErrorReason::CallNotFound;
                Err(Failure::new(Code::NotFound, reason, "there is no such call").into_status())
            }
        }
    }

    async fn start_call(
        &self,
        _: Request<StartCallRequest>,
    ) -> Result<Response<StartCallResponse>, Status> {
        Err(Status::unimplemented("not in the double"))
    }

    async fn get_call(
        &self,
        _: Request<GetCallRequest>,
    ) -> Result<Response<GetCallResponse>, Status> {
        Err(Status::not_found("the double keeps no ledger"))
    }

    async fn list_calls(
        &self,
        _: Request<ListCallsRequest>,
    ) -> Result<Response<ListCallsResponse>, Status> {
        Err(Status::unimplemented("not in the double"))
    }

    async fn read_output(
        &self,
        _: Request<ReadOutputRequest>,
    ) -> Result<Response<ReadOutputResponse>, Status> {
        Err(Status::unimplemented("not in the double"))
    }

    async fn get_raw_result(
        &self,
        _: Request<GetRawResultRequest>,
    ) -> Result<Response<GetRawResultResponse>, Status> {
        Err(Status::unimplemented("not in the double"))
    }

    async fn resolve_call(
        &self,
        _: Request<ResolveCallRequest>,
    ) -> Result<Response<ResolveCallResponse>, Status> {
        Err(Status::unimplemented("not in the double"))
    }

    async fn watch_call(
        &self,
        _: Request<WatchCallRequest>,
    ) -> Result<Response<Self::WatchCallStream>, Status> {
        Err(Status::unimplemented("not in the double"))
    }

    async fn invoke_calls(
        &self,
        _: Request<InvokeCallsRequest>,
    ) -> Result<Response<Self::InvokeCallsStream>, Status> {
        Err(Status::unimplemented("not in the double"))
    }
}
