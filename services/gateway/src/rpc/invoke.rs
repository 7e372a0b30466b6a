//! Starting a run from a text and following it.

use contracts::tavern::agent::v1::StartTurnRequest;
use contracts::tavern::agent::v1::start_turn_request::Opening;
use contracts::tavern::common::v1::{Run, WatchRecord};
use contracts::tavern::gateway::v1::invoke_text_request::Input;
use contracts::tavern::gateway::v1::{InvokeTextRequest, InvokeTextResponse};
use contracts::tavern::registry::v1::StartInvocationRequest;
use futures::StreamExt;
use futures::stream::BoxStream;
use grpc_kit::Drain;
use tonic::Status;

use super::{GatewayRpc, refuse};
use crate::domain::request::{Invocation, Reading, check_invoke};

/// A run that was started, now or before.
struct Started {
    run: Option<Run>,
    replayed: bool,
}

impl GatewayRpc {
    pub(super) async fn invoke(
        &self,
        request: InvokeTextRequest,
        drain: Drain,
    ) -> Result<BoxStream<'static, Result<InvokeTextResponse, Status>>, Status> {
        let started = match check_invoke(&request, self.max_text).map_err(refuse)? {
            Invocation::Turn { input } => self.start_turn(request, input).await?,
            Invocation::Calls { text, reading } => {
                self.start_invocation(request, text, &reading).await?
            }
        };
        let run_id = started.run.map(|run| run.run_id).unwrap_or_default();
        let records = self.watch(run_id.clone(), 0, drain).await?;
        let replayed = started.replayed;
        let answer = move |record: Result<WatchRecord, Status>| {
            record.map(|record| InvokeTextResponse {
                record: Some(record),
                run_id: run_id.clone(),
                replayed,
            })
        };
        Ok(Box::pin(records.map(answer)))
    }

    async fn start_turn(
        &self,
        request: InvokeTextRequest,
        input: Input,
    ) -> Result<Started, Status> {
        let opening = match input {
            Input::UserMessage(text) => Opening::UserMessage(text),
            Input::ModelText(text) => Opening::ModelText(text),
        };
        let turn = StartTurnRequest {
            request_id: request.request_id,
            profile_id: request.scope.unwrap_or_default().profile_id,
            conversation_id: request.conversation_id,
            opening: Some(opening),
            continue_with_model: request.continue_with_model,
            dialect: request.dialect,
            options: request.options,
            budgets: None,
        };
        let answer = self
            .peers
            .agent
            .clone()
            .start_turn(turn)
            .await?
            .into_inner();
        Ok(Started {
            run: answer.run,
            replayed: answer.replayed,
        })
    }

    async fn start_invocation(
        &self,
        request: InvokeTextRequest,
        text: String,
        reading: &Reading,
    ) -> Result<Started, Status> {
        let parsed = self.read(&text, reading).await?;
        let invocation = StartInvocationRequest {
            request_id: request.request_id,
            parsed: Some(parsed),
            text,
            conversation_id: request.conversation_id,
            options: request.options,
        };
        let answer = self
            .peers
            .calls
            .clone()
            .start_invocation(invocation)
            .await?
            .into_inner();
        Ok(Started {
            run: answer.run,
            replayed: answer.replayed,
        })
    }
}
