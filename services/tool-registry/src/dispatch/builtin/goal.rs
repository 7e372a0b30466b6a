//! `UpdateGoalTool`: the goals of the agent whose turn the call belongs to, which is never an argument
//! (rule G307).

use call_outcome::CallOutcome;
use contracts::tavern::agent::v1::{
    GoalStatus, UpdateGoalRequest, state_service_client::StateServiceClient,
};
use grpc_kit::Transport;

use super::state::{context, conversation, failure_of, made, request_id};
use crate::dispatch::ResolvedCall;

/// Adds or changes a goal. A repeated call with the same effect id changes nothing and gives the same answer.
pub(super) async fn update(
    states: &StateServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation_id = match conversation(resolved) {
        Ok(conversation_id) => conversation_id,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let arguments = &resolved.arguments;
    let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
    let status = match text("status").as_str() {
        "pending" => GoalStatus::Pending,
        "active" => GoalStatus::Active,
        "completed" => GoalStatus::Completed,
        "failed" => GoalStatus::Failed,
        "dropped" => GoalStatus::Dropped,
        _ => GoalStatus::Unspecified,
    };
    let request = UpdateGoalRequest {
        conversation_id,
        request_id: request_id(resolved),
        goal_id: text("goal_id"),
        description: text("description"),
        status: status.into(),
        priority: arguments["priority"].as_f64(),
        ..UpdateGoalRequest::default()
    };
    let mut client = states.clone();
    let updated = context(resolved).scope(client.update_goal(request));
    match updated.await {
        Ok(updated) => {
            let updated = updated.into_inner();
            CallOutcome::Succeeded(made(updated.version, &updated.previous_json))
        }
        Err(status) => CallOutcome::Failed(failure_of(&status)),
    }
}
