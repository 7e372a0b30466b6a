//! The hooks of plugins about runs of workflows.

use contracts::tavern::common::v1::{ErrorCategory, HookApplied, Run, RunOutcome, run_event::Kind};
use contracts::tavern::registry::v1::HookDenial;
use grpc_kit::{CallContext, Failure};
use plugin_client::{HookClient, Point};
use run_events::{End, StartRun, Started, outcome};
use serde_json::{Map, Value, json};
use tonic::Status;

use super::Inner;

/// A run whose inputs passed through hooks.
#[derive(Default)]
pub(super) struct HookedInputs {
    /// The inputs in the place of the caller's; none if no hook changed them.
    pub(super) inputs: Option<Map<String, Value>>,
    /// The refusal of the run.
    pub(super) denial: Option<HookDenial>,
    applied: Vec<HookApplied>,
}

impl HookedInputs {
    /// Returns the applications as the first events of the run.
    pub(super) fn events(&mut self) -> impl Iterator<Item = Kind> + use<> {
        std::mem::take(&mut self.applied)
            .into_iter()
            .map(Kind::HookApplied)
    }
}

impl Inner {
    /// Passes the inputs of a workflow through the hooks before it, unless the same request started it before.
    pub(super) async fn before_execute(
        &self,
        context: &CallContext,
        start: &StartRun,
        definition: &str,
        inputs: &Map<String, Value>,
    ) -> Result<HookedInputs, Failure> {
        let point = Point::WorkflowBeforeExecute;
        if !self.hooks.may_have(point) || self.was_started(context, &start.request_id).await? {
            return Ok(HookedInputs::default());
        }
        let act = || {
            json!({"run": {
                "workflow_id": start.subject,
                "definition_digest": format!("sha256:{}", run_log::Hash::of(definition.as_bytes())),
                "conversation_id": start.conversation_id,
                "inputs": inputs,
            }})
        };
        let hooked = self.hooks.pass(context, point, act).await?;
        let inputs = hooked
            .act
            .and_then(|mut act| match act["run"]["inputs"].take() {
                Value::Object(inputs) => Some(inputs),
                _ => None,
            });
        Ok(HookedInputs {
            inputs,
            denial: hooked.denial,
            applied: hooked.applied,
        })
    }

    /// Starts a run that a hook refuses: it fails before its first node.
    pub(super) async fn begin_denied(
        &self,
        context: &CallContext,
        start: StartRun,
        denial: &HookDenial,
    ) -> Result<(Run, bool), Status> {
        match self.runs.start(context, start).await? {
            Started::Replayed(run) => Ok((run, true)),
            Started::New(recorder, _) => {
                let run_id = recorder.run_id().to_string();
                let message = format!("the workflow was not executed: {}", denial.reason);
                let mut error = outcome::error(ErrorCategory::Policy, &denial.code, message);
                error.details_json = json!({"hook": denial.hook}).to_string();
                self.runs.execute(recorder, |_| async {
                    End::Finished(outcome::failed(error))
                });
                Ok((self.runs.get(context, &run_id).await?, false))
            }
        }
    }
}

/// Shows the end of a run to the hooks that observe it.
pub(super) fn show_end(
    hooks: &HookClient,
    context: &CallContext,
    workflow_id: &str,
    outcome: &RunOutcome,
) {
    hooks.observe(context, Point::WorkflowAfterExecute, || {
        let state = outcome.state().as_str_name();
        let outputs: Value = serde_json::from_str(&outcome.result_json).unwrap_or_default();
        let error = outcome.error.as_ref();
        json!({"run": {
            "workflow_id": workflow_id,
            "state": state.trim_start_matches("RUN_STATE_"),
            "outputs": outputs,
            "error": error.map(|error| json!({"code": error.code, "message": error.message})),
        }})
    });
}
