//! The usage of an answer of a model: its tokens, counted or estimated, and its cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number of bytes of an estimated token.
const BYTES_PER_TOKEN: usize = 3;

/// Tokens of a request and its answer; zero if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request, including cached tokens.
    pub input_tokens: u32,
    /// Tokens of the request that were read from the endpoint's cache.
    pub cache_read_tokens: u32,
    /// Tokens of the request that were written to the endpoint's cache.
    pub cache_write_tokens: u32,
    /// Tokens of the answer, thinking included.
    pub output_tokens: u32,
}

/// The prices of a model in millionths of a currency per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Tokens of the request.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Tokens that are read from the endpoint's cache; the price of the request if missing.
    pub cache_read: Option<u64>,
    /// Tokens that are written to the endpoint's cache; the price of the request if missing.
    pub cache_write: Option<u64>,
}

/// A price list and its currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// The prices.
    pub prices: Prices,
    /// Their currency.
    pub currency: String,
}

/// The usage and cost that are booked for an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Booking {
    /// Its tokens.
    pub usage: Usage,
    /// Whether they are estimated.
    pub estimated: bool,
    /// Its cost; none if the model has no prices.
    pub cost: Option<Cost>,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The amount in millionths.
    pub micros: u64,
    /// The currency.
    pub currency: String,
}

impl Booking {
    /// Books an answer with the count of its endpoint; if that is zero, with an estimate from the
    /// bytes of request and answer (rule G508).
    pub fn new(
        counted: Usage,
        request_bytes: usize,
        answer_bytes: usize,
        price_list: Option<&PriceList>,
    ) -> Self {
        let estimated = counted == Usage::default();
        let usage = match estimated {
            true => Usage {
                input_tokens: estimate(request_bytes),
                output_tokens: estimate(answer_bytes),
                ..Usage::default()
            },
            false => counted,
        };
        Self {
            usage,
            estimated,
            cost: price_list.map(|list| Cost {
                micros: list.prices.cost(&usage),
                currency: list.currency.clone(),
            }),
        }
    }
}

impl Prices {
    /// Returns the number of tokens of an answer that an amount in millionths buys after a request.
    pub fn affordable(&self, micros: u64, request_tokens: u64) -> u64 {
        let request = u128::from(request_tokens) * u128::from(self.input);
        let left = (u128::from(micros) * 1_000_000).saturating_sub(request);
        let tokens = left.checked_div(self.output.into());
        tokens.map_or(u64::MAX, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX))
    }

    /// Returns the cost in millionths, rounded up.
    fn cost(&self, usage: &Usage) -> u64 {
        let cached = usage
            .cache_read_tokens
            .saturating_add(usage.cache_write_tokens);
        let parts = [
            (usage.input_tokens.saturating_sub(cached), self.input),
            (
                usage.cache_read_tokens,
                self.cache_read.unwrap_or(self.input),
            ),
            (
                usage.cache_write_tokens,
                self.cache_write.unwrap_or(self.input),
            ),
            (usage.output_tokens, self.output),
        ];
        let total: u128 = parts
            .iter()
            .map(|(tokens, price)| u128::from(*tokens) * u128::from(*price))
            .sum();
        u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// Estimates the tokens of a text.
pub fn estimate(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: Some(300_000),
        cache_write: Some(3_750_000),
    };

    fn list(prices: Prices) -> PriceList {
        PriceList {
            prices,
            currency: "USD".to_owned(),
        }
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let usage = Usage {
            input_tokens: 120,
            cache_read_tokens: 64,
            cache_write_tokens: 6,
            output_tokens: 31,
        };
        // 50 × 3 + 64 × 0.3 + 6 × 3.75 + 31 × 15 = 656.7
        assert_eq!(PRICES.cost(&usage), 657);
        let plain = Prices {
            cache_read: None,
            cache_write: None,
            ..PRICES
        };
        assert_eq!(plain.cost(&usage), 120 * 3 + 31 * 15);
    }

    #[test]
    fn what_was_not_counted_is_estimated_from_the_bytes() {
        let booking = Booking::new(Usage::default(), 10, 4, Some(&list(PRICES)));
        assert!(booking.estimated);
        assert_eq!(
            (booking.usage.input_tokens, booking.usage.output_tokens),
            (4, 2)
        );
        assert_eq!(booking.cost.unwrap().micros, 4 * 3 + 2 * 15);
    }

    #[test]
    fn a_model_without_prices_has_no_cost() {
        assert_eq!(Booking::new(Usage::default(), 10, 4, None).cost, None);
    }

    #[test]
    fn no_count_is_too_large() {
        let most = Usage {
            input_tokens: u32::MAX,
            cache_read_tokens: u32::MAX,
            cache_write_tokens: u32::MAX,
            output_tokens: u32::MAX,
        };
        let prices = Prices {
            input: u64::MAX,
            output: u64::MAX,
            ..Prices::default()
        };
        assert_eq!(prices.cost(&most), u64::MAX);
    }
}
