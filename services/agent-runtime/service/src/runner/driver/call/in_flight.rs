//! The calls of an answer that are in flight.

use std::collections::HashSet;

use contracts::tavern::common::v1 as common;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use run_events::RunControl;

use crate::runner::driver::stop::TurnStop;

/// A long output shortened by a workflow, and the usage of that. Without a text the output is cut
/// as usual.
pub(in crate::runner::driver) struct Reduced {
    pub(in crate::runner::driver) text: Option<String>,
    pub(in crate::runner::driver) used: Option<common::UsageReported>,
}

/// A call that has ended, or is no longer waited for.
pub(in crate::runner::driver) struct EndedCall {
    pub(in crate::runner::driver) index: u32,
    pub(in crate::runner::driver) tool_id: String,
    pub(in crate::runner::driver) effect_id: String,
    pub(in crate::runner::driver) ended: Result<common::CallResult, TurnStop>,
    /// The model's observation of it in the original turn of a fork; empty if it is to be worded.
    pub(in crate::runner::driver) observed: String,
    /// The text that the model reads instead of a long output.
    pub(in crate::runner::driver) reduced: Option<Reduced>,
}

/// The calls in flight. As many as the turn dispatches, which is bounded.
pub(in crate::runner::driver) struct CallsInFlight {
    calls: FuturesUnordered<BoxFuture<'static, EndedCall>>,
    effects: HashSet<String>,
    /// Ends the calls while the turn continues to its own end.
    pub(in crate::runner::driver) part: RunControl,
}

impl CallsInFlight {
    /// Makes an empty set, whose control is a child of `control`.
    pub(in crate::runner::driver) fn new(control: &RunControl) -> Self {
        Self {
            calls: FuturesUnordered::new(),
            effects: HashSet::new(),
            part: control.child(),
        }
    }

    /// Adds a call.
    pub(in crate::runner::driver) fn add(
        &mut self,
        effect_id: String,
        call: BoxFuture<'static, EndedCall>,
    ) {
        self.effects.insert(effect_id);
        self.calls.push(call);
    }

    /// Whether the call with this effect id is in flight.
    pub(in crate::runner::driver) fn contains(&self, effect_id: &str) -> bool {
        self.effects.contains(effect_id)
    }

    /// Returns the next call that has ended; none if none is in flight.
    pub(in crate::runner::driver) async fn next(&mut self) -> Option<EndedCall> {
        let ended = self.calls.next().await?;
        self.effects.remove(&ended.effect_id);
        Some(ended)
    }
}
