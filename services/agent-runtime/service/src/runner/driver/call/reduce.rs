//! Shortening long outputs by a workflow before the model reads them (rule G605). The whole output
//! stays in the log, and is read by its handle.

use agent_domain::{
    reduction::{self, MAX_REDUCED_BYTES},
    turn::ReadCall,
};
use contracts::tavern::common::v1::CallResult;
use run_events::RunControl;

use super::in_flight::Reduced;
use crate::runner::driver::{
    Driver,
    deliberation::{Deliberation, Inputs},
    stop::{NoAnswer, TurnStop},
};

/// Shortens the output of one call.
pub(in crate::runner::driver) struct Reducer {
    workflow: String,
    driver: HelperParts,
    control: RunControl,
}

/// A function that starts the workflow.
pub(in crate::runner::driver) type HelperParts = Box<
    dyn FnOnce(
            String,
            Inputs,
        ) -> futures::future::BoxFuture<'static, Result<Deliberation, NoAnswer>>
        + Send,
>;

impl Driver {
    /// Returns the reducer of a call's output, if the profile has one for its tool.
    pub(in crate::runner::driver) fn reducer(&self, call: &ReadCall) -> Option<Reducer> {
        let workflow = reduction::workflow_for(&self.plan.reduction, &call.tool_id)?;
        Some(Reducer {
            workflow: workflow.to_owned(),
            driver: self.helper_parts(workflow),
            control: self.control.clone(),
        })
    }
}

impl Reducer {
    /// Shortens an output that is too long to be shown whole. If the workflow fails, the output is
    /// cut.
    pub(in crate::runner::driver) async fn reduce(
        self,
        call: &ReadCall,
        result: &CallResult,
    ) -> Option<Reduced> {
        if !call_wire::gives_handle(result) || result.output_json.is_empty() {
            return None;
        }
        let output = match serde_json::from_str(&result.output_json) {
            Ok(serde_json::Value::String(text)) => text,
            _ => result.output_json.clone(),
        };
        let (tool, arguments) = (call.tool_id.clone(), call.arguments_json.clone());
        let inputs = move |interface: &_| reduction::inputs(interface, &tool, &arguments, &output);
        let number = format!(
            "reduction/{}",
            run_log::Hash::of(result.effect_id.as_bytes())
        );
        let mut helper = match (self.driver)(number, Box::new(inputs)).await {
            Ok(helper) => helper,
            Err(error) => return without(&self.workflow, &error),
        };
        let text = helper.whole(&self.control).await;
        let used = helper.take_used();
        match text {
            Ok(text) if !text.trim().is_empty() => {
                let end = text.floor_char_boundary(MAX_REDUCED_BYTES);
                let text = Some(text[..end].trim().to_owned());
                Some(Reduced { text, used })
            }
            Ok(_) => Some(Reduced { text: None, used }),
            Err(error) => {
                without(&self.workflow, &error);
                Some(Reduced { text: None, used })
            }
        }
    }
}

fn without(workflow: &str, error: &NoAnswer) -> Option<Reduced> {
    if let NoAnswer::Stopped(TurnStop::Failed(error)) = error {
        tracing::warn!(workflow, error = error.message, "a long output is cut");
    }
    None
}

/// Words the text that the model reads instead of a long output.
pub(in crate::runner::driver) fn words(result: &CallResult, text: &str) -> String {
    let shown = CallResult {
        output_json: serde_json::Value::from(text).to_string(),
        ..result.clone()
    };
    format!(
        "{}\n[A workflow shortened {} bytes of output, which have the handle {}.]{}",
        call_wire::observation(&shown),
        result.output_json.len(),
        result.effect_id,
        agent_domain::observation::READ_ON,
    )
}
