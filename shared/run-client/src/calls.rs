//! One call of a run, from its first request to its end.

use std::{pin::pin, time::Duration};

use contracts::tavern::common::v1::{
    CallError, CallResult, CallStatus, ErrorCategory, PendingWork, RunEvent,
};
use futures::{StreamExt, stream::BoxStream};
use grpc_kit::{CallContext, retry};
use run_events::{CancelReason, Recorder, RunControl, outcome};
use run_log::AppendError;
use tonic::Status;

use crate::{
    Unanswered,
    policy::{CANCEL_AGAIN, GRACE},
};

/// A message about a call in flight.
#[derive(Debug)]
pub enum CallProgress {
    /// An event of the call or of a run below it.
    Event(Box<RunEvent>),
    /// The end of the call, the last message.
    Result(Box<CallResult>),
}

/// A call at the registry, in another process or in this process.
pub trait Call: Sync {
    /// Returns a result that names the call: its effect, its tool, its index.
    fn named(&self) -> CallResult;

    /// Returns the owner's terms for the call.
    fn terms(&self) -> CallTerms;

    /// Asks for an attempt, or joins the one under way, and follows it to its result.
    fn ask(
        &self,
        attempt: u32,
        context: &CallContext,
    ) -> BoxStream<'static, Result<CallProgress, Status>>;

    /// Requests the end of the call from the registry and returns the work that continues: none as
    /// well for a call that the registry does not know.
    ///
    /// # Errors
    /// The status of the registry.
    fn cancel(
        &self,
        reason: &str,
        control: &RunControl,
    ) -> impl Future<Output = Result<Vec<PendingWork>, Status>> + Send;
}

/// The record that an owner keeps of the events below a call.
pub trait Below: Sync {
    /// Records an event.
    ///
    /// # Errors
    /// The log of the owner's run does not accept events.
    fn record(&self, event: RunEvent) -> impl Future<Output = Result<(), AppendError>> + Send;
}

impl Below for Recorder {
    async fn record(&self, event: RunEvent) -> Result<(), AppendError> {
        self.submit_child(event).await
    }
}

/// An owner's terms for a call.
#[derive(Clone, Copy, Debug)]
pub struct CallTerms {
    /// The attempt at the effect with which the owner begins, from 1.
    pub attempt: u32,
    /// The last attempt after which another may follow, where its result names a next one; zero for none.
    pub retries: u32,
    /// Whether an earlier process of the owner has requested the call.
    pub left_before: bool,
    /// The limit of an attempt's time; `None` for the limit of the tool.
    pub timeout: Option<Duration>,
}

/// The end of a call for its owner.
#[derive(Debug)]
pub enum CallEnd {
    /// The call ended, was never started, or is in doubt.
    Settled(Box<CallResult>),
    /// The owner's run was cancelled, and the call has not ended within [`GRACE`]. Its effect is unsettled.
    NotEnded,
}

/// Carries a call out. Once `control` is cancelled no attempt is dispatched, and the attempt in
/// flight is cancelled and has [`GRACE`] to end.
///
/// # Errors
/// The log of the owner's run does not accept the events of the call, so that the run cannot
/// continue now.
pub async fn carry_out(
    call: &impl Call,
    below: &impl Below,
    control: &RunControl,
) -> Result<CallEnd, AppendError> {
    let errand = Errand {
        named: call.named(),
        terms: call.terms(),
        call,
        below,
        control,
    };
    errand.carry_out().await
}

/// Returns the reason with which a run ends the work below it.
pub fn cancel_words(control: &RunControl) -> String {
    match control.why() {
        Some(CancelReason::Requested(words)) => words,
        Some(CancelReason::Deadline) => "the deadline of the run passed".to_owned(),
        None => "the run no longer needs the call".to_owned(),
    }
}

/// Returns whether a cancelled call has ended; a call that has not is logged.
pub(crate) fn has_ended(effect: &str, cancelled: Result<Vec<PendingWork>, Status>) -> bool {
    match cancelled {
        Ok(still_running) if still_running.is_empty() => return true,
        Ok(still_running) => {
            tracing::warn!(effect, ?still_running, "a cancelled call has not ended");
        }
        Err(status) => tracing::warn!(effect, %status, "a call could not be cancelled"),
    }
    false
}

/// A call with the terms, the record and the control of its owner.
struct Errand<'a, C, B> {
    call: &'a C,
    named: CallResult,
    terms: CallTerms,
    below: &'a B,
    control: &'a RunControl,
}

impl<C: Call, B: Below> Errand<'_, C, B> {
    async fn carry_out(&self) -> Result<CallEnd, AppendError> {
        if self.control.is_cancelled() && !self.terms.left_before {
            let message = format!("{} was cancelled before it was started", self.named.tool_id);
            let error = outcome::error(ErrorCategory::Cancelled, "cancelled", message);
            return Ok(self.settled(CallStatus::Cancelled, error));
        }
        if self.control.is_cancelled() {
            // An attempt of an earlier process may be in flight, and none is dispatched after a
            // cancel.
            self.cancel().await;
            return Ok(CallEnd::NotEnded);
        }
        let mut attempts = pin!(self.attempts());
        let late = tokio::select! {
            // First, so that a call is also cancelled where both happen at once.
            biased;
            () = self.control.cancelled() => CallEnd::NotEnded,
            end = &mut attempts => return end,
            // The registry ends the call when its time is over.
            () = self.overdue() => {
                let message = "the call did not end when its time was over";
                let error = outcome::error(ErrorCategory::Dependency, "registry_failed", message);
                self.settled(CallStatus::InDoubt, error)
            }
        };
        let again_and_again = async {
            loop {
                self.cancel().await;
                tokio::time::sleep(CANCEL_AGAIN).await;
            }
        };
        tokio::select! {
            biased;
            // The call itself ends with its result, which states its progress.
            end = &mut attempts => end,
            () = again_and_again => Ok(late),
            () = tokio::time::sleep(GRACE) => Ok(late),
        }
    }

    /// Requests one attempt after the other until the call has ended.
    async fn attempts(&self) -> Result<CallEnd, AppendError> {
        let (effect, left_before) = (&self.named.effect_id, self.terms.left_before);
        let mut attempt = self.terms.attempt;
        let mut unanswered = Unanswered::new(left_before);
        loop {
            let status = match self.follow(attempt).await? {
                Ok(result) if attempt <= self.terms.retries && result.next_attempt > 0 => {
                    tracing::info!(effect, attempt, "a call that failed is tried again");
                    let wait = tokio::time::sleep(retry::wait_after_attempt(attempt));
                    if !self.waited(wait).await {
                        return Ok(CallEnd::Settled(result));
                    }
                    attempt = result.next_attempt;
                    unanswered = Unanswered::new(left_before);
                    continue;
                }
                Ok(result) => return Ok(CallEnd::Settled(result)),
                Err(status) => status,
            };
            if let Some((ended, error)) = unanswered.end(&status) {
                return Ok(self.settled(ended, error));
            }
            tracing::debug!(effect, %status, "a call is asked for again");
            if !self.waited(unanswered.wait(&status)).await {
                // The registry may carry the call out although its answer was lost.
                self.cancel().await;
                return Ok(CallEnd::NotEnded);
            }
        }
    }

    /// Records the events of an attempt until its result arrives.
    async fn follow(&self, attempt: u32) -> Result<Result<Box<CallResult>, Status>, AppendError> {
        let mut progress = self.call.ask(attempt, &self.control.call_context());
        while let Some(next) = progress.next().await {
            match next {
                Ok(CallProgress::Event(event)) => self.below.record(*event).await?,
                Ok(CallProgress::Result(result)) => return Ok(Ok(result)),
                Err(status) => return Ok(Err(status)),
            }
        }
        let message = "the registry ended the stream before the result";
        Ok(Err(Status::unavailable(message)))
    }

    /// Waits; returns whether the owner's run still needs the call.
    async fn waited(&self, wait: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.control.cancelled() => false,
            () = wait => true,
        }
    }

    /// Waits until the call has not ended although its own time is over.
    async fn overdue(&self) {
        match self.terms.timeout {
            Some(timeout) => tokio::time::sleep(timeout + GRACE).await,
            None => std::future::pending().await,
        }
    }

    /// Requests the end of the call from the registry, once.
    async fn cancel(&self) {
        let reason = cancel_words(self.control);
        let answer = tokio::time::timeout(GRACE, self.call.cancel(&reason, self.control)).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        has_ended(&self.named.effect_id, answer);
    }

    /// Settles the call without an answer of its tool.
    fn settled(&self, status: CallStatus, error: CallError) -> CallEnd {
        CallEnd::Settled(Box::new(CallResult {
            status: status.into(),
            error: Some(error),
            ..self.named.clone()
        }))
    }
}
