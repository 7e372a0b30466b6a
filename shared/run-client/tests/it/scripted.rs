//! A call whose registry answers by the script of a test.

use std::{
    future::pending,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use contracts::tavern::common::v1::{CallResult, CallStatus, PendingWork};
use futures::{StreamExt, future, stream, stream::BoxStream};
use grpc_kit::CallContext;
use run_client::{Call, CallProgress, CallTerms};
use run_events::RunControl;
use tokio::sync::watch;
use tonic::Status;

/// An answer of the registry to one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A result with this status, and the attempt that may follow.
    Ended(CallStatus, u32),
    /// A status in place of a result.
    Status(Status),
    /// No result before the call is cancelled.
    Works,
    /// No result at all.
    Deaf,
}

/// A call at a registry that answers one request after the other; the last answer again and again.
pub(crate) struct Scripted {
    terms: CallTerms,
    answers: Mutex<Vec<Answer>>,
    asked: Mutex<Vec<u32>>,
    cancels: AtomicU32,
    cancelled: watch::Sender<bool>,
    begun: watch::Sender<bool>,
}

impl Scripted {
    pub(crate) fn new(terms: CallTerms, mut answers: Vec<Answer>) -> Self {
        answers.reverse();
        Self {
            terms,
            answers: Mutex::new(answers),
            asked: Mutex::default(),
            cancels: AtomicU32::new(0),
            cancelled: watch::Sender::new(false),
            begun: watch::Sender::new(false),
        }
    }

    /// Returns the requested attempts, in order.
    pub(crate) fn asked(&self) -> Vec<u32> {
        self.asked.lock().unwrap().clone()
    }

    /// Whether the end of the call was requested.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.cancels.load(Ordering::Relaxed) > 0
    }

    /// Waits until the call was requested.
    pub(crate) async fn begun(&self) {
        let mut begun = self.begun.subscribe();
        begun.wait_for(|begun| *begun).await.unwrap();
    }
}

fn result(status: CallStatus, next_attempt: u32) -> Result<CallProgress, Status> {
    Ok(CallProgress::Result(Box::new(CallResult {
        status: status.into(),
        next_attempt,
        ..CallResult::default()
    })))
}

impl Call for Scripted {
    fn named(&self) -> CallResult {
        CallResult {
            effect_id: "effect-1".to_owned(),
            tool_id: "Look".to_owned(),
            ..CallResult::default()
        }
    }

    fn terms(&self) -> CallTerms {
        self.terms
    }

    fn ask(
        &self,
        attempt: u32,
        _: &CallContext,
    ) -> BoxStream<'static, Result<CallProgress, Status>> {
        self.asked.lock().unwrap().push(attempt);
        self.begun.send_replace(true);
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.len() {
            1 => answers.first().cloned(),
            _ => answers.pop(),
        };
        let mut cancelled = self.cancelled.subscribe();
        match answer.unwrap() {
            Answer::Ended(status, next) => {
                stream::once(future::ready(result(status, next))).boxed()
            }
            Answer::Status(status) => stream::once(future::ready(Err(status))).boxed(),
            Answer::Works => stream::once(async move {
                let _ = cancelled.wait_for(|cancelled| *cancelled).await;
                result(CallStatus::Cancelled, 0)
            })
            .boxed(),
            Answer::Deaf => stream::once(pending()).boxed(),
        }
    }

    async fn cancel(&self, _: &str, _: &RunControl) -> Result<Vec<PendingWork>, Status> {
        self.cancels.fetch_add(1, Ordering::Relaxed);
        self.cancelled.send_replace(true);
        Ok(Vec::new())
    }
}
