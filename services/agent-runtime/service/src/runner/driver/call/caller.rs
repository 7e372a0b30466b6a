//! The calls of a turn, which the registry alone dispatches to tools.

use agent_domain::turn::ReadCall;
use contracts::tavern::{common::v1 as common, registry::v1::CallToolRequest};
use run_client::{CallClient, CallEnd, RemoteCall, cancel_words, carry_out};
use run_events::{CancelReason, Recorder, RunControl, durability_to_proto};

use super::Asker;
use crate::runner::driver::stop::TurnStop;

/// The client of the registry for the calls of one turn. Clone, cheap.
#[derive(Clone)]
pub(in crate::runner::driver) struct TurnCaller {
    pub(in crate::runner::driver) calls: CallClient,
    pub(in crate::runner::driver) recorder: Recorder,
    /// Ends the calls in flight with the turn, or while it continues to its own end.
    pub(in crate::runner::driver) control: RunControl,
    pub(in crate::runner::driver) conversation_id: String,
    pub(in crate::runner::driver) asker: Asker,
}

impl TurnCaller {
    /// Carries out a call that is about to be sent, or was sent before this process began.
    pub(in crate::runner::driver) async fn execute(
        &self,
        call: &ReadCall,
        tool_id: String,
        effect_id: &str,
        left_before: bool,
        grant: common::CallGrant,
    ) -> Result<common::CallResult, TurnStop> {
        let asked = RemoteCall {
            calls: self.calls.clone(),
            request: CallToolRequest {
                tool_id,
                arguments_json: self.asker.arguments(call),
                effect_id: effect_id.to_owned(),
                conversation_id: self.conversation_id.clone(),
                durability: durability_to_proto(self.recorder.durability()).into(),
                index: call.index,
                needs_confirmation: call.needs_confirmation,
                attempt: 1,
                grant: Some(grant),
                ..CallToolRequest::default()
            },
            retries: call_wire::granted_retries(call.retries),
            left_before,
            starts_only: call.no_reply,
        };
        let end = carry_out(&asked, &self.recorder, &self.control);
        match end.await.map_err(TurnStop::Storage)? {
            CallEnd::Settled(mut result) => {
                self.asker.keep(call, &result).await?;
                // The model knows the tool by the name in its profile.
                result.tool_id.clone_from(&call.tool_id);
                Ok(*result)
            }
            CallEnd::NotEnded => {
                let part = || CancelReason::Requested(cancel_words(&self.control));
                Err(TurnStop::Cancelled(self.control.why().unwrap_or_else(part)))
            }
        }
    }
}
