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
        Role::Tool => common::ChatRole::Tool,
    }
}

/// Writes a message.
pub fn message_to_proto(message: &ChatMessage) -> common::ChatMessage {
    common::ChatMessage {
        role: role_to_proto(message.role).into(),
        text: message.text.clone(),
        calls: call_wire::native_calls_to_proto(&message.calls),
        result_of: message
            .result_of
            .as_ref()
            .map(call_wire::ended_call_to_proto),
        reasoning_json: call_wire::reasoning_to_proto(message.reasoning.as_ref()),
    }
}

/// A message that has a field which its author never has, or lacks one; `Display` describes the
/// problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct MessageError {
    /// The field.
    pub field: &'static str,
    problem: &'static str,
}

/// Reads a message.
///
/// # Errors
/// Its author is missing, or its calls or its `result_of` do not match the author.
pub fn message_from_proto(message: common::ChatMessage) -> Result<ChatMessage, MessageError> {
    let role = match message.role() {
        common::ChatRole::System => Role::System,
        common::ChatRole::User => Role::User,
        common::ChatRole::Assistant => Role::Assistant,
        common::ChatRole::Tool => Role::Tool,
        common::ChatRole::Unspecified => {
            let problem = "is missing; name the author";
            return Err(MessageError {
                field: "role",
                problem,
            });
        }
    };
    if role != Role::Assistant && !message.calls.is_empty() {
        let problem = "are not those of a model; only its answers have calls";
        return Err(MessageError {
            field: "calls",
            problem,
        });
    }
    if (role == Role::Tool) != message.result_of.is_some() {
        let problem = "is wrong here; messages of a tool name their call, and no others do";
        return Err(MessageError {
            field: "result_of",
            problem,
        });
    }
    let reasoning = call_wire::reasoning_from_proto(&message.reasoning_json);
    if role != Role::Assistant && reasoning.is_some() {
        let problem = "is not that of a model; only its answers have one";
        return Err(MessageError {
            field: "reasoning_json",
            problem,
        });
    }
    Ok(ChatMessage {
        reasoning,
        calls: call_wire::native_calls_from_proto(message.calls),
        result_of: message.result_of.map(call_wire::ended_call_from_proto),
        ..ChatMessage::new(role, message.text)
    })
}

/// Returns the unit of a budget.
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

/// Converts a budget that was reached; none if its unit is unknown or its limit too large.
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

/// Converts the budgets of a turn for an event, without the request that changed them.
pub fn budgets_edited(budgets: &Budgets) -> common::BudgetsEdited {
    common::BudgetsEdited {
        iterations: budgets.iterations,
        calls_per_response: budgets.calls_per_response,
        calls: budgets.calls,
        tokens: budgets.tokens.unwrap_or_default(),
        money_micros: budgets.money_micros.unwrap_or_default(),
        wall_seconds: budgets.wall_seconds.unwrap_or_default(),
        bytes: budgets.bytes,
        depth: Some(budgets.depth),
        ..common::BudgetsEdited::default()
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
