//! The grant of a run that works for an agent, and its usage (rules G206 and G703).
//!
//! All usage is counted from the log, so a run that resumes has the same. A request to a model, an
//! agent or a workflow is granted all remaining tokens and money, so these requests are made one
//! after the other.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use call_outcome::repetition::{self, Repetition};
use call_outcome::{Category, Failure};
use call_wire::ModelTotals;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{
    CallGrant, CallResult, GrantedTools, ModelTotal, RunEvent, RunOutcome,
};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

/// The fewest tokens that are worth a request (rule G702).
const SHORTEST_ANSWER: u64 = 256;

/// The grant and the usage of a run; its zones share it.
#[derive(Debug, Default)]
pub struct Allowance {
    grant: Option<CallGrant>,
    used: Mutex<Used>,
    /// Held by the request that has all remaining tokens and money.
    remainder: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Used {
    totals: ModelTotals,
    /// The effects of the calls, counted once over their attempts.
    calls: HashSet<String>,
    /// The number of calls of the runs below.
    below: u32,
    repetition: Repetition,
    /// The number of repetitions of the newest calls, if a model is still to read it.
    remark: Option<usize>,
}

impl Allowance {
    /// Counts the usage of a run before this process.
    pub fn of(run_id: &str, events: &[RunEvent]) -> Self {
        let grant = events.first().and_then(|event| match &event.kind {
            Some(Kind::RunStarted(started)) => started.grant.clone(),
            _ => None,
        });
        let allowance = Self::new(grant);
        let mut arguments = std::collections::HashMap::new();
        for event in events.iter().filter(|event| event.run_id == run_id) {
            match &event.kind {
                Some(Kind::CallDispatched(call)) => {
                    allowance.used().calls.insert(call.effect_id.clone());
                    arguments.insert(&call.effect_id, &call.arguments_json);
                }
                Some(Kind::CallSettled(settled)) => {
                    let Some(result) = &settled.result else {
                        continue;
                    };
                    let arguments = arguments.get(&result.effect_id);
                    allowance.settled(arguments.map_or("", |text| text.as_str()), result);
                }
                Some(Kind::UsageReported(reported)) => allowance.add(&reported.model_totals),
                _ => {}
            }
        }
        allowance
    }

    /// Bounds a new run.
    pub fn new(grant: Option<CallGrant>) -> Self {
        Self {
            grant,
            ..Self::default()
        }
    }

    /// Whether the run works for an agent. It is counted from its whole log, which its budgets bound, so it
    /// has no checkpoints.
    pub(super) fn is_bounded(&self) -> bool {
        self.grant.is_some()
    }

    /// Counts calls that are about to be sent.
    ///
    /// # Errors
    /// Too few calls are left, or the same call has had the same result five times.
    pub(super) fn take(&self, effects: impl Iterator<Item = String>) -> Result<(), Failure> {
        let mut used = self.used();
        let Some(grant) = &self.grant else {
            used.calls.extend(effects);
            return Ok(());
        };
        if used.repetition.count() >= repetition::ENDED {
            let message =
                "the same call gave the same result five times in a row; no further call leaves";
            return Err(Failure::new(Category::Limit, "repetition", message));
        }
        let new: Vec<String> = effects.filter(|id| !used.calls.contains(id)).collect();
        let made = count(used.calls.len() + new.len()).saturating_add(used.below);
        match grant.calls {
            Some(limit) if made > limit => Err(exhausted("calls", &format!("{limit} calls"))),
            _ => {
                used.calls.extend(new);
                Ok(())
            }
        }
    }

    /// Counts the usage of a call that has ended.
    pub(super) fn settled(&self, arguments_json: &str, result: &CallResult) {
        let mut used = self.used();
        for total in &result.model_totals {
            used.totals.add(total);
        }
        used.below = used.below.saturating_add(result.calls_below);
        let before = used.repetition.count();
        let read = call_wire::observation(result);
        used.repetition.take(&result.tool_id, arguments_json, &read);
        let now = used.repetition.count();
        let is_due = before < repetition::REMARKED && now >= repetition::REMARKED;
        used.remark = is_due.then_some(now).or(used.remark);
    }

    /// Returns the remark that a model reads with the results of its calls: that it repeats them.
    pub(super) fn take_remark(&self) -> Option<String> {
        let times = self.used().remark.take();
        let times = times.filter(|_| self.grant.is_some());
        times.map(call_prompt::observation::repeated)
    }

    /// Counts the usage of models.
    pub(super) fn add(&self, totals: &[ModelTotal]) {
        let mut used = self.used();
        for total in totals {
            used.totals.add(total);
        }
    }

    /// Waits until no other request uses the remaining tokens and money, if they are bounded.
    pub(super) async fn remainder(&self) -> Option<OwnedMutexGuard<()>> {
        let bounded = |grant: &CallGrant| grant.tokens > 0 || grant.money_micros > 0;
        self.grant.as_ref().filter(|grant| bounded(grant))?;
        Some(Arc::clone(&self.remainder).lock_owned().await)
    }

    /// Returns the grant of a call, or of a request to a model; none if the run is not bounded.
    ///
    /// # Errors
    /// Tokens or money are used up.
    pub(super) fn left(&self) -> Result<Option<CallGrant>, Failure> {
        let Some(grant) = &self.grant else {
            return Ok(None);
        };
        let used = self.used();
        let (tokens, money) = (used.totals.tokens(), used.totals.money_micros());
        if grant.tokens > 0 && tokens.saturating_add(SHORTEST_ANSWER) > grant.tokens {
            return Err(exhausted("tokens", &format!("{} tokens", grant.tokens)));
        }
        if grant.money_micros > 0 && money >= grant.money_micros {
            let words = format!("{} millionths of money", grant.money_micros);
            return Err(exhausted("money_micros", &words));
        }
        let made = count(used.calls.len()).saturating_add(used.below);
        Ok(Some(CallGrant {
            tokens: grant.tokens.saturating_sub(tokens),
            money_micros: grant.money_micros.saturating_sub(money),
            calls: grant.calls.map(|calls| calls.saturating_sub(made)),
            ..grant.clone()
        }))
    }

    /// Adds the usage of the run to its outcome.
    pub(super) fn with_used(&self, outcome: RunOutcome) -> RunOutcome {
        let used = self.used();
        RunOutcome {
            model_totals: used.totals.list(),
            calls: count(used.calls.len()).saturating_add(used.below),
            ..outcome
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Allows calls of a workflow or a node of a plugin that is part of the present workflow, although the agent has no such
/// tool.
pub(super) fn with_part(grant: CallGrant, tool_id: &str) -> CallGrant {
    let with = |tools: GrantedTools| {
        let mut tool_ids = tools.tool_ids;
        if !tool_ids.iter().any(|id| id == tool_id) {
            tool_ids.push(tool_id.to_owned());
        }
        GrantedTools { tool_ids }
    };
    CallGrant {
        tools: grant.tools.map(with),
        ..grant
    }
}

/// Makes the failure of a node whose run has used up its grant.
pub(super) fn exhausted(unit: &str, words: &str) -> Failure {
    let message = format!(
        "the workflow used all {words} that the agent's budgets leave it; answer with what there is, or raise \
         budgets.{unit}"
    );
    let mut failure = Failure::new(Category::Limit, "budget_exhausted", message);
    failure.details.insert("unit".to_owned(), json!(unit));
    failure
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
