//! Sending calls to the registry, which alone dispatches them to tools.

use std::time::Duration;

use contracts::tavern::{
    common::v1::{self as common, event::Kind},
    registry::v1::{
        self as registry, call_tool_response::Record,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
};
use grpc_kit::{CallContext, Transport};
use run_events::{CancelReason, Recorder, durability_to_proto, outcome};
use run_log::AppendError;
use tonic::Status;

use super::{
    driver::{Driver, Stop},
    inventory::{self, Inventory, InventoryError},
    journal,
    retry::{Backoff, Meaning, meaning},
};
use crate::domain::turn::ReadCall;

/// How long a call may take to end once it was told to.
const CANCEL_WAIT: Duration = Duration::from_millis(1_200);
/// How often a registry that fails inside is asked how a call went.
const BROKEN_TRIES: u32 = 3;

impl Driver {
    /// Asks the registry for the agent's tools until it answers or the turn is told to end.
    pub(super) async fn fetch_inventory(&mut self) -> Result<Inventory, Stop> {
        if self.plan.inventory.is_empty() {
            return Ok(Inventory::default());
        }
        let mut backoff = Backoff::new();
        loop {
            let fetched = tokio::select! {
                biased;
                () = self.control.cancelled() => return Err(self.told()),
                fetched = inventory::fetch(self.shared.registry.clone(), &self.plan.inventory) => fetched,
            };
            let status = match fetched {
                Ok(inventory) => return Ok(inventory),
                Err(InventoryError::Unusable(error)) => return Err(Stop::Failed(Box::new(error))),
                Err(InventoryError::Registry(status)) => status,
            };
            if meaning(&status) != Meaning::NotNow {
                let message = format!(
                    "tool-registry does not list the agent's tools: {}",
                    status.message()
                );
                let error = outcome::error(
                    common::ErrorCategory::Dependency,
                    "registry_failed",
                    message,
                );
                return Err(Stop::Failed(Box::new(error)));
            }
            self.wait(backoff.after(&status)).await?;
        }
    }

    /// Finds out how a call went that has left, and notes what the model is told about it.
    pub(super) async fn settle(&mut self, call: &ReadCall, effect_id: &str) -> Result<(), Stop> {
        let control = self.control.clone();
        let tracked = control.track(effect_id);
        let mut result = self.carry_out(call, effect_id).await?;
        drop(tracked);
        result.index = call.index;
        effect_id.clone_into(&mut result.effect_id);
        if result.tool_id.is_empty() {
            result.tool_id.clone_from(&call.tool_id);
        }
        let told = words(&result);
        self.note(Kind::CallSettled(common::CallSettled {
            result: Some(result),
        }))?;
        match told {
            Some(text) => self.note(journal::observation(Some(call.index), text)),
            None => Ok(()),
        }
    }

    /// Tells the registry to end what had left before a crash, of a turn that was cancelled.
    pub(super) async fn cancel_calls(&mut self) {
        for effect_id in self.turn.unsettled() {
            self.end_call(&effect_id, "the turn was cancelled").await;
        }
    }

    async fn end_call(&self, effect_id: &str, reason: &str) {
        if let Err(status) = self.cancel_call(effect_id, reason).await {
            tracing::warn!(
                effect_id,
                error = status.message(),
                "a call could not be cancelled"
            );
        }
    }

    async fn carry_out(
        &mut self,
        call: &ReadCall,
        effect_id: &str,
    ) -> Result<common::CallResult, Stop> {
        let request = registry::CallToolRequest {
            tool_id: call.tool_id.clone(),
            arguments_json: call.arguments_json.clone(),
            effect_id: effect_id.to_owned(),
            conversation_id: self.meta.conversation_id.clone(),
            durability: durability_to_proto(self.recorder.durability()).into(),
            timeout: None,
            index: call.index,
            needs_confirmation: call.needs_confirmation,
        };
        let mut backoff = Backoff::new();
        let mut broken = 0;
        loop {
            let status = match self.follow(request.clone()).await? {
                Ok(result) => return Ok(result),
                Err(status) => status,
            };
            match meaning(&status) {
                Meaning::NotNow => {}
                // Of a call that left before a crash, a refusal does not say what happened then.
                Meaning::Refused if !self.resumed => return Ok(refused(call, &status)),
                Meaning::Refused => return Ok(unknown(call, &status)),
                Meaning::Broken => {
                    broken += 1;
                    if broken == BROKEN_TRIES {
                        return Ok(unknown(call, &status));
                    }
                }
            }
            tracing::warn!(effect_id, code = ?status.code(), error = status.message(), "asking the registry again how a call went");
            if let Err(stop) = self.wait(backoff.after(&status)).await {
                // The call may go on in the registry, which nobody else would tell.
                self.end_call(effect_id, "the turn ends").await;
                return Err(stop);
            }
        }
    }

    /// Follows a call to its result, or ends it when the turn is told to end.
    async fn follow(
        &mut self,
        request: registry::CallToolRequest,
    ) -> Result<Result<common::CallResult, Status>, Stop> {
        let effect_id = request.effect_id.clone();
        let calling = receive(self.shared.registry.clone(), self.recorder.clone(), request);
        tokio::pin!(calling);
        tokio::select! {
            biased;
            () = self.control.cancelled() => {}
            ended = &mut calling => return ended.map_err(Stop::Storage),
        }
        let stop = self.told();
        let reason = match &stop {
            Stop::Told(CancelReason::Requested(reason)) => reason.clone(),
            _ => "the turn's deadline passed".to_owned(),
        };
        // The result comes from the call itself, so that what had been done is known.
        let both = async { tokio::join!(self.cancel_call(&effect_id, &reason), &mut calling).1 };
        match tokio::time::timeout(CANCEL_WAIT, both).await {
            Ok(Ok(Ok(result))) => Ok(Ok(result)),
            Ok(Err(error)) => Err(Stop::Storage(error)),
            Ok(Ok(Err(_))) | Err(_) => Err(stop),
        }
    }

    /// Asks the registry to end a call. The run's own deadline may have passed, so that the
    /// request has a time of its own.
    async fn cancel_call(&self, effect_id: &str, reason: &str) -> Result<(), Status> {
        let mut registry = self.shared.registry.clone();
        let request = registry::CancelCallRequest {
            effect_id: effect_id.to_owned(),
            reason: reason.to_owned(),
        };
        let path = self.control.call_context().path().clone();
        let context = CallContext::new(path).with_timeout(CANCEL_WAIT);
        let answer = context
            .scope(registry.cancel_call(request))
            .await?
            .into_inner();
        if !answer.ended {
            tracing::warn!(effect_id, still_running = ?answer.still_running, "a cancelled call has not ended");
        }
        Ok(())
    }

    async fn wait(&self, delay: Duration) -> Result<(), Stop> {
        tokio::select! {
            biased;
            () = self.control.cancelled() => Err(self.told()),
            () = tokio::time::sleep(delay) => Ok(()),
        }
    }

    fn told(&self) -> Stop {
        Stop::Told(self.control.why().unwrap_or(CancelReason::Deadline))
    }
}

/// Words what the model is told about a call that has ended; nothing if nobody knows how.
fn words(result: &common::CallResult) -> Option<String> {
    match result.status() {
        common::CallStatus::Unknown | common::CallStatus::Unspecified => None,
        _ => Some(call_wire::observation(result)),
    }
}

/// Asks for a call and records what happens below it, until its result comes.
async fn receive(
    mut registry: ToolRegistryServiceClient<Transport>,
    recorder: Recorder,
    request: registry::CallToolRequest,
) -> Result<Result<common::CallResult, Status>, AppendError> {
    let mut records = match registry.call_tool(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return Ok(Err(status)),
    };
    loop {
        match records.message().await {
            Ok(Some(response)) => match response.record {
                Some(Record::Event(event)) => recorder.submit_child(event).await?,
                Some(Record::Result(result)) => return Ok(Ok(result)),
                None => {}
            },
            Ok(None) => {
                return Ok(Err(Status::unavailable(
                    "the stream ended before the result",
                )));
            }
            Err(status) => return Ok(Err(status)),
        }
    }
}

/// What became of a call that the registry did not take.
fn refused(call: &ReadCall, status: &Status) -> common::CallResult {
    let code = grpc_kit::reason(status).map_or_else(
        || "refused".to_owned(),
        |reason| grpc_kit::failure::reason_name(reason).to_ascii_lowercase(),
    );
    let mut error = outcome::error(common::ErrorCategory::Validation, &code, status.message());
    error.violations = grpc_kit::violations(status)
        .into_iter()
        .map(|(field, message)| common::Violation {
            code: "invalid".to_owned(),
            message: format!("{field}: {message}"),
            ..common::Violation::default()
        })
        .collect();
    ended(call, common::CallStatus::Rejected, error)
}

/// What is known of a call when the registry cannot say anything.
fn unknown(call: &ReadCall, status: &Status) -> common::CallResult {
    let message = format!(
        "tool-registry cannot say how the call went: {}",
        status.message()
    );
    ended(
        call,
        common::CallStatus::Unknown,
        outcome::error(
            common::ErrorCategory::Dependency,
            "registry_failed",
            message,
        ),
    )
}

fn ended(
    call: &ReadCall,
    status: common::CallStatus,
    error: common::CallError,
) -> common::CallResult {
    common::CallResult {
        index: call.index,
        tool_id: call.tool_id.clone(),
        status: status.into(),
        error: Some(error),
        ..common::CallResult::default()
    }
}
