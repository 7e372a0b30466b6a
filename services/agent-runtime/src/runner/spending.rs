//! What a turn has used of its models.

use std::collections::BTreeMap;

use contracts::tavern::common::v1::{ModelAnswered, ModelTotal, ModelUsage};

/// What a turn has used, by model.
#[derive(Clone, Debug, Default)]
pub(super) struct Spending {
    totals: BTreeMap<String, ModelTotal>,
}

impl Spending {
    /// Adds an answer.
    pub(super) fn add(&mut self, answered: &ModelAnswered) {
        let Some(used) = &answered.usage else { return };
        let total = self
            .totals
            .entry(answered.model.clone())
            .or_insert_with(|| ModelTotal {
                model: answered.model.clone(),
                ..ModelTotal::default()
            });
        total.answers = total.answers.saturating_add(1);
        let usage = total.usage.get_or_insert_default();
        *usage = sum(usage, used);
    }

    /// Returns the totals by the name of the model.
    pub(super) fn totals(&self) -> Vec<ModelTotal> {
        self.totals.values().cloned().collect()
    }
}

fn sum(usage: &ModelUsage, used: &ModelUsage) -> ModelUsage {
    let add = u64::saturating_add;
    ModelUsage {
        input_tokens: add(usage.input_tokens, used.input_tokens),
        cache_read_tokens: add(usage.cache_read_tokens, used.cache_read_tokens),
        cache_write_tokens: add(usage.cache_write_tokens, used.cache_write_tokens),
        output_tokens: add(usage.output_tokens, used.output_tokens),
        estimated: usage.estimated || used.estimated,
        cost_micros: match (usage.cost_micros, used.cost_micros) {
            (Some(cost), Some(more)) => Some(add(cost, more)),
            (cost, more) => cost.or(more),
        },
        currency: match used.currency.is_empty() {
            true => usage.currency.clone(),
            false => used.currency.clone(),
        },
    }
}
