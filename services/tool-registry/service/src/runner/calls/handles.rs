//! The tools by which a model uses the handles of its conversation: `system:read_stream`,
//! `system:list_handles` and `system:cancel`.
//!
//! A handle is the effect id of a call. Calls of another conversation are not there, and neither are those of calls
//! that the caller cannot see.

use call_outcome::{CallOutcome, Category, Failure};
use contracts::tavern::common::v1::{CallResult, CallStatus};
use core_types::{ConversationId, EffectId};
use run_events::seen_by;
use run_log::RunFilter;
use serde_json::{Value, json};
use tonic::Status;

use super::Inner;
use crate::{
    dispatch::ResolvedCall,
    ledger::{Effect, Entry, LedgerEntry, Settled},
};
use tool_domain::definition::{self, Definition, Implementation};

/// The definitions of the tools.
const DEFINITIONS: [&str; 3] = [
    include_str!("handles/read_stream.tool.json"),
    include_str!("handles/list_handles.tool.json"),
    include_str!("handles/cancel.tool.json"),
];
/// The part of an output that is read if the call names no limit, in bytes.
const DEFAULT_READ_BYTES: u64 = 16 << 10;
/// The most handles that are listed.
const MAX_LISTED: usize = 50;
/// The most calls of a conversation that are looked at for them, the newest first.
const MAX_LOOKED_AT: usize = 500;

/// Returns the definitions of the tools.
pub fn definitions() -> Vec<Definition> {
    DEFINITIONS
        .iter()
        .map(|text| definition::read(text).expect("the platform's own definitions are tested"))
        .collect()
}

/// A tool for handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleTool {
    Read,
    List,
    Cancel,
}

impl HandleTool {
    /// Returns the tool that is implemented so, if one is.
    pub(super) fn of(implementation: &Implementation) -> Option<Self> {
        match implementation {
            Implementation::Builtin(method) => Self::named(method),
            _ => None,
        }
    }

    fn named(id: &str) -> Option<Self> {
        Some(match id {
            "system:read_stream" => Self::Read,
            "system:list_handles" => Self::List,
            "system:cancel" => Self::Cancel,
            _ => return None,
        })
    }
}

impl Inner {
    /// Carries a call of one of the tools out.
    pub(super) async fn use_handle(
        &self,
        tool: HandleTool,
        resolved: &ResolvedCall,
    ) -> CallOutcome {
        let Some(conversation) = &resolved.conversation else {
            let message = "the call belongs to no conversation, so there are no handles";
            return CallOutcome::Failed(Failure::invalid("no_conversation", message));
        };
        let used = match tool {
            HandleTool::Read => self.read_handle(conversation, resolved).await,
            HandleTool::List => self.list_handles(conversation, resolved).await,
            HandleTool::Cancel => self.cancel_handle(conversation, resolved).await,
        };
        used.map_or_else(CallOutcome::Failed, CallOutcome::Succeeded)
    }

    async fn read_handle(
        &self,
        conversation: &ConversationId,
        resolved: &ResolvedCall,
    ) -> Result<Value, Failure> {
        let (effect, entry) = self.find_handle(conversation, resolved).await?;
        let number = |name: &str, default| {
            let given = resolved.arguments.get(name).and_then(Value::as_u64);
            given.unwrap_or(default)
        };
        let (offset, limit) = (number("offset", 0), number("limit", DEFAULT_READ_BYTES));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        match entry {
            LedgerEntry::Settled(settled) => self.read_settled(&settled, offset, limit).await,
            LedgerEntry::InFlight(_) | LedgerEntry::Absent => {
                let (written, generation) = self.written_by(&effect);
                let begin = usize::try_from(offset).unwrap_or(usize::MAX);
                // After a restart, the tool may not yet have rewritten the output that was read
                // before.
                let rest = match begin > written.len() {
                    true => "",
                    false => written.get(begin..).ok_or_else(|| no_such_offset(offset))?,
                };
                let text = &rest[..rest.floor_char_boundary(limit)];
                Ok(json!({
                    "state": "running",
                    "generation": generation,
                    "text": text,
                    "next_offset": begin + text.len(),
                }))
            }
        }
    }

    async fn read_settled(
        &self,
        settled: &Settled,
        offset: u64,
        limit: usize,
    ) -> Result<Value, Failure> {
        if let Some(error) = &settled.result.error {
            return Ok(json!({
                "state": state_of(&settled.result),
                "error": {"code": error.code, "message": error.message},
            }));
        }
        let part = self.ledger.read_output(settled, offset, limit).await;
        let part = part.map_err(|status| unreadable(&status))?;
        let part = part.ok_or_else(|| no_such_offset(offset))?;
        Ok(json!({
            "state": "succeeded",
            "text": part.text,
            "next_offset": offset + part.text.len() as u64,
            "total_bytes": part.total_bytes,
        }))
    }

    /// Returns the beginning of the output of a call in flight, and which start of its tool wrote it.
    fn written_by(&self, effect: &Effect) -> (String, u64) {
        let in_flight = self.in_flight_calls().get(effect).cloned();
        in_flight.map_or_else(Default::default, |in_flight| {
            let stage = in_flight.subscribe();
            let stage = stage.borrow();
            (stage.output.beginning(), stage.output.generation())
        })
    }

    async fn list_handles(
        &self,
        conversation: &ConversationId,
        resolved: &ResolvedCall,
    ) -> Result<Value, Failure> {
        let filter = RunFilter {
            owners: seen_by(&resolved.context),
            conversation: Some(conversation.to_string()),
            ..RunFilter::default()
        };
        let page = self.ledger.list(&filter, None, MAX_LOOKED_AT).await;
        let page = page.map_err(|status| unreadable(&status))?;
        let handles: Vec<Value> = page
            .calls
            .iter()
            .filter_map(listed)
            .take(MAX_LISTED)
            .collect();
        Ok(json!({"handles": handles}))
    }

    async fn cancel_handle(
        &self,
        conversation: &ConversationId,
        resolved: &ResolvedCall,
    ) -> Result<Value, Failure> {
        let (effect, entry) = self.find_handle(conversation, resolved).await?;
        if let LedgerEntry::Settled(settled) = entry {
            return Ok(json!({"state": state_of(&settled.result)}));
        }
        let reason = resolved.arguments.get("reason").and_then(Value::as_str);
        let left = self.cancel(&effect, reason.unwrap_or_default()).await;
        let left = left.map_err(|status| unreadable(&status))?;
        if !left.is_empty() {
            return Ok(json!({"state": "running", "note": "it was asked to end and has not yet"}));
        }
        // It may have ended by itself just before.
        match self.find_handle(conversation, resolved).await?.1 {
            LedgerEntry::Settled(settled) => Ok(json!({"state": state_of(&settled.result)})),
            LedgerEntry::InFlight(_) | LedgerEntry::Absent => Ok(json!({"state": "running"})),
        }
    }

    /// Finds the call that the arguments name.
    async fn find_handle(
        &self,
        conversation: &ConversationId,
        resolved: &ResolvedCall,
    ) -> Result<(Effect, LedgerEntry), Failure> {
        let handle = resolved.arguments.get("handle").and_then(Value::as_str);
        let handle = handle.unwrap_or_default();
        let missing = || {
            let message = format!(
                "this conversation has no handle '{handle}'; system:list_handles lists those that it has"
            );
            Failure::new(Category::Domain, "handle_not_found", message)
        };
        let effect = EffectId::new(handle).map_err(|_| missing())?;
        // A call is not finished while it reads itself.
        if resolved.effect_id.as_ref() == Some(&effect) {
            return Err(missing());
        }
        let effect = Effect::of(resolved.context.principal(), effect);
        let entry = self.ledger.find(&resolved.context, &effect).await;
        let entry = entry.map_err(|status| unreadable(&status))?;
        match dispatch_of(&entry) {
            Some(of) if of.record.conversation_id == conversation.as_str() => Ok((effect, entry)),
            _ => Err(missing()),
        }
    }
}

fn dispatch_of(entry: &LedgerEntry) -> Option<&Entry> {
    match entry {
        LedgerEntry::Absent => None,
        LedgerEntry::InFlight(entry) => Some(entry),
        LedgerEntry::Settled(settled) => Some(&settled.entry),
    }
}

/// Describes a call if a model may want its handle.
fn listed(entry: &LedgerEntry) -> Option<Value> {
    let of = dispatch_of(entry).filter(|of| HandleTool::named(&of.record.tool_id).is_none())?;
    let described = json!({"handle": of.effect_id(), "tool": of.record.tool_id});
    let more = match entry {
        LedgerEntry::Settled(settled) => {
            let given = call_wire::gives_handle(&settled.result).then_some(&settled.result)?;
            json!({"state": state_of(given), "total_bytes": call_wire::output_bytes(given)})
        }
        LedgerEntry::InFlight(_) | LedgerEntry::Absent => json!({"state": "running"}),
    };
    match (described, more) {
        (Value::Object(mut described), Value::Object(more)) => {
            described.extend(more);
            Some(Value::Object(described))
        }
        _ => None,
    }
}

fn state_of(result: &CallResult) -> &'static str {
    match result.status() {
        CallStatus::Succeeded => "succeeded",
        CallStatus::Cancelled => "cancelled",
        CallStatus::InDoubt => "in_doubt",
        CallStatus::Rejected | CallStatus::Skipped => "rejected",
        CallStatus::Failed | CallStatus::Unspecified => "failed",
    }
}

fn no_such_offset(offset: u64) -> Failure {
    let message = format!(
        "{offset} lies beyond what there is, or inside a character; read on from the next_offset of the last reading"
    );
    Failure::new(Category::Validation, "offset_out_of_range", message)
}

fn unreadable(status: &Status) -> Failure {
    tracing::warn!(error = status.message(), "a handle could not be used");
    let message = "the ledger of calls cannot be used now; try again later";
    Failure::new(Category::Dependency, "ledger_unavailable", message).retryable()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_definition_is_a_tool_for_handles() {
        let tools: Vec<_> = definitions()
            .iter()
            .filter_map(|definition| HandleTool::of(&definition.implementation))
            .collect();
        assert_eq!(
            tools,
            [HandleTool::Read, HandleTool::List, HandleTool::Cancel]
        );
    }
}
