//! `tavern calls resolve`.

use clap::Args;
use contracts::tavern::registry::v1::{Call, CallDecision, ResolveCallRequest};

use super::super::{documents, refusal};
use super::Calls;
use crate::program;

/// Returns examples for the end of the help of the command.
pub(super) fn examples() -> String {
    let command = format!("{} calls resolve EFFECT", program::name());
    format!(
        r#"Examples:
  {command} --took-effect --output '{{"index": 7}}' --reason "seen in the ledger"
  {command} --did-not"#
    )
}

/// A decision about a call in doubt.
#[derive(Args)]
pub struct Resolve {
    /// The effect id of the call.
    effect_id: String,
    #[command(flatten)]
    decision: DoubtDecision,
    /// The output of the call that took effect: JSON, or `@` and the name of a file that holds JSON.
    /// Default: null.
    #[arg(long, value_name = "JSON|@FILE", conflicts_with_all = ["did_not", "repeat"])]
    output: Option<String>,
    /// The reason, for the ledger.
    #[arg(long)]
    reason: Option<String>,
    /// The request id; the same id with the same decision decides once.
    #[arg(long)]
    request_id: Option<String>,
}

/// The decision; exactly one is required.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct DoubtDecision {
    /// The call took effect: it succeeded, with the output of the decision.
    #[arg(long)]
    took_effect: bool,
    /// The call took no effect: it failed, and may be tried again.
    #[arg(long)]
    did_not: bool,
    /// Dispatch the call again, whether it took effect or not: the effect may then happen twice.
    #[arg(long)]
    repeat: bool,
}

impl Resolve {
    /// Decides, and returns the call with its decision.
    pub(super) async fn send(self, calls: &mut Calls) -> anyhow::Result<Option<Call>> {
        let request = ResolveCallRequest {
            effect_id: self.effect_id,
            decision: self.decision.value().into(),
            output_json: self.output.map_or_else(|| Ok(String::new()), read)?,
            reason: self.reason.unwrap_or_default(),
            request_id: self.request_id.unwrap_or_default(),
        };
        let resolved = calls.resolve_call(request).await;
        Ok(resolved
            .map_err(|status| refusal(&status))?
            .into_inner()
            .call)
    }
}

impl DoubtDecision {
    fn value(&self) -> CallDecision {
        match (self.took_effect, self.did_not) {
            (true, _) => CallDecision::TookEffect,
            (_, true) => CallDecision::DidNot,
            _ => CallDecision::Repeat,
        }
    }
}

/// Returns a text, or the content of the file that it names after an `@`.
fn read(output: String) -> anyhow::Result<String> {
    match output.strip_prefix('@') {
        Some(file) => documents::read(file.as_ref()),
        None => Ok(output),
    }
}
