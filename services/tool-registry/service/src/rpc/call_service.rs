//! The methods of calls.

use contracts::tavern::registry::v1::{
    CallToolRequest, CallToolResponse, CancelCallRequest, CancelCallResponse, GetCallRequest,
    GetCallResponse, GetRawResultRequest, GetRawResultResponse, InvokeCallsRequest,
    InvokeCallsResponse, ListCallsRequest, ListCallsResponse, ReadOutputRequest,
    ReadOutputResponse, ResolveCallRequest, ResolveCallResponse, StartCallRequest,
    StartCallResponse, WatchCallRequest, WatchCallResponse, call_service_server::CallService,
};
use futures::TryStreamExt;
use grpc_kit::{CallContext, Drain};
use tonic::{Request, Response};

use super::{Answer, StreamOf, call_list, calls};
use crate::runner::{calls::Calls, invocation::Invocations};

/// Calls as a gRPC service.
#[derive(Clone, Debug)]
pub struct CallRpc {
    calls: Calls,
    invocations: Invocations,
}

impl CallRpc {
    /// Takes the calls, and the runs that execute the calls of texts.
    pub fn new(calls: Calls, invocations: Invocations) -> Self {
        Self { calls, invocations }
    }
}

#[tonic::async_trait]
impl CallService for CallRpc {
    type CallToolStream = StreamOf<CallToolResponse>;
    type InvokeCallsStream = StreamOf<InvokeCallsResponse>;
    type WatchCallStream = StreamOf<WatchCallResponse>;

    async fn call_tool(&self, request: Request<CallToolRequest>) -> Answer<Self::CallToolStream> {
        let stream = calls::call(&self.calls, CallContext::of(&request), request.into_inner())?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn start_call(&self, request: Request<StartCallRequest>) -> Answer<StartCallResponse> {
        calls::start(&self.calls, CallContext::of(&request), request.into_inner())
            .await
            .map(Response::new)
    }

    async fn get_call(&self, request: Request<GetCallRequest>) -> Answer<GetCallResponse> {
        let context = CallContext::of(&request);
        calls::get(&self.calls, &context, &request.into_inner().effect_id)
            .await
            .map(Response::new)
    }

    async fn list_calls(&self, request: Request<ListCallsRequest>) -> Answer<ListCallsResponse> {
        let context = CallContext::of(&request);
        call_list::list(&self.calls, &context, &request.into_inner())
            .await
            .map(Response::new)
    }

    async fn watch_call(
        &self,
        request: Request<WatchCallRequest>,
    ) -> Answer<Self::WatchCallStream> {
        let drain = Drain::of(&request);
        let context = CallContext::of(&request);
        let stream = calls::watch(&self.calls, context, request.into_inner(), drain).await?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn read_output(&self, request: Request<ReadOutputRequest>) -> Answer<ReadOutputResponse> {
        let context = CallContext::of(&request);
        calls::read_output(&self.calls, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn get_raw_result(
        &self,
        request: Request<GetRawResultRequest>,
    ) -> Answer<GetRawResultResponse> {
        let context = CallContext::of(&request);
        let effect_id = &request.get_ref().effect_id;
        calls::raw_result(&self.calls, &context, effect_id)
            .await
            .map(Response::new)
    }

    async fn resolve_call(
        &self,
        request: Request<ResolveCallRequest>,
    ) -> Answer<ResolveCallResponse> {
        let context = CallContext::of(&request);
        calls::resolve(&self.calls, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn cancel_call(&self, request: Request<CancelCallRequest>) -> Answer<CancelCallResponse> {
        let context = CallContext::of(&request);
        calls::cancel(&self.calls, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn invoke_calls(
        &self,
        request: Request<InvokeCallsRequest>,
    ) -> Answer<Self::InvokeCallsStream> {
        let (context, drain) = (CallContext::of(&request), Drain::of(&request));
        let started = self
            .invocations
            .start(context.clone(), request.into_inner());
        let (run_id, replayed) = started.await?;
        let runs = self.invocations.runs();
        let records = runs.watch(context, &run_id, 0, drain).await?;
        let responses = records.map_ok(move |record| InvokeCallsResponse {
            record,
            run_id: run_id.clone(),
            replayed,
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
