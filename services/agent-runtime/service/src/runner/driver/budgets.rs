//! The remainder of a turn's budgets, before a round and before a call.

use agent_domain::{
    budgets::{Budget, Used},
    observation,
    spelling::HANDLE_TOOLS,
    turn::ReadCall,
    usage,
};
use contracts::tavern::common::v1 as common;
use run_events::outcome;
use turn_log::{journal, wire};

use super::{Driver, settled, stop::TurnStop};

impl Driver {
    fn used(&self) -> Used {
        self.log.state().used(self.log.now())
    }

    /// Returns the grant of a call or a deliberation workflow: the remainder of the budgets (rules
    /// G206 and G703). Agents and workflows are called one at a time, and their usage counts as
    /// this turn's.
    pub(super) fn grant(&self) -> common::CallGrant {
        let is_last = self.turn().last().is_some();
        let budgets = self.turn().budgets();
        let (tokens, money_micros, wall_seconds) = budgets.left(&self.used(), is_last);
        let mut tool_ids = self.plan.inventory_ids();
        tool_ids.extend(HANDLE_TOOLS.map(str::to_owned));
        common::CallGrant {
            tokens: tokens.unwrap_or_default(),
            money_micros: money_micros.unwrap_or_default(),
            wall_seconds: wall_seconds.unwrap_or_default(),
            calls: Some(if is_last { 0 } else { self.turn().calls_left() }),
            depth: Some(budgets.depth),
            tools: Some(common::GrantedTools { tool_ids }),
        }
    }

    /// Returns the grant of a workflow that the turn itself starts.
    pub(super) fn grant_of_workflow(&self) -> common::CallGrant {
        let grant = self.grant();
        common::CallGrant {
            // Its own run is one level.
            depth: grant.depth.map(|depth| depth.saturating_sub(1)),
            ..grant
        }
    }

    /// Notes a used-up budget that keeps calls from starting; false if there is none.
    pub(super) fn note_spent(&mut self) -> Result<bool, TurnStop> {
        let spent = self.turn().budgets().spent(&self.used());
        self.note_if_spent(spent)
    }

    /// Notes a used-up budget that keeps a round from beginning; false if there is none.
    pub(super) fn note_spent_before_round(&mut self) -> Result<bool, TurnStop> {
        let used = self.used();
        let spent = self.turn().budgets().spent_before_round(&used);
        let spent = spent.or_else(|| {
            let budget = self.reserved(false).err()?;
            let used = match budget {
                Budget::Money(_) => used.money_micros,
                _ => used.tokens,
            };
            Some((budget, used))
        });
        self.note_if_spent(spent)
    }

    fn note_if_spent(&mut self, spent: Option<(Budget, u64)>) -> Result<bool, TurnStop> {
        if let Some((budget, used)) = spent {
            self.log.note(journal::budget_reached(budget, used, true))?;
        }
        Ok(spent.is_some())
    }

    /// Informs the model once of each budget that is nearly used up (rule G701).
    pub(super) fn note_nearly_spent(&mut self) -> Result<(), TurnStop> {
        let used = self.used();
        let budgets = self.turn().budgets();
        for (budget, used) in budgets.nearly_spent(&used) {
            if !self.log.state().is_reported(wire::budget_unit(budget)) {
                self.log
                    .note(journal::budget_reached(budget, used, false))?;
                let text = observation::nearly_spent(budget, used);
                self.log.note(journal::observation(None, text))?;
            }
        }
        Ok(())
    }

    /// Reserves tokens and money for the next request to the model, and returns the most tokens of
    /// its answer; none if neither is bounded. The requests of a deliberation workflow are not
    /// known before.
    /// known before.
    ///
    /// # Errors
    /// The budget that leaves too little for an answer.
    pub(super) fn reserved(&self, is_last: bool) -> Result<Option<u64>, Budget> {
        let budgets = self.turn().budgets();
        let is_bounded = budgets.tokens.is_some() || budgets.money_micros.is_some();
        let name = self.plan.model.as_ref();
        let model = name.and_then(|name| self.model(name).ok());
        let Some(model) = model.filter(|_| is_bounded && self.plan.deliberation.is_none()) else {
            return Ok(None);
        };
        let request = u64::from(usage::estimate(self.prompt().bytes()));
        budgets.reserve(&self.used(), request, is_last, |micros| {
            model.affordable(micros, request)
        })
    }

    /// Notes that a call is not started because a budget is used up.
    pub(super) fn withhold(&mut self, call: &ReadCall, budget: Budget) -> Result<(), TurnStop> {
        self.log.note(withheld(call, budget))?;
        let text = observation::withheld(&call.tool_id, budget);
        self.log.note(journal::observation(Some(call.index), text))
    }
}

/// Writes that a call is not started because a budget is used up.
pub(in crate::runner) fn withheld(call: &ReadCall, budget: Budget) -> common::run_event::Kind {
    let message = format!(
        "not executed, as the turn used all of its {}",
        budget.words()
    );
    let error = outcome::error(common::ErrorCategory::Limit, "budget_exhausted", message);
    settled(call, common::CallStatus::Skipped, error)
}
