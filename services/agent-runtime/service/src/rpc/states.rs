//! StateService: the private states of agents and the world states of scenes.

use agent_domain::goals::{self, Goal, GoalChange, GoalStatus};
use agent_store::store::{StateOwner, StateRow};
use contracts::tavern::agent::v1::{
    self as proto, GetPrivateStateRequest, GetPrivateStateResponse, GetWorldStateRequest,
    GetWorldStateResponse, ListGoalsRequest, ListGoalsResponse, ListPrivateStateVersionsRequest,
    ListPrivateStateVersionsResponse, UpdateGoalRequest, UpdateGoalResponse,
    UpdatePrivateStateRequest, UpdatePrivateStateResponse, UpdateWorldStateRequest,
    UpdateWorldStateResponse, state_service_server::StateService,
};
use grpc_kit::{CallContext, Failure};
use run_events::{request_hash, timestamp_to_proto};
use tonic::{Request, Response, Status};

use super::{
    operations::{operations, path, paths},
    publishers::Publishers,
    worlds::Worlds,
};
use crate::states::{States, Update, refused};

/// The server side of StateService.
#[derive(Clone, Debug)]
pub struct StateRpc {
    states: States,
    worlds: Worlds,
}

impl StateRpc {
    /// Serves these states.
    pub fn new(states: States, publishers: Publishers) -> Self {
        let worlds = Worlds::new(states.clone(), publishers);
        Self { states, worlds }
    }

    async fn get(
        &self,
        context: &CallContext,
        request: GetPrivateStateRequest,
    ) -> Result<GetPrivateStateResponse, Failure> {
        let path = match request.path.as_str() {
            "" => None,
            written => Some(path("path", written)?),
        };
        let owner = self
            .states
            .owner(context, &request.conversation_id, &request.profile_id)
            .await?;
        let version = (request.version > 0).then_some(request.version);
        let snapshot = self.states.get(&owner, version).await?;
        let value = match path {
            None => &snapshot.value,
            Some(path) => path.get(&snapshot.value).map_err(|error| refused(&error))?,
        };
        Ok(GetPrivateStateResponse {
            version: snapshot.row.version,
            value_json: value.to_string(),
            profile_id: owner.profile_id,
            create_time: Some(timestamp_to_proto(snapshot.row.created)),
        })
    }

    async fn update(
        &self,
        context: &CallContext,
        request: UpdatePrivateStateRequest,
    ) -> Result<UpdatePrivateStateResponse, Failure> {
        let hash = request_hash(context, &request);
        let operations = operations(&request.request_id, &request.operations)?;
        let owner = self
            .states
            .owner(context, &request.conversation_id, &request.profile_id)
            .await?;
        let update = Update {
            request: (!request.request_id.is_empty()).then_some((request.request_id, hash)),
            expected_version: request.expected_version,
            operations,
        };
        let (row, replayed) = self.states.update(&owner, update).await?;
        Ok(UpdatePrivateStateResponse {
            version: row.version,
            changed_paths: paths(&row),
            previous_json: row.previous.unwrap_or_default(),
            replayed,
        })
    }

    async fn goals(
        &self,
        context: &CallContext,
        request: ListGoalsRequest,
    ) -> Result<ListGoalsResponse, Failure> {
        let states = &self.states;
        let agent = states.owner(context, &request.conversation_id, &request.profile_id);
        let agent = agent.await?;
        let owner = StateOwner::goals(agent.tenant, &agent.conversation_id, &agent.profile_id);
        let snapshot = states.snapshot(owner, None).await?;
        let goals = snapshot.as_ref().map(|known| goals::listed(&known.value));
        let goals = goals.unwrap_or_default().into_iter().map(goal_to_proto);
        Ok(ListGoalsResponse {
            goals: goals.collect(),
            version: snapshot.map_or(0, |known| known.row.version),
            profile_id: agent.profile_id,
        })
    }

    async fn update_goal(
        &self,
        context: &CallContext,
        request: UpdateGoalRequest,
    ) -> Result<UpdateGoalResponse, Failure> {
        let hash = request_hash(context, &request);
        super::check_request_id(&request.request_id)?;
        let change = GoalChange {
            status: status_from_proto(request.status()),
            priority: request.priority,
            description: Some(request.description).filter(|text| !text.is_empty()),
        };
        let operation = goals::operation(&request.goal_id, &change);
        let operation =
            operation.map_err(|problem| Failure::invalid_fields().violation("goal_id", problem))?;
        let states = &self.states;
        let agent = states.owner(context, &request.conversation_id, &request.profile_id);
        let agent = agent.await?;
        let update = Update {
            request: (!request.request_id.is_empty()).then_some((request.request_id, hash)),
            expected_version: 0,
            operations: vec![operation],
        };
        let (row, replayed) = states.update_goal(&agent, update).await?;
        Ok(UpdateGoalResponse {
            version: row.version,
            previous_json: row.previous.unwrap_or_default(),
            replayed,
        })
    }

    async fn list(
        &self,
        context: &CallContext,
        request: ListPrivateStateVersionsRequest,
    ) -> Result<ListPrivateStateVersionsResponse, Failure> {
        let owner = self
            .states
            .owner(context, &request.conversation_id, &request.profile_id)
            .await?;
        let list = format!("states\0{}\0{}", owner.conversation_id, owner.profile_id);
        let list = grpc_kit::list_of(context, &list);
        let before = super::page_after(&list, &request.page_token)?;
        let before = before.and_then(|before| before.parse().ok());
        let size = core_types::page::page_size(request.page_size);
        let versions = self.states.versions(&owner, before, size + 1).await?;
        let (versions, next_page_token) = super::page(&list, versions, size, |row: &StateRow| {
            row.version.to_string()
        });
        let write = |row: StateRow| proto::StateVersion {
            version: row.version,
            create_time: Some(timestamp_to_proto(row.created)),
            changed_paths: paths(&row),
            request_id: row.request_id,
        };
        Ok(ListPrivateStateVersionsResponse {
            versions: versions.into_iter().map(write).collect(),
            next_page_token,
        })
    }
}

fn goal_to_proto(goal: Goal) -> proto::Goal {
    let status = match goal.status {
        GoalStatus::Pending => proto::GoalStatus::Pending,
        GoalStatus::Active => proto::GoalStatus::Active,
        GoalStatus::Completed => proto::GoalStatus::Completed,
        GoalStatus::Failed => proto::GoalStatus::Failed,
        GoalStatus::Dropped => proto::GoalStatus::Dropped,
    };
    let origin = match goal.origin.as_str() {
        "profile" => proto::GoalOrigin::Profile,
        "scene" => proto::GoalOrigin::Scene,
        _ => proto::GoalOrigin::Agent,
    };
    proto::Goal {
        goal_id: goal.id,
        description: goal.description,
        status: status.into(),
        priority: goal.priority,
        origin: origin.into(),
        kb_id: goal.kb,
        resolved: goal.resolved,
    }
}

fn status_from_proto(status: proto::GoalStatus) -> Option<GoalStatus> {
    Some(match status {
        proto::GoalStatus::Unspecified => return None,
        proto::GoalStatus::Pending => GoalStatus::Pending,
        proto::GoalStatus::Active => GoalStatus::Active,
        proto::GoalStatus::Completed => GoalStatus::Completed,
        proto::GoalStatus::Failed => GoalStatus::Failed,
        proto::GoalStatus::Dropped => GoalStatus::Dropped,
    })
}

#[tonic::async_trait]
impl StateService for StateRpc {
    async fn list_goals(
        &self,
        request: Request<ListGoalsRequest>,
    ) -> Result<Response<ListGoalsResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.goals(&context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn update_goal(
        &self,
        request: Request<UpdateGoalRequest>,
    ) -> Result<Response<UpdateGoalResponse>, Status> {
        let context = CallContext::of(&request);
        let updated = Self::update_goal(self, &context, request.into_inner()).await?;
        Ok(Response::new(updated))
    }

    async fn get_private_state(
        &self,
        request: Request<GetPrivateStateRequest>,
    ) -> Result<Response<GetPrivateStateResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.get(&context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn update_private_state(
        &self,
        request: Request<UpdatePrivateStateRequest>,
    ) -> Result<Response<UpdatePrivateStateResponse>, Status> {
        let context = CallContext::of(&request);
        let updated = self.update(&context, request.into_inner()).await?;
        Ok(Response::new(updated))
    }

    async fn list_private_state_versions(
        &self,
        request: Request<ListPrivateStateVersionsRequest>,
    ) -> Result<Response<ListPrivateStateVersionsResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.list(&context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn get_world_state(
        &self,
        request: Request<GetWorldStateRequest>,
    ) -> Result<Response<GetWorldStateResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.worlds.get(&context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn update_world_state(
        &self,
        request: Request<UpdateWorldStateRequest>,
    ) -> Result<Response<UpdateWorldStateResponse>, Status> {
        let context = CallContext::of(&request);
        let updated = self.worlds.update(&context, request.into_inner()).await?;
        Ok(Response::new(updated))
    }
}
