//! Runs that execute the calls of a parsed text, in their order.

mod begin;
mod one;
mod resume;

use contracts::tavern::common::v1::{
    CallResult, CallSettled, CallStatus, ErrorCategory, Observation, RunOutcome, ToolCall,
    run_event::Kind,
};
use core_types::ConversationId;
use futures::{FutureExt, StreamExt, stream};
use run_events::{End, Recorder, RunControl, outcome};
use run_log::AppendError;
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex},
};

use crate::runner::calls::Calls;
use one::CallEnd;

pub use begin::{Invocations, KIND};

/// The most of all outputs together that fits into the event that ends a run, in bytes.
const MAX_RESULT_BYTES: usize = 900 << 10;
/// The most calls of one run that are in flight at once.
const MAX_AT_ONCE: usize = 8;

/// The calls of a run, and the results of those that have ended.
struct Invocation {
    calls: Calls,
    recorder: Recorder,
    selected: Arc<[ToolCall]>,
    /// The message for the model about blocks that could not be parsed into calls; the run fails
    /// then.
    malformed: String,
    /// The message for the model, after the result of the last call, about blocks that were left
    /// out.
    left_out: String,
    conversation: Option<ConversationId>,
    /// The agent for which the calls are made; empty if there is none.
    profile_id: String,
    /// The results of calls that ended, by index.
    settled: BTreeMap<u32, CallResult>,
    /// The calls that were dispatched before a restart.
    dispatched: BTreeSet<u32>,
}

/// The reason for stopping before the last call.
enum EarlyEnd {
    End(Box<End>),
    InDoubt(Vec<CallResult>),
}

impl From<AppendError> for EarlyEnd {
    fn from(error: AppendError) -> Self {
        tracing::error!(error = %error, "a run waits for the storage and continues later");
        Self::End(Box::new(End::LeaveOpen))
    }
}

impl Invocation {
    async fn work(mut self, control: RunControl) -> End {
        match self.all(&control).await {
            Ok(()) => End::Finished(self.outcome()),
            Err(EarlyEnd::End(end)) => *end,
            Err(EarlyEnd::InDoubt(mut results)) => {
                let error = results.first_mut().and_then(|result| result.error.take());
                let effects = results.into_iter().map(|result| result.effect_id);
                End::Finished(outcome::in_doubt(
                    effects.collect(),
                    error.unwrap_or_default(),
                ))
            }
        }
    }

    /// Executes the calls in their order; neighbours that may run beside each other together.
    async fn all(&mut self, control: &RunControl) -> Result<(), EarlyEnd> {
        let selected = Arc::clone(&self.selected);
        let mut rest = &*selected;
        // The failure without leave to continue, after which no call is started any more.
        let failed = Mutex::new(None);
        while !rest.is_empty() {
            let (together, after) = rest.split_at(self.neighbours(rest, control).await);
            rest = after;
            self.together(together, &failed, control).await?;
        }
        Ok(())
    }

    /// Returns the number of next calls that may be in flight together; at least one.
    async fn neighbours(&self, rest: &[ToolCall], control: &RunControl) -> usize {
        let tenant = control.call_context().tenant();
        for (count, call) in rest.iter().enumerate() {
            let beside = self.calls.may_run_beside_others(tenant, &call.tool_id);
            if !call.problems.is_empty() || !beside.await {
                return count.max(1);
            }
        }
        rest.len()
    }

    /// Executes calls that may be in flight together. Their ends are recorded in the order of the
    /// text; a result that is early waits in the ledger of effects.
    async fn together(
        &mut self,
        calls: &[ToolCall],
        failed: &Mutex<Option<String>>,
        control: &RunControl,
    ) -> Result<(), EarlyEnd> {
        let mut ended = Vec::with_capacity(calls.len());
        let mut unsettled = Vec::new();
        {
            let this = &*self;
            let ends = calls.iter().map(|call| this.one(call, failed, control));
            // Made at once and started as places become free. Boxed, because they are moved and large.
            let ends: Vec<_> = ends.map(FutureExt::boxed).collect();
            let mut ends = pin!(stream::iter(ends).buffered(MAX_AT_ONCE));
            while let Some(end) = ends.next().await {
                match end? {
                    CallEnd::Settled(result) => ended.push(result),
                    CallEnd::Ended(result) => {
                        this.settle(&result).await?;
                        ended.push(result);
                    }
                    CallEnd::NotStarted => {}
                    CallEnd::Unsettled(effect) => unsettled.push(effect),
                }
            }
        }
        let unknown: Vec<CallResult> = ended
            .iter()
            .filter(|result| result.status() == CallStatus::InDoubt)
            .cloned()
            .collect();
        let ended = ended.into_iter().map(|result| (result.index, result));
        self.settled.extend(ended);
        match unknown.is_empty() {
            true => stop_if_cancelled(control, unsettled),
            false => Err(EarlyEnd::InDoubt(unknown)),
        }
    }

    async fn settle(&self, result: &CallResult) -> Result<(), AppendError> {
        let observation = Observation {
            text: self.observation_of(result),
            index: Some(result.index),
        };
        let events = vec![
            Kind::CallSettled(CallSettled {
                result: Some(result.clone()),
            }),
            Kind::Observation(observation),
        ];
        self.recorder.record(events).await.map(drop)
    }

    /// Words the end of a call. For a malformed call, the parser has the better words.
    fn observation_of(&self, result: &CallResult) -> String {
        let call = self.selected.iter().find(|call| call.index == result.index);
        let mut text =
            match call.filter(|call| !call.problems.is_empty() && !call.feedback.is_empty()) {
                Some(call) if result.status() == CallStatus::Rejected => call.feedback.clone(),
                _ => call_wire::observation(result),
            };
        let last = self.selected.last().map(|call| call.index);
        if last == Some(result.index) && !self.left_out.is_empty() {
            text.push('\n');
            text.push_str(&self.left_out);
        }
        text
    }

    /// Returns the outcome of a run whose calls are all settled.
    fn outcome(&self) -> RunOutcome {
        let fatal = self
            .selected
            .iter()
            .filter(|call| !call.continue_on_error)
            .find_map(|call| {
                self.settled
                    .get(&call.index)
                    .and_then(|result| result.error.clone())
            });
        if let Some(error) = fatal {
            return outcome::failed(error);
        }
        if !self.malformed.is_empty() {
            let error = outcome::error(
                ErrorCategory::Validation,
                "malformed_block",
                self.malformed.clone(),
            );
            return outcome::failed(error);
        }
        let results = || {
            self.selected
                .iter()
                .filter_map(|call| self.settled.get(&call.index))
        };
        if let Some((long, result)) =
            results().find_map(|result| Some((result.long_output.as_ref()?, result)))
        {
            let message = format!(
                "{} gave {} bytes, too many for a result; ReadOutput reads them by the handle {}",
                result.tool_id, long.total_bytes, result.effect_id
            );
            return too_large(message);
        }
        let outputs = self.selected.iter().map(|call| {
            let settled = self.settled.get(&call.index);
            match settled.map_or("", |result| &result.output_json) {
                "" => "null",
                output => output,
            }
        });
        let result = format!("[{}]", outputs.collect::<Vec<_>>().join(","));
        if result.len() > MAX_RESULT_BYTES {
            let message = format!(
                "the outputs together have {} bytes, more than {MAX_RESULT_BYTES}; each is in the event \
                 that settles its call",
                result.len()
            );
            return too_large(message);
        }
        outcome::succeeded(result)
    }
}

fn too_large(message: String) -> RunOutcome {
    outcome::failed(outcome::error(
        ErrorCategory::Limit,
        "result_too_large",
        message,
    ))
}

fn stop_if_cancelled(control: &RunControl, unsettled: Vec<String>) -> Result<(), EarlyEnd> {
    match control.why() {
        Some(reason) => {
            let outcome = outcome::stopped(&reason, unsettled);
            Err(EarlyEnd::End(Box::new(End::Finished(outcome))))
        }
        None => Ok(()),
    }
}
