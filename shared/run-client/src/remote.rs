//! Calls at a registry behind a transport.

use contracts::tavern::{
    common::v1::{CallResult, CallStatus, ErrorReason, PendingWork},
    registry::v1::{
        self as registry, CallToolRequest, CancelCallRequest, GetCallRequest, StartCallRequest,
        call_service_client::CallServiceClient, call_tool_response::Record,
    },
};
use futures::{StreamExt, stream::BoxStream};
use grpc_kit::{CallContext, Outbound, Transport};
use run_events::RunControl;
use tonic::{Code, Status};

use crate::{Call, CallProgress, CallTerms, calls::has_ended, policy::GRACE};

/// Makes calls at the registry. Clone, cheap.
#[derive(Clone, Debug)]
pub struct CallClient {
    registry: Transport,
}

/// A call at the registry of a client, as a run requests it.
#[derive(Clone, Debug)]
pub struct RemoteCall {
    /// The client.
    pub calls: CallClient,
    /// The first request.
    pub request: CallToolRequest,
    /// The last attempt after which another may follow; zero for none.
    pub retries: u32,
    /// Whether an earlier process of the owner has requested the call.
    pub left_before: bool,
    /// Whether the owner only starts the call. The result is then its handle, unless it settled at once.
    pub starts_only: bool,
}

impl CallClient {
    /// Makes a client of the registry behind a transport.
    pub fn new(registry: Transport) -> Self {
        Self { registry }
    }

    fn service(&self, context: &CallContext) -> CallServiceClient<Outbound> {
        CallServiceClient::new(self.registry.with(context))
    }

    /// Asks the registry to end a call, on behalf of the runs above in `context`, whose deadline does not
    /// count; logs what does not work. Returns whether the call has ended, as it has if it never arrived.
    pub async fn cancel(&self, effect_id: &str, reason: &str, context: &CallContext) -> bool {
        let answer = self.request_cancel(effect_id, reason, context).await;
        has_ended(effect_id, answer)
    }

    /// Requests the end of calls that an earlier process dispatched (see [`cancel`](Self::cancel)).
    /// Returns the effects of the calls that have not ended.
    pub async fn cancel_all(
        &self,
        effect_ids: impl IntoIterator<Item = String>,
        reason: &str,
        context: &CallContext,
    ) -> Vec<String> {
        let cancels = effect_ids.into_iter().map(|effect_id| async move {
            let has_ended = self.cancel(&effect_id, reason, context).await;
            (!has_ended).then_some(effect_id)
        });
        let left = futures::future::join_all(cancels).await;
        left.into_iter().flatten().collect()
    }

    async fn request_cancel(
        &self,
        effect_id: &str,
        reason: &str,
        context: &CallContext,
    ) -> Result<Vec<PendingWork>, Status> {
        let request = CancelCallRequest {
            effect_id: effect_id.to_owned(),
            reason: reason.to_owned(),
        };
        let context = context.clone().without_deadline().with_timeout(GRACE);
        match self.service(&context).cancel_call(request).await {
            Ok(answer) => Ok(answer.into_inner().still_running),
            Err(status) if grpc_kit::reason(&status) == Some(ErrorReason::CallNotFound) => {
                Ok(Vec::new())
            }
            Err(status) => Err(status),
        }
    }

    /// Reads a call from the ledger; `None` if it does not know the call.
    ///
    /// # Errors
    /// The status with which the registry answers.
    pub async fn find(
        &self,
        effect_id: &str,
        context: &CallContext,
    ) -> Result<Option<registry::Call>, Status> {
        let request = GetCallRequest {
            effect_id: effect_id.to_owned(),
        };
        match self.service(context).get_call(request).await {
            Ok(answer) => Ok(answer.into_inner().call),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }
}

impl Call for RemoteCall {
    fn named(&self) -> CallResult {
        let request = &self.request;
        CallResult {
            index: request.index,
            effect_id: request.effect_id.clone(),
            tool_id: request.tool_id.clone(),
            durability: request.durability,
            ..CallResult::default()
        }
    }

    fn terms(&self) -> CallTerms {
        let timeout = self.request.timeout;
        CallTerms {
            attempt: self.request.attempt,
            retries: self.retries,
            left_before: self.left_before,
            timeout: timeout.and_then(|timeout| timeout.try_into().ok()),
        }
    }

    fn ask(
        &self,
        attempt: u32,
        context: &CallContext,
    ) -> BoxStream<'static, Result<CallProgress, Status>> {
        let calls = self.calls.service(context);
        let request = CallToolRequest {
            attempt,
            ..self.request.clone()
        };
        match self.starts_only {
            true => futures::stream::once(start(calls, request)).boxed(),
            false => follow(calls, request).boxed(),
        }
    }

    async fn cancel(&self, reason: &str, control: &RunControl) -> Result<Vec<PendingWork>, Status> {
        let context = &control.call_context();
        let effect_id = &self.request.effect_id;
        self.calls.request_cancel(effect_id, reason, context).await
    }
}

/// Requests an attempt and follows it.
fn follow(
    mut calls: CallServiceClient<Outbound>,
    request: CallToolRequest,
) -> impl futures::Stream<Item = Result<CallProgress, Status>> + Send {
    async_stream::try_stream! {
        let mut records = calls.call_tool(request).await?.into_inner();
        while let Some(response) = records.message().await? {
            match response.record {
                Some(Record::Event(event)) => yield CallProgress::Event(Box::new(event)),
                Some(Record::Result(result)) => yield CallProgress::Result(Box::new(result)),
                None => {}
            }
        }
    }
}

/// Starts a call that its owner does not wait for.
async fn start(
    mut calls: CallServiceClient<Outbound>,
    request: CallToolRequest,
) -> Result<CallProgress, Status> {
    let started = calls.start_call(StartCallRequest {
        tool_id: request.tool_id,
        arguments_json: request.arguments_json,
        effect_id: request.effect_id,
        conversation_id: request.conversation_id,
        durability: request.durability,
        timeout: request.timeout,
        needs_confirmation: request.needs_confirmation,
        attempt: request.attempt,
        grant: request.grant,
    });
    let call = started.await?.into_inner().call.unwrap_or_default();
    let result = call.result.clone().unwrap_or_else(|| handle(call));
    Ok(CallProgress::Result(Box::new(result)))
}

/// Returns the handle of a call that continues by itself, as its result.
fn handle(call: registry::Call) -> CallResult {
    let output = serde_json::json!({
        "state": "running",
        "handle": call.effect_id,
        "note": "the call was started and is not waited for; system:read_stream reads what it gives",
    });
    CallResult {
        effect_id: call.effect_id,
        tool_id: call.tool_id,
        status: CallStatus::Succeeded.into(),
        output_json: output.to_string(),
        start_time: call.dispatch_time,
        durability: call.durability,
        child_run_id: call.child_run_id,
        attempt: call.attempt,
        ..CallResult::default()
    }
}
