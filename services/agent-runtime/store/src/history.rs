//! The turns of a conversation, read from the logs of their runs.

use agent_domain::{
    compaction::Compaction,
    message::{ChatMessage, TurnMessage},
    plan::Plan,
};
use contracts::tavern::common::v1::{self as common, ErrorReason};
use core_types::Timestamp;
use grpc_kit::Failure;
use run_events::{DamagedLog, RunMeta, Runs};
use turn_log::state::{TurnState, untrusted_of_given};

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

/// Reads the plan of a turn from the data stored with its run.
///
/// # Errors
/// [`DamagedLog::Meta`] if it is not the plan of a turn.
pub fn plan_of(meta: RunMeta) -> Result<Plan, DamagedLog> {
    serde_json::from_value(meta.data).map_err(DamagedLog::Meta)
}

/// Reads a turn of a conversation; none if its log cannot be replayed, which is reported in the log
/// of the server.
///
/// # Errors
/// A storage that does not work.
pub async fn turn(runs: &Runs, run: common::Run, plan: &Plan) -> Result<Option<Earlier>, Failure> {
    // The turn was read for its caller.
    let id = run.run_id.parse().expect("the log made the id");
    let events = match runs.events_of(id).await {
        Ok(events) => events,
        // It was deleted since the conversation was read.
        Err(failure) if failure.reason() == ErrorReason::RunNotFound => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let own = events.iter().filter(|event| event.run_id == run.run_id);
    let state = match TurnState::replay(plan, false, own) {
        Ok(state) => state,
        Err(error) => {
            tracing::error!(
                run = run.run_id,
                error = grpc_kit::failure::chain(&error),
                "an earlier turn cannot be read"
            );
            return Ok(None);
        }
    };
    let mut messages = state.given().to_vec();
    if !plan.compact {
        messages.extend(state.turn().messages());
    }
    Ok(Some(Earlier {
        run_id: run.run_id,
        messages,
        untrusted: state.untrusted().to_vec(),
        handle_given: state.handle_given(),
        compaction: state.compaction().cloned(),
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
        untrusted: batch
            .messages
            .iter()
            .filter_map(untrusted_of_given)
            .collect(),
        messages,
        handle_given: false,
        compaction: None,
    }
}
