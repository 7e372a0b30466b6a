//! The ends of effects.

use std::sync::Arc;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use run_client::CallEnd;
use serde_json::Value;

use workflow_domain::node_type::Settled;

use super::inline_zone::InlineEnd;
pub(super) use super::tool_batch::BatchEnd;

/// The end of an effect.
#[derive(Debug)]
pub enum EffectEnd {
    /// A call ended, or did not although the run was cancelled.
    Tool(CallEnd),
    /// A list of calls ended.
    Batch(BatchEnd),
    /// A zone whose nodes have effects ended.
    Zone(ZoneEnd),
    /// A zone whose nodes have none ended.
    InlineZone(InlineEnd),
    /// A script, a model, a conversation or the registry answered, or did not.
    Answered(Result<Settled, Failure>),
}

/// The end of a zone.
#[derive(Debug)]
pub enum ZoneEnd {
    /// Its outputs, or its failure.
    Ended(Result<Vec<Arc<Value>>, Failure>),
    /// The zone stopped before its end.
    Stopped(Unsettled),
}

/// Calls of nodes that stopped whose ends are not known.
#[derive(Debug, Default)]
pub struct Unsettled {
    /// Calls of which it is not known whether they took effect, with why.
    pub unknown: Vec<(String, common::CallError)>,
    /// Calls that had not ended when their nodes were stopped.
    pub unended: Vec<String>,
}

impl Unsettled {
    /// Whether all ends are known.
    pub fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.unended.is_empty()
    }

    pub(super) fn extend(&mut self, others: Self) {
        self.unknown.extend(others.unknown);
        self.unended.extend(others.unended);
    }
}
