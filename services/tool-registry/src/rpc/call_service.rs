//! The methods of calls.

use contracts::tavern::registry::v1::{
    CallToolRequest, CallToolResponse, CancelCallRequest, CancelCallResponse,
    StartInvocationRequest, StartInvocationResponse, call_service_server::CallService,
};
use tonic::{Request, Response};

use super::{Answer, StreamOf, calls};
use crate::{calls::Calls, invocation::Invocations};

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

    async fn call_tool(&self, request: Request<CallToolRequest>) -> Answer<Self::CallToolStream> {
        let stream = calls::call(&self.calls, request.into_inner())?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn cancel_call(&self, request: Request<CancelCallRequest>) -> Answer<CancelCallResponse> {
        calls::cancel(&self.calls, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn start_invocation(
        &self,
        request: Request<StartInvocationRequest>,
    ) -> Answer<StartInvocationResponse> {
        let (run, replayed) = self.invocations.start(request.into_inner()).await?;
        Ok(Response::new(StartInvocationResponse {
            run: Some(run),
            replayed,
        }))
    }
}
