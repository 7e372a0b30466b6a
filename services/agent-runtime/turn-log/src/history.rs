//! The earlier turns of a conversation, read from their logs.

use agent_domain::{
    compaction::Compaction,
    message::{ChatMessage, Role, TurnMessage},
    plan::{Opening, Plan},
};
use contracts::tavern::common::v1::{self as common, ErrorReason, run_event::Kind};
use core_types::{RunId, Timestamp};
use grpc_kit::{Failure, run_list::timestamp_from_proto};
use run_events::Runs;
use serde_json::Value;

/// The most text of earlier turns that the echo rule compares, in bytes.
const MAX_UNTRUSTED_BYTES: usize = 1 << 20;

/// Messages that were appended together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The time of the append.
    pub created: Timestamp,
    /// The messages, in order.
    pub messages: Vec<ChatMessage>,
}

/// One turn of a conversation, or messages appended between turns.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// The run of the turn; empty for appended messages.
    pub run_id: String,
    /// Its messages.
    pub messages: Vec<TurnMessage>,
    /// Texts that the model was shown in it and that are not trusted.
    pub untrusted: Vec<String>,
    /// Whether a call of it returned a handle.
    pub handle_given: bool,
    /// The last compaction in it; none if it has none.
    pub compaction: Option<Compaction>,
}

impl Earlier {
    /// Whether it was appended and begins with the result of a call that was appended before it.
    pub fn continues(&self) -> bool {
        let first = self.messages.first();
        self.run_id.is_empty() && first.is_some_and(|first| first.message.result_of.is_some())
    }

    /// Adds the messages that were appended next.
    pub fn join(&mut self, next: Self) {
        self.messages.extend(next.messages);
        self.untrusted.extend(next.untrusted);
    }
}

/// Reads a turn of a conversation; none if its log cannot be replayed, which is reported in the log
/// of the server.
///
/// # Errors
/// A storage that does not work.
pub async fn turn(runs: &Runs, run: common::Run, plan: &Plan) -> Result<Option<Earlier>, Failure> {
    let Ok(run_id) = run.run_id.parse::<RunId>() else {
        return Ok(None);
    };
    let events = match runs.events(run_id).await {
        Ok(events) => events,
        // It was deleted since the conversation was read.
        Err(failure) if failure.reason() == ErrorReason::RunNotFound => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let own = events.iter().filter(|event| event.run_id == run.run_id);
    let folded = match crate::replay::fold(plan, false, own.clone()) {
        Ok(folded) => folded,
        Err(error) => {
            tracing::error!(
                run = run.run_id,
                error = grpc_kit::failure::chain(&error),
                "an earlier turn cannot be read"
            );
            return Ok(None);
        }
    };
    let mut untrusted = untrusted_given(&folded.given);
    untrusted.extend(untrusted_opening(&folded.opening));
    let kinds = own.filter_map(|event| event.kind.as_ref());
    untrusted.extend(kinds.clone().flat_map(untrusted_of));
    let compaction = kinds.clone().filter_map(compaction_of).next_back();
    let handle_given = kinds.into_iter().any(gives_handle);
    let mut messages = folded.given;
    if !plan.compact {
        messages.extend(folded.turn.messages());
    }
    Ok(Some(Earlier {
        run_id: run.run_id,
        messages,
        untrusted,
        handle_given,
        compaction,
    }))
}

/// Reads messages that were appended between turns.
pub fn appended(batch: &Batch) -> Earlier {
    let messages: Vec<TurnMessage> = batch
        .messages
        .iter()
        .map(|message| message.clone().at(batch.created))
        .collect();
    Earlier {
        run_id: String::new(),
        untrusted: untrusted_given(&messages),
        messages,
        handle_given: false,
        compaction: None,
    }
}

/// Returns the texts of users and tools before a turn.
pub fn untrusted_given(given: &[TurnMessage]) -> Vec<String> {
    let messages = given.iter().map(|given| &given.message);
    let of_others = messages.filter(|message| matches!(message.role, Role::User | Role::Tool));
    of_others.map(|message| message.text.clone()).collect()
}

/// Returns the parts of a turn's opening that are not trusted.
pub fn untrusted_opening(opening: &Opening) -> Vec<String> {
    match opening {
        Opening::UserMessage(text) => vec![text.clone()],
        Opening::Events(events) => events.iter().map(Value::to_string).collect(),
        Opening::ModelText { .. } => Vec::new(),
    }
}

/// Returns the texts that an event showed the model and that are not trusted.
pub fn untrusted_of(kind: &Kind) -> Vec<String> {
    let settled = match kind {
        Kind::Steered(steered) => return vec![steered.message.clone()],
        Kind::ConversationCompacted(compacted) => return vec![compacted.summary.clone()],
        Kind::CallSettled(settled) => settled,
        _ => return Vec::new(),
    };
    let Some(result) = &settled.result else {
        return Vec::new();
    };
    let mut texts = match result.output_json.is_empty() {
        true => Vec::new(),
        false => vec![result.output_json.clone()],
    };
    texts.extend(result.long_output.as_ref().map(|long| long.head.clone()));
    // The error message may be the tool's own.
    texts.extend(result.error.as_ref().map(|error| error.message.clone()));
    texts
}

/// Returns the compaction of earlier turns; none if the event is another.
pub fn compaction_of(kind: &Kind) -> Option<Compaction> {
    match kind {
        Kind::ConversationCompacted(compacted) => Some(Compaction {
            until: compacted.until.and_then(timestamp_from_proto)?,
            summary: compacted.summary.clone(),
            turns: compacted.turns,
        }),
        _ => None,
    }
}

/// Returns whether an event handed the model a handle by which it may read on.
pub fn gives_handle(kind: &Kind) -> bool {
    match kind {
        Kind::CallSettled(settled) => settled.result.as_ref().is_some_and(call_wire::gives_handle),
        // A call that is not waited for is known by its handle alone.
        Kind::ToolSelected(selected) => {
            let control = selected
                .call
                .as_ref()
                .and_then(|call| call.control.as_ref());
            control.is_some_and(|control| control.no_reply)
        }
        _ => false,
    }
}

/// Returns the newest texts that fit into the bound of the echo rule.
pub fn newest(texts: &[String]) -> Vec<&str> {
    let mut room = MAX_UNTRUSTED_BYTES;
    let fitting = texts.iter().rev().take_while(|text| {
        let fits = text.len() <= room;
        room = room.saturating_sub(text.len());
        fits
    });
    fitting.map(String::as_str).collect()
}
