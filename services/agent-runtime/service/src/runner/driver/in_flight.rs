//! The calls of an answer that are in flight.

use std::collections::HashSet;

use contracts::tavern::common::v1 as common;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use run_events::RunControl;

use crate::runner::stop::TurnStop;

/// What a workflow made of a long output, and what it used. Without a text the output is cut as usual.
pub(super) struct Reduced {
    pub(super) text: Option<String>,
    pub(super) used: Option<common::UsageReported>,
}

/// A call that has ended, or cannot be waited for any longer.
pub(super) struct EndedCall {
    pub(super) index: u32,
    pub(super) tool_id: String,
    pub(super) effect_id: String,
    pub(super) ended: Result<common::CallResult, TurnStop>,
    /// What the model read about it in the turn that this one is a fork of; empty if it is to be worded.
    pub(super) observed: String,
    /// What the model reads in the place of a long output.
    pub(super) reduced: Option<Reduced>,
}

/// The calls in flight. As many as the turn dispatches, which is bounded.
pub(super) struct CallsInFlight {
    calls: FuturesUnordered<BoxFuture<'static, EndedCall>>,
    effects: HashSet<String>,
    /// Ends them while the turn continues to its own end.
    pub(super) part: RunControl,
}

impl CallsInFlight {
    /// Takes the control of the turn.
    pub(super) fn new(control: &RunControl) -> Self {
        Self {
            calls: FuturesUnordered::new(),
            effects: HashSet::new(),
            part: control.child(),
        }
    }

    /// Adds a call.
    pub(super) fn add(&mut self, effect_id: String, call: BoxFuture<'static, EndedCall>) {
        self.effects.insert(effect_id);
        self.calls.push(call);
    }

    /// Whether the call with this effect id is in flight.
    pub(super) fn contains(&self, effect_id: &str) -> bool {
        self.effects.contains(effect_id)
    }

    /// Returns the next call that has ended; none if none is in flight.
    pub(super) async fn next(&mut self) -> Option<EndedCall> {
        let ended = self.calls.next().await?;
        self.effects.remove(&ended.effect_id);
        Some(ended)
    }
}
