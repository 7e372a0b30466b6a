//! The usage of each model by a run.

use std::collections::BTreeMap;

use contracts::tavern::common::v1::{ModelTotal, ModelUsage};

/// The usage by a run and the runs below it, by the name of the model.
#[derive(Clone, Debug, Default)]
pub struct ModelTotals {
    by_model: BTreeMap<String, ModelTotal>,
    tokens: u64,
    money_micros: u64,
}

impl ModelTotals {
    /// Adds the usage of one model.
    pub fn add(&mut self, used: &ModelTotal) {
        let usage = used.usage.clone().unwrap_or_default();
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        self.tokens = self.tokens.saturating_add(tokens);
        let cost = usage.cost_micros.unwrap_or_default();
        self.money_micros = self.money_micros.saturating_add(cost);
        let total = self.by_model.entry(used.model.clone());
        let total = total.or_insert_with(|| ModelTotal {
            model: used.model.clone(),
            ..ModelTotal::default()
        });
        total.answers = total.answers.saturating_add(used.answers);
        let sum_of = total.usage.get_or_insert_default();
        *sum_of = sum(sum_of, &usage);
    }

    /// Returns the tokens of all requests and answers.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the cost of all answers, in millionths.
    pub fn money_micros(&self) -> u64 {
        self.money_micros
    }

    /// Returns the totals by the name of the model.
    pub fn list(&self) -> Vec<ModelTotal> {
        self.by_model.values().cloned().collect()
    }
}

/// Makes the total of one answer.
pub fn total_of_answer(model: &str, usage: ModelUsage) -> ModelTotal {
    ModelTotal {
        model: model.to_owned(),
        answers: 1,
        usage: Some(usage),
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
