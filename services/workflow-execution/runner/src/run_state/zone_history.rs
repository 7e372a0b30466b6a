//! The recorded iterations of a zone under way.

use std::collections::{BTreeMap, HashMap};

use call_outcome::Failure;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, CallStatus};

use workflow_domain::data_flow::Values;

/// The outputs and failures of iterations that ended, by number.
pub(crate) type EndedIterations = BTreeMap<u64, Result<Values, Failure>>;

/// The iterations of a zone under way whose nodes have effects.
#[derive(Debug, Default)]
pub struct ZoneHistory {
    ended: EndedIterations,
    /// The events of the iterations that did not end.
    open: HashMap<u64, Vec<common::RunEvent>>,
    /// The effects in them.
    effects: BTreeMap<String, EffectInside>,
}

/// An effect of an iteration that did not end.
#[derive(Debug)]
struct EffectInside {
    iteration: u64,
    node_id: String,
    /// The end of its present attempt, if it was recorded.
    settled: Option<CallStatus>,
}

impl ZoneHistory {
    /// Whether an iteration had begun and had not ended.
    pub(crate) fn is_open(&self, index: u64) -> bool {
        self.open.contains_key(&index)
    }

    /// Whether this iteration or a later one had begun and had not ended.
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
        self.effects.retain(|_, effect| effect.iteration != index);
        self.ended.insert(index, gave);
    }

    /// Returns the ids of the effects of iterations that had begun whose last status is this one; nothing for
    /// effects of which no end was recorded.
    pub(super) fn effects(&self, settled: Option<CallStatus>) -> impl Iterator<Item = &str> {
        let effects = self.effects.iter();
        let effects = effects.filter(move |(_, effect)| effect.settled == settled);
        effects.map(|(effect_id, _)| effect_id.as_str())
    }

    /// Returns the iteration of an effect.
    pub(super) fn iteration_of(&self, effect_id: &str) -> Option<u64> {
        self.effects.get(effect_id).map(|effect| effect.iteration)
    }

    /// Keeps an event of an iteration that has not ended.
    pub(super) fn keep(&mut self, iteration: u64, event: &common::RunEvent) {
        match &event.kind {
            Some(Kind::CallDispatched(dispatched)) => {
                let effect = EffectInside {
                    iteration,
                    node_id: dispatched.node_id.clone(),
                    settled: None,
                };
                self.effects.insert(dispatched.effect_id.clone(), effect);
            }
            Some(Kind::CallSettled(common::CallSettled {
                result: Some(result),
            })) => {
                if let Some(effect) = self.effects.get_mut(&result.effect_id) {
                    effect.settled = Some(result.status());
                }
            }
            Some(Kind::NodeRetrying(retrying)) => {
                let effects = self.effects.values_mut();
                for effect in effects.filter(|effect| effect.node_id == retrying.node_id) {
                    let failed = |status: &mut CallStatus| *status != CallStatus::Succeeded;
                    effect.settled.take_if(failed);
                }
            }
            _ => {}
        }
        self.open.entry(iteration).or_default().push(event.clone());
    }
}
