//! A call in flight, as seen by every caller that waits for it.

mod live_output;
mod output_text;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use contracts::tavern::common::v1::{
    ApprovalEnded, CallResult, HookApplied, ModelTotal, OutputChunk, OutputStream, PendingWork,
    Run, RunEvent, RunStarted, WorkKind, run_event::Kind,
};
use core_types::{CallPath, Clock, Durability, Principal};
use grpc_kit::CallContext;
use run_client::pending_run;
use run_log::{Hash, RunWriter};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::ledger::{self, OutputKeeper};
use live_output::LiveOutput;
pub use live_output::OutputCursor;
pub use output_text::{STDOUT, TEXT};

/// The usage of the run of a call and of the runs below it.
#[derive(Clone, Debug, Default)]
pub struct UsedBelow {
    /// The usage of their models.
    pub model_totals: Vec<ModelTotal>,
    /// The number of calls that they made.
    pub calls: u32,
}

/// The progress of a call.
#[derive(Debug, Default)]
pub struct Stage {
    /// The run that executes the call, once it is known.
    pub child_run_id: Option<String>,
    /// The usage of that run, once it has ended.
    pub used_below: UsedBelow,
    /// The output of the tool so far.
    pub output: LiveOutput,
    /// Whether the call is in the ledger, or waits for people and is kept meanwhile.
    pub is_recorded: bool,
    /// The result of the call, once it has ended.
    pub ended: Option<Result<CallResult, Status>>,
}

/// A call in flight.
pub struct InFlightCall {
    tool_id: String,
    effect_id: String,
    body: Hash,
    owner: Principal,
    path: CallPath,
    stage: watch::Sender<Stage>,
    cancel: CancellationToken,
    /// The reason of the first cancel.
    reason: OnceLock<String>,
    /// The work that continued when the call was given up.
    still_running: Mutex<Vec<PendingWork>>,
    /// The ledger's entry, for calls that have one. Locked to take or to read it.
    entry: Mutex<Option<RunWriter>>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for InFlightCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("InFlightCall")
            .field("tool_id", &self.tool_id)
            .field("effect_id", &self.effect_id)
            .finish_non_exhaustive()
    }
}

impl InFlightCall {
    /// Makes a call that has not begun, for its principal and below the runs of its context.
    pub fn new(
        tool_id: String,
        effect_id: String,
        body: Hash,
        context: &CallContext,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let stage = Stage {
            output: LiveOutput::new(&effect_id),
            ..Stage::default()
        };
        Self {
            tool_id,
            effect_id,
            body,
            owner: context.principal().clone(),
            path: context.path().clone(),
            stage: watch::Sender::new(stage),
            cancel: CancellationToken::new(),
            reason: OnceLock::new(),
            still_running: Mutex::default(),
            entry: Mutex::default(),
            clock,
        }
    }

    /// Returns the effect id; empty for none.
    pub fn effect_id(&self) -> &str {
        &self.effect_id
    }

    /// Returns the digest of the call's body.
    pub fn body(&self) -> Hash {
        self.body
    }

    /// Returns the principal that the call acts for.
    pub fn owner(&self) -> &Principal {
        &self.owner
    }

    /// Returns the runs above the call.
    pub fn path(&self) -> &CallPath {
        &self.path
    }

    /// Follows the call.
    pub fn subscribe(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// Returns the token that fires when the call shall end.
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Cancels the call.
    pub fn cancel(&self, reason: &str) {
        // A second cancel changes nothing, so its reason is not needed.
        let _ = self.reason.set(reason.to_owned());
        self.cancel.cancel();
    }

    /// Returns the reason of the cancel; empty without a cancel or a reason.
    pub fn cancel_reason(&self) -> String {
        self.reason.get().cloned().unwrap_or_default()
    }

    /// Returns the work that continues although the call was given up, or the work of the call
    /// itself.
    pub fn still_running(&self) -> Vec<PendingWork> {
        let named = self
            .still_running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let stage = self.stage.borrow();
        match (&stage.ended, &stage.child_run_id) {
            (Some(_), _) => named,
            (None, Some(child)) => vec![pending_run(child)],
            (None, None) => vec![PendingWork {
                kind: WorkKind::Call.into(),
                id: self.effect_id.clone(),
            }],
        }
    }

    /// Records work that continues although the call was given up.
    pub fn leave_running(&self, work: PendingWork) {
        self.still_running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(work);
    }

    /// Takes the ledger's entry of this call, or the one that was opened anew.
    pub fn has_entry(&self, entry: RunWriter) {
        *self.entry.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
        self.stage.send_modify(|stage| stage.is_recorded = true);
    }

    /// Returns the keeper of a long output; none for a call that is not in the ledger.
    pub fn output_keeper(&self, durability: Durability) -> Option<OutputKeeper> {
        Some(OutputKeeper::new(
            self.entry()?,
            Arc::clone(&self.clock),
            durability,
        ))
    }

    fn entry(&self) -> Option<RunWriter> {
        let entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        entry.clone()
    }

    /// Records that a run executes the call. The ledger keeps its id, so that it can be found after
    /// a crash even if no caller asks for the call again.
    pub async fn child_started(&self, run_id: &str) {
        self.stage
            .send_modify(|stage| stage.child_run_id = Some(run_id.to_owned()));
        let Some(entry) = self.entry() else {
            return;
        };
        let mut event = self.event(Kind::RunStarted(RunStarted::default()));
        event.parent_path = self.path.steps().to_vec();
        event.run_id = run_id.to_owned();
        if let Err(error) = entry.submit(ledger::encode(&event, self.clock.now())).await {
            tracing::warn!(error = %error, run_id, "the ledger could not note a run");
        }
    }

    /// Takes an event of the run that executes the call, for the text of the output.
    pub fn below(&self, kind: &Kind) {
        self.stage.send_if_modified(|stage| {
            stage.output.take_below(kind);
            // Followers read the events of the run from its log.
            false
        });
    }

    /// Takes the run and its usage from the result of a tool that returned before a crash.
    pub fn returned_before(&self, result: &CallResult) {
        let used_below = UsedBelow {
            model_totals: result.model_totals.clone(),
            calls: result.calls_below,
        };
        let child = Some(result.child_run_id.clone()).filter(|child| !child.is_empty());
        self.stage.send_modify(|stage| {
            stage.child_run_id = child;
            stage.used_below = used_below;
        });
    }

    /// Whether the output of the call is held back.
    pub fn is_held_back(&self) -> bool {
        self.stage.borrow().output.is_held_back()
    }

    /// Records the usage of the run that executed the call.
    pub fn used_below(&self, run: &Run) {
        let Some(outcome) = &run.outcome else {
            return;
        };
        self.stage.send_modify(|stage| {
            stage.used_below = UsedBelow {
                model_totals: outcome.model_totals.clone(),
                calls: outcome.calls,
            };
        });
    }

    /// Shows text that the tool wrote.
    pub fn output(&self, stream: OutputStream, text: String) {
        self.show(|output| output.write(stream, text));
    }

    /// Shows JSON values of the tool's output, each a line.
    pub fn values(&self, lines: String) {
        self.show(|output| output.write_lines(lines));
    }

    fn show(&self, write: impl FnOnce(&mut LiveOutput) -> Option<OutputChunk>) {
        self.stage.send_if_modified(|stage| {
            let chunk = write(&mut stage.output);
            let chunk = chunk.map(|chunk| self.event(Kind::OutputChunk(chunk)));
            chunk.is_some_and(|event| stage.output.add_output(event))
        });
    }

    /// Shows a report of the progress of the tool's script.
    pub fn progress(&self, fraction: Option<f64>, message: String) {
        self.stage.send_modify(|stage| {
            let report = stage.output.report(fraction, message);
            let event = self.event(Kind::ProgressReported(report));
            stage.output.add_output(event);
        });
    }

    /// Shows applications of hooks.
    pub fn hooks_applied(&self, applied: &[HookApplied]) {
        if applied.is_empty() {
            return;
        }
        let events = applied
            .iter()
            .map(|applied| self.event(Kind::HookApplied(applied.clone())));
        self.stage
            .send_modify(|stage| events.for_each(|event| stage.output.add(event)));
    }

    /// Holds the output of the tool back until it is released or discarded.
    pub fn hold_back(&self) {
        self.stage.send_modify(|stage| stage.output.hold_back());
    }

    /// Shows the output that was held back.
    pub fn release(&self) {
        self.stage.send_if_modified(|stage| stage.output.release());
    }

    /// Drops the output that was held back.
    pub fn discard(&self) {
        self.stage.send_modify(|stage| stage.output.discard());
    }

    /// Shows that the call waits for people. Their decision is stored, so the call counts as
    /// recorded.
    pub fn waits_for_approval(&self, requested: Kind) {
        self.stage.send_modify(|stage| {
            stage.output.add(self.event(requested));
            stage.is_recorded = true;
        });
    }

    /// Shows the decision of people.
    pub fn approval_ended(&self, ended: ApprovalEnded) {
        let event = self.event(Kind::ApprovalEnded(ended));
        self.stage.send_modify(|stage| stage.output.add(event));
    }

    /// Records that the tool begins again, so that followers discard its earlier output.
    pub fn begin_again(&self) {
        let now = self.clock.now();
        self.stage.send_modify(|stage| {
            let reset = stage.output.begin_again(now);
            stage.output.add(self.event(Kind::OutputReset(reset)));
        });
    }

    /// Whether the call has ended.
    pub fn has_ended(&self) -> bool {
        self.stage.borrow().ended.is_some()
    }

    /// Records the end of the call. Only the first end counts.
    pub fn end(&self, result: Result<CallResult, Status>) {
        self.stage.send_modify(|stage| {
            stage.ended.get_or_insert(result);
        });
    }

    /// Makes an event of the run that made the call.
    pub fn event(&self, kind: Kind) -> RunEvent {
        let (run_id, parent_path) = match self.path.steps().split_last() {
            Some((caller, above)) => (caller.clone(), above.to_vec()),
            None => (String::new(), Vec::new()),
        };
        let (trace_id, span_id) = telemetry::context::current_ids();
        RunEvent {
            sequence: 0,
            run_id,
            parent_path,
            time: Some(run_events::timestamp_to_proto(self.clock.now())),
            trace_id,
            span_id,
            origin_sequence: 0,
            kind: Some(kind),
        }
    }
}
