//! Chat messages and budgets as messages of the contract, and back.

use agent_domain::{
    budgets::{Budget, Budgets},
    message::{ChatMessage, Role},
};
use contracts::tavern::common::v1 as common;

/// Writes the author of a message.
pub fn role_to_proto(role: Role) -> common::ChatRole {
    match role {
        Role::System => common::ChatRole::System,
        Role::User => common::ChatRole::User,
        Role::Assistant => common::ChatRole::Assistant,
        // Messages of tools are made for a request; what others see is text.
        Role::Tool => common::ChatRole::User,
    }
}

/// Writes a message.
pub(crate) fn message_to_proto(message: &ChatMessage) -> common::ChatMessage {
    common::ChatMessage {
        role: role_to_proto(message.role).into(),
        text: message.text.clone(),
    }
}

/// Reads a message; none if its author is missing.
pub fn message_from_proto(message: common::ChatMessage) -> Option<ChatMessage> {
    let role = match message.role() {
        common::ChatRole::System => Role::System,
        common::ChatRole::User => Role::User,
        common::ChatRole::Assistant => Role::Assistant,
        common::ChatRole::Unspecified => return None,
    };
    Some(ChatMessage::new(role, message.text))
}

/// Converts what a budget counts.
pub fn budget_unit(budget: Budget) -> common::BudgetUnit {
    match budget {
        Budget::Iterations(_) => common::BudgetUnit::Iterations,
        Budget::Calls(_) => common::BudgetUnit::Calls,
        Budget::Bytes(_) => common::BudgetUnit::Bytes,
        Budget::Tokens(_) => common::BudgetUnit::Tokens,
        Budget::Money(_) => common::BudgetUnit::MoneyMicros,
        Budget::Wall(_) => common::BudgetUnit::WallSeconds,
    }
}

/// Converts a budget that was reached; none if its unit is not known here or its limit too large.
pub fn budget_from_proto(reached: &common::BudgetReached) -> Option<Budget> {
    let limit = reached.limit;
    Some(match reached.unit() {
        common::BudgetUnit::Unspecified => return None,
        common::BudgetUnit::Iterations => Budget::Iterations(u32::try_from(limit).ok()?),
        common::BudgetUnit::Calls => Budget::Calls(u32::try_from(limit).ok()?),
        common::BudgetUnit::Bytes => Budget::Bytes(limit),
        common::BudgetUnit::Tokens => Budget::Tokens(limit),
        common::BudgetUnit::MoneyMicros => Budget::Money(limit),
        common::BudgetUnit::WallSeconds => Budget::Wall(limit),
    })
}

/// Converts the budgets of a turn for an event.
pub fn budgets_edited(budgets: &Budgets, request_id: String) -> common::BudgetsEdited {
    common::BudgetsEdited {
        iterations: budgets.iterations,
        calls_per_response: budgets.calls_per_response,
        calls: budgets.calls,
        tokens: budgets.tokens.unwrap_or_default(),
        money_micros: budgets.money_micros.unwrap_or_default(),
        wall_seconds: budgets.wall_seconds.unwrap_or_default(),
        bytes: budgets.bytes,
        depth: Some(budgets.depth),
        request_id,
    }
}

/// Converts the budgets of a turn from an event.
pub fn edited_budgets(edited: &common::BudgetsEdited) -> Budgets {
    let bounded = |limit: u64| (limit > 0).then_some(limit);
    Budgets {
        iterations: edited.iterations,
        calls_per_response: edited.calls_per_response,
        calls: edited.calls,
        bytes: edited.bytes,
        depth: edited.depth.unwrap_or(Budgets::MOST.depth),
        tokens: bounded(edited.tokens),
        money_micros: bounded(edited.money_micros),
        wall_seconds: bounded(edited.wall_seconds),
    }
}
