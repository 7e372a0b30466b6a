//! `tavern goals`: the goals of agents in conversations.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use contracts::tavern::agent::v1::state_service_client::StateServiceClient;
use contracts::tavern::agent::v1::{Goal, GoalStatus, ListGoalsRequest, UpdateGoalRequest};

use super::{Remote, json, list, refusal};
use crate::timeline::name;

/// The commands about goals.
#[derive(Subcommand)]
pub enum Command {
    /// List the goals of an agent in a conversation, by descending priority.
    List {
        /// The id of the conversation.
        conversation_id: String,
        /// The agent. Default: the agent of the newest turn.
        #[arg(long)]
        agent: Option<String>,
    },
    /// Add a goal, or change one.
    Update(Update),
}

/// A goal to add or change.
#[derive(Args)]
pub struct Update {
    /// The id of the conversation.
    conversation_id: String,
    /// The id of the goal.
    goal_id: String,
    /// The goal; required for a new one.
    #[arg(long)]
    description: Option<String>,
    /// The status. Default: unchanged, `active` for a new goal.
    #[arg(long)]
    status: Option<Status>,
    /// The priority, 0 to 1. Default: unchanged, 0.5 for a new goal.
    #[arg(long)]
    priority: Option<f64>,
    /// The agent. Default: the agent of the newest turn.
    #[arg(long)]
    agent: Option<String>,
    /// The request id; the same id changes the goal once.
    #[arg(long)]
    request_id: Option<String>,
}

/// The status of a goal.
#[derive(Clone, Copy, ValueEnum)]
pub enum Status {
    /// To be pursued later.
    Pending,
    /// To be pursued now.
    Active,
    /// Reached.
    Completed,
    /// Not reached, and no longer pursued.
    Failed,
    /// Abandoned.
    Dropped,
}

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut states = StateServiceClient::new(remote.connect()?);
        let refused = |status: tonic::Status| refusal(&status);
        match self {
            Self::List {
                conversation_id,
                agent,
            } => {
                let request = ListGoalsRequest {
                    conversation_id,
                    profile_id: agent.unwrap_or_default(),
                };
                let row = |goal: &Goal| {
                    [
                        goal.goal_id.clone(),
                        name(goal.status().as_str_name(), "GOAL_STATUS_"),
                        goal.priority.to_string(),
                        name(goal.origin().as_str_name(), "GOAL_ORIGIN_"),
                        goal.description.replace('\n', " "),
                    ]
                };
                let head = ["GOAL", "STATUS", "PRIORITY", "FROM", "DESCRIPTION"];
                list::print_all(remote.json, head, row, async |_| {
                    let listed = states.list_goals(request.clone()).await?;
                    Ok((listed.into_inner().goals, String::new()))
                })
                .await?;
            }
            Self::Update(update) => {
                let updated = states.update_goal(update.request()).await;
                let updated = updated.map_err(refused)?.into_inner();
                if remote.json {
                    json::print_line(&updated)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Update {
    fn request(self) -> UpdateGoalRequest {
        let status = self
            .status
            .map_or(GoalStatus::Unspecified, GoalStatus::from);
        UpdateGoalRequest {
            conversation_id: self.conversation_id,
            profile_id: self.agent.unwrap_or_default(),
            request_id: self.request_id.unwrap_or_default(),
            goal_id: self.goal_id,
            description: self.description.unwrap_or_default(),
            status: status.into(),
            priority: self.priority,
        }
    }
}

impl From<Status> for GoalStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Active => Self::Active,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::Dropped => Self::Dropped,
        }
    }
}
