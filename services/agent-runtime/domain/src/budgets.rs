//! The budgets of a turn and their usage (section 7 of the rules for agents).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of a budget, in percent, at which the model is informed once (rule G701).
const NEARLY_PERCENT: u64 = 80;
/// The part of tokens and money, in percent, that is kept for the last answer (rule G701).
const KEPT_PERCENT: u64 = 10;
/// The shortest answer that is worth a request, in tokens (rule G702).
pub const SHORTEST_ANSWER: u64 = 256;
/// The expected length of an answer of a model without a limit of its own, in tokens. Only a
/// smaller limit is sent, as an endpoint refuses more than its model supports.
const ORDINARY_ANSWER: u64 = 4_096;

/// The budgets of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Budgets {
    /// The most rounds of deliberation. Default 40, at most 200.
    pub iterations: u32,
    /// The most calls of one answer that are carried out. Default 16, at most 64.
    pub calls_per_response: u32,
    /// The most calls of the turn in all. Default 64, at most 1,000.
    pub calls: u32,
    /// The most bytes of the outputs of its calls in all. Default 64 MiB, at most 1 GiB.
    pub bytes: u64,
    /// The most runs of agents and workflows one below the other under the turn. Default 8, which
    /// is the most.
    pub depth: u32,
    /// The most tokens of its requests and answers in all; unbounded if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The highest cost of its answers, in millionths of the currency of the prices; unbounded if
    /// missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money_micros: Option<u64>,
    /// The most seconds that it spends on requests to models and on calls; unbounded if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_seconds: Option<u64>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            iterations: 40,
            calls_per_response: 16,
            calls: 64,
            bytes: 64 << 20,
            depth: 8,
            tokens: None,
            money_micros: None,
            wall_seconds: None,
        }
    }
}

/// The budgets that one source states; a missing unit is left to the other sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// See [`Budgets::iterations`].
    pub iterations: Option<u32>,
    /// See [`Budgets::calls_per_response`].
    pub calls_per_response: Option<u32>,
    /// See [`Budgets::calls`].
    pub calls: Option<u32>,
    /// See [`Budgets::bytes`].
    pub bytes: Option<u64>,
    /// See [`Budgets::depth`].
    pub depth: Option<u32>,
    /// See [`Budgets::tokens`].
    pub tokens: Option<u64>,
    /// See [`Budgets::money_micros`].
    pub money_micros: Option<u64>,
    /// See [`Budgets::wall_seconds`].
    pub wall_seconds: Option<u64>,
}

impl Limits {
    /// Returns the smaller of each limit of the two.
    pub fn within(&self, other: &Self) -> Self {
        Self {
            iterations: least([self.iterations, other.iterations]),
            calls_per_response: least([self.calls_per_response, other.calls_per_response]),
            calls: least([self.calls, other.calls]),
            bytes: least([self.bytes, other.bytes]),
            depth: least([self.depth, other.depth]),
            tokens: least([self.tokens, other.tokens]),
            money_micros: least([self.money_micros, other.money_micros]),
            wall_seconds: least([self.wall_seconds, other.wall_seconds]),
        }
    }
}

/// The usage of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Rounds of deliberation.
    pub iterations: u32,
    /// Calls that left.
    pub calls: u32,
    /// Bytes of the outputs of calls.
    pub bytes: u64,
    /// Tokens of requests and answers.
    pub tokens: u64,
    /// The cost of answers in millionths.
    pub money_micros: u64,
    /// The time in which a request to a model or a call was in flight.
    pub wall: Duration,
}

/// A budget and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// The rounds of deliberation.
    Iterations(u32),
    /// The calls of the turn.
    Calls(u32),
    /// The bytes of the outputs of its calls.
    Bytes(u64),
    /// The tokens of its requests and answers.
    Tokens(u64),
    /// The cost of its answers in millionths.
    Money(u64),
    /// The seconds at work.
    Wall(u64),
}

impl Budget {
    /// Returns the limit.
    pub fn limit(self) -> u64 {
        match self {
            Self::Iterations(limit) | Self::Calls(limit) => limit.into(),
            Self::Bytes(limit) | Self::Tokens(limit) | Self::Money(limit) | Self::Wall(limit) => {
                limit
            }
        }
    }

    /// Returns the name of the budget in a request and in a profile.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iterations(_) => "iterations",
            Self::Calls(_) => "calls",
            Self::Bytes(_) => "bytes",
            Self::Tokens(_) => "tokens",
            Self::Money(_) => "money_micros",
            Self::Wall(_) => "wall_seconds",
        }
    }

    /// Returns the limit and its unit, for "used all of its …".
    pub fn words(self) -> String {
        let limit = self.limit();
        match self {
            Self::Iterations(_) => format!("{limit} rounds"),
            Self::Calls(_) => format!("{limit} calls"),
            Self::Bytes(_) => format!("{limit} bytes of output"),
            Self::Tokens(_) => format!("{limit} tokens"),
            Self::Money(_) => format!("{limit} millionths of money"),
            Self::Wall(_) => format!("{limit} seconds"),
        }
    }

    /// Returns the limit before the last answer.
    fn before_last(self) -> u64 {
        match self {
            Self::Tokens(limit) | Self::Money(limit) => {
                limit - percent(limit, KEPT_PERCENT).min(limit)
            }
            _ => self.limit(),
        }
    }
}

impl Budgets {
    /// The largest value of each unit that has a default.
    pub const MOST: Self = Self {
        iterations: 200,
        calls_per_response: 64,
        calls: 1_000,
        bytes: 1 << 30,
        depth: 8,
        tokens: None,
        money_micros: None,
        wall_seconds: None,
    };

    /// Settles the budgets of a turn. A request takes precedence over a profile, and a profile over
    /// the service's defaults, but none of them exceeds the profile, or the service's tokens, money
    /// and time (rule G105).
    pub fn settled(defaults: &Self, profile: &Limits, request: &Limits) -> Self {
        Self {
            iterations: chosen(request.iterations, profile.iterations, defaults.iterations),
            calls_per_response: chosen(
                request.calls_per_response,
                profile.calls_per_response,
                defaults.calls_per_response,
            ),
            calls: chosen(request.calls, profile.calls, defaults.calls),
            bytes: chosen(request.bytes, profile.bytes, defaults.bytes),
            depth: chosen(request.depth, profile.depth, defaults.depth),
            tokens: least([request.tokens, profile.tokens, defaults.tokens]),
            money_micros: least([
                request.money_micros,
                profile.money_micros,
                defaults.money_micros,
            ]),
            wall_seconds: least([
                request.wall_seconds,
                profile.wall_seconds,
                defaults.wall_seconds,
            ]),
        }
    }

    /// Replaces the units that `limits` states.
    pub fn edited(&self, limits: &Limits) -> Self {
        Self {
            iterations: limits.iterations.unwrap_or(self.iterations),
            calls_per_response: limits.calls_per_response.unwrap_or(self.calls_per_response),
            calls: limits.calls.unwrap_or(self.calls),
            bytes: limits.bytes.unwrap_or(self.bytes),
            depth: limits.depth.unwrap_or(self.depth),
            tokens: limits.tokens.or(self.tokens),
            money_micros: limits.money_micros.or(self.money_micros),
            wall_seconds: limits.wall_seconds.or(self.wall_seconds),
        }
    }

    /// Lowers the budgets to the grant of a caller (rule G703).
    pub fn within(&self, granted: &Limits) -> Self {
        let count = |own: u32, granted: Option<u32>| granted.map_or(own, |most| own.min(most));
        Self {
            calls: count(self.calls, granted.calls),
            depth: count(self.depth, granted.depth),
            tokens: least([self.tokens, granted.tokens]),
            money_micros: least([self.money_micros, granted.money_micros]),
            wall_seconds: least([self.wall_seconds, granted.wall_seconds]),
            ..*self
        }
    }

    /// Returns the remaining tokens, money and time, at least 1 of each that is bounded; a tenth of
    /// the first two is kept for the last answer.
    pub fn left(&self, used: &Used, is_last: bool) -> (Option<u64>, Option<u64>, Option<u64>) {
        let left = |budget: Budget, used: u64| {
            let limit = match is_last {
                true => budget.limit(),
                false => budget.before_last(),
            };
            limit.saturating_sub(used).max(1)
        };
        (
            self.tokens
                .map(|limit| left(Budget::Tokens(limit), used.tokens)),
            self.money_micros
                .map(|limit| left(Budget::Money(limit), used.money_micros)),
            self.wall_seconds
                .map(|limit| left(Budget::Wall(limit), used.wall.as_secs())),
        )
    }

    /// Returns the units that are zero or more than a turn may use: name, value and the most.
    pub fn beyond_most(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let most = Self::MOST;
        let counted = [
            ("iterations", self.iterations, most.iterations),
            (
                "calls_per_response",
                self.calls_per_response,
                most.calls_per_response,
            ),
            ("calls", self.calls, most.calls),
            ("depth", self.depth, most.depth),
        ];
        let counted = counted.map(|(name, value, most)| (name, Some(value.into()), most.into()));
        let others = [
            ("bytes", Some(self.bytes), most.bytes),
            ("tokens", self.tokens, MOST_COUNT),
            ("money_micros", self.money_micros, MOST_COUNT),
            ("wall_seconds", self.wall_seconds, MOST_SECONDS),
        ];
        let all = counted.into_iter().chain(others);
        all.filter_map(|(name, value, most)| Some((name, value?, most)))
            .filter(|(_, value, most)| *value == 0 || value > most)
    }

    /// Returns each budget with its usage, the units without a default last.
    pub fn all(&self, used: &Used) -> impl Iterator<Item = (Budget, u64)> {
        let bounded = [
            (
                Budget::Iterations(self.iterations),
                u64::from(used.iterations),
            ),
            (Budget::Calls(self.calls), used.calls.into()),
            (Budget::Bytes(self.bytes), used.bytes),
        ];
        let asked = [
            self.tokens
                .map(|limit| (Budget::Tokens(limit), used.tokens)),
            self.money_micros
                .map(|limit| (Budget::Money(limit), used.money_micros)),
            self.wall_seconds
                .map(|limit| (Budget::Wall(limit), used.wall.as_secs())),
        ];
        bounded.into_iter().chain(asked.into_iter().flatten())
    }

    /// Returns the budget that keeps a call from leaving, with its usage. Rounds and calls are
    /// counted by the turn itself.
    pub fn spent(&self, used: &Used) -> Option<(Budget, u64)> {
        self.all(used)
            .skip(2)
            .find(|(budget, used)| *used >= budget.limit())
    }

    /// Returns the budget that keeps a round from beginning, with its usage.
    pub fn spent_before_round(&self, used: &Used) -> Option<(Budget, u64)> {
        self.all(used)
            .skip(2)
            .find(|(budget, used)| *used >= budget.before_last())
    }

    /// Returns the budgets that are nearly used up, with their usage.
    pub fn nearly_spent(&self, used: &Used) -> impl Iterator<Item = (Budget, u64)> {
        self.all(used).filter(|(budget, used)| {
            *used < budget.limit() && *used >= percent(budget.limit(), NEARLY_PERCENT).max(1)
        })
    }

    /// Reserves tokens and money for a request, and returns the most tokens of its answer; none if
    /// neither is bounded. `affordable` returns the number of tokens that an amount of money buys
    /// after the request.
    ///
    /// # Errors
    /// The budget that leaves too little for an answer (rule G702).
    pub fn reserve(
        &self,
        used: &Used,
        request_tokens: u64,
        is_last: bool,
        affordable: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, Budget> {
        let left = |budget: Budget, used: u64| match is_last {
            true => budget.limit().saturating_sub(used),
            false => budget.before_last().saturating_sub(used),
        };
        let mut answer = None;
        for (budget, used) in self.all(used) {
            let room = match budget {
                Budget::Tokens(_) => left(budget, used).saturating_sub(request_tokens),
                Budget::Money(_) => affordable(left(budget, used)),
                _ => continue,
            };
            if room < SHORTEST_ANSWER {
                return Err(budget);
            }
            answer = Some(answer.map_or(room, |answer: u64| answer.min(room)));
        }
        Ok(answer)
    }
}

/// Lowers the most tokens of an answer to its reservation.
pub fn within(most: Option<u32>, reserved: Option<u64>) -> Option<u32> {
    let reserved = reserved.and_then(|reserved| u32::try_from(reserved).ok());
    match (most, reserved) {
        (Some(most), Some(reserved)) => Some(most.min(reserved)),
        (None, Some(reserved)) if u64::from(reserved) < ORDINARY_ANSWER => Some(reserved),
        (most, _) => most,
    }
}

/// The longest time at work, in seconds: the limit of a run.
pub(crate) const MOST_SECONDS: u64 = 366 * 86_400;
/// More tokens or millionths than a turn can use; exact in JSON everywhere.
pub(crate) const MOST_COUNT: u64 = 1 << 53;

fn chosen<T: Ord>(request: Option<T>, profile: Option<T>, default: T) -> T {
    match (request, profile) {
        (Some(request), Some(profile)) => request.min(profile),
        (request, profile) => request.or(profile).unwrap_or(default),
    }
}

fn least<T: Ord, const N: usize>(limits: [Option<T>; N]) -> Option<T> {
    limits.into_iter().flatten().min()
}

/// Returns a part of a number, rounded up.
fn percent(of: u64, percent: u64) -> u64 {
    u64::try_from((u128::from(of) * u128::from(percent)).div_ceil(100)).unwrap_or(of)
}

#[cfg(test)]
mod tests;
