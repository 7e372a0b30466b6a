//! The recorded iterations of a zone under way.

use std::collections::{BTreeMap, HashMap};

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;

use workflow_domain::data_flow::Values;

/// The outputs and failures of iterations that ended, by number.
pub(crate) type EndedIterations = BTreeMap<u64, Result<Values, Failure>>;

/// The iterations of a zone under way whose nodes have effects.
#[derive(Debug, Default)]
pub struct ZoneHistory {
    ended: EndedIterations,
    /// The events of the iterations that did not end.
    open: HashMap<u64, Vec<common::RunEvent>>,
    /// The iteration of each effect in them.
    effects: HashMap<String, u64>,
}

impl ZoneHistory {
    /// Whether an iteration had begun and had not ended.
    pub(crate) fn is_open(&self, index: u64) -> bool {
        self.open.contains_key(&index)
    }

    /// Whether this iteration or one behind it had begun and had not ended.
    pub(crate) fn is_open_from(&self, index: u64) -> bool {
        self.open.keys().any(|open| *open >= index)
    }

    /// Returns the iterations that ended and that their zone has not taken.
    pub(crate) fn ended_mut(&mut self) -> &mut EndedIterations {
        &mut self.ended
    }

    /// Hands the events of an iteration over that had not ended.
    pub(crate) fn take_open(&mut self, index: u64) -> Vec<common::RunEvent> {
        self.open.remove(&index).unwrap_or_default()
    }

    /// Keeps the end of an iteration.
    pub(crate) fn end(&mut self, index: u64, gave: Result<Values, Failure>) {
        self.open.remove(&index);
        self.effects.retain(|_, of| *of != index);
        self.ended.insert(index, gave);
    }

    /// Returns the ids of the effects of iterations that had begun and had not ended.
    pub(super) fn effects(&self) -> impl Iterator<Item = &str> {
        self.effects.keys().map(String::as_str)
    }

    /// Returns the iteration of an effect.
    pub(super) fn iteration_of(&self, effect_id: &str) -> Option<u64> {
        self.effects.get(effect_id).copied()
    }

    pub(super) fn keep(&mut self, iteration: u64, event: &common::RunEvent) {
        if let Some(Kind::CallDispatched(dispatched)) = &event.kind {
            self.effects.insert(dispatched.effect_id.clone(), iteration);
        }
        self.open.entry(iteration).or_default().push(event.clone());
    }
}
