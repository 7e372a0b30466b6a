//! `UpdateGoalTool`: the goals of the agent whose turn the call belongs to.

use call_outcome::Failure;
use contracts::tavern::agent::v1::{
    GoalStatus, UpdateGoalRequest, state_service_client::StateServiceClient,
};
use grpc_kit::Outbound;
use serde_json::Value;

use super::{peer::PeerCall, state::made};

/// Adds or changes a goal. A repeated call with the same effect id changes nothing and gives the same answer.
pub(super) async fn update(
    states: &StateServiceClient<Outbound>,
    call: &PeerCall<'_>,
) -> Result<Value, Failure> {
    let status = match call.text("status").as_str() {
        "pending" => GoalStatus::Pending,
        "active" => GoalStatus::Active,
        "completed" => GoalStatus::Completed,
        "failed" => GoalStatus::Failed,
        "dropped" => GoalStatus::Dropped,
        _ => GoalStatus::Unspecified,
    };
    let request = UpdateGoalRequest {
        conversation_id: call.conversation_id(),
        request_id: call.request_id(),
        goal_id: call.text("goal_id"),
        description: call.text("description"),
        status: status.into(),
        priority: call.arguments["priority"].as_f64(),
        ..UpdateGoalRequest::default()
    };
    let updated = call.ask(states.clone().update_goal(request)).await?;
    Ok(made(updated.version, &updated.previous_json))
}
