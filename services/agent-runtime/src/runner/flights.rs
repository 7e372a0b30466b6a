//! The calls of an answer that are under way.

use std::collections::HashSet;

use contracts::tavern::common::v1 as common;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};

use super::stop::TurnStop;

/// What a workflow made of a long output, and what it used. Without a text the output is cut as usual.
pub(super) struct Reduced {
    pub(super) text: Option<String>,
    pub(super) used: Option<common::UsageReported>,
}

/// A call that has ended, or cannot be waited for any longer.
pub(super) struct Landed {
    pub(super) index: u32,
    pub(super) tool_id: String,
    pub(super) effect_id: String,
    pub(super) ended: Result<common::CallResult, TurnStop>,
    /// What the model read about it in the turn that this one is a fork of; empty if it is to be worded.
    pub(super) observed: String,
    /// What the model reads in the place of a long output.
    pub(super) reduced: Option<Reduced>,
}

/// The calls under way. As many as the turn lets leave, which is bounded.
#[derive(Default)]
pub(super) struct Flights {
    pub(super) flying: FuturesUnordered<BoxFuture<'static, Landed>>,
    pub(super) effects: HashSet<String>,
}

impl Flights {
    /// Returns the next call that has ended; none if none is under way.
    pub(super) async fn next(&mut self) -> Option<Landed> {
        let landed = self.flying.next().await?;
        self.effects.remove(&landed.effect_id);
        Some(landed)
    }
}
