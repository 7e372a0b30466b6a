//! Chat messages, usage and budgets as messages of the contract, and back.

mod event;

use contracts::tavern::common::v1 as common;

use agent_domain::{
    budgets::{Budget, Budgets},
    message::{ChatMessage, Role},
    usage::Booking,
};
pub(crate) use event::{
    dropped_to_proto, event_from_proto, event_to_proto, priority_from_proto, priority_to_proto,
    sleep_from_proto, slept_to_proto, woke_to_proto,
};
use model_client::FailedAttempt;

/// Writes the author of a message.
pub(crate) fn role_to_proto(role: Role) -> common::ChatRole {
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
pub(crate) fn message_from_proto(message: common::ChatMessage) -> Option<ChatMessage> {
    let role = match message.role() {
        common::ChatRole::System => Role::System,
        common::ChatRole::User => Role::User,
        common::ChatRole::Assistant => Role::Assistant,
        common::ChatRole::Unspecified => return None,
    };
    Some(ChatMessage::new(role, message.text))
}

/// Writes what an answer is booked with.
pub(crate) fn usage_to_proto(booking: &Booking) -> common::ModelUsage {
    let usage = &booking.usage;
    common::ModelUsage {
        input_tokens: usage.input_tokens.into(),
        cache_read_tokens: usage.cache_read_tokens.into(),
        cache_write_tokens: usage.cache_write_tokens.into(),
        output_tokens: usage.output_tokens.into(),
        estimated: booking.estimated,
        cost_micros: booking.cost.as_ref().map(|cost| cost.micros),
        currency: booking
            .cost
            .as_ref()
            .map(|cost| cost.currency.clone())
            .unwrap_or_default(),
    }
}

/// Writes a request that failed.
pub(crate) fn attempt_to_proto(attempt: &FailedAttempt) -> common::FailedModelAttempt {
    common::FailedModelAttempt {
        model: attempt.model.clone(),
        code: attempt.code.to_owned(),
        message: attempt.message.clone(),
        wait: prost_types::Duration::try_from(attempt.wait).ok(),
    }
}

/// Converts what a budget counts.
pub(crate) fn budget_unit(budget: Budget) -> common::BudgetUnit {
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
pub(crate) fn budget_from_proto(reached: &common::BudgetReached) -> Option<Budget> {
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
pub(crate) fn budgets_edited(budgets: &Budgets, request_id: String) -> common::BudgetsEdited {
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
pub(crate) fn edited_budgets(edited: &common::BudgetsEdited) -> Budgets {
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
