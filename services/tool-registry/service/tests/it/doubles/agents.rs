//! An agent-runtime that knows the tools of some agents.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use contracts::tavern::{
    agent::v1::{
        EditBudgetsRequest, EditBudgetsResponse, ExportTurnRequest, ExportTurnResponse,
        ForkTurnRequest, ForkTurnResponse, GetToolScopeRequest, GetToolScopeResponse,
        StartTurnRequest, StartTurnResponse, SteerTurnRequest, SteerTurnResponse,
        agent_service_server::AgentService, get_tool_scope_request::Agent,
    },
    common::v1::ErrorReason,
};
use futures::stream::Empty;
use grpc_kit::Failure;
use serde_json::Value;
use tonic::{Code, Request, Response, Status};

/// The double.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownAgents {
    /// The agents by profile, and by the run of a turn.
    known: Arc<Mutex<HashMap<String, GetToolScopeResponse>>>,
    /// The agents that were requested, in order.
    asked: Arc<Mutex<Vec<String>>>,
}

impl KnownAgents {
    /// Makes an agent known under the id of its profile and under the run of a turn.
    pub(crate) fn add(&self, profile_id: &str, turn: &str, tool_ids: &[&str], approvals: &Value) {
        let tool_ids: Vec<String> = tool_ids.iter().map(|id| (*id).to_owned()).collect();
        let scope = GetToolScopeResponse {
            profile_id: profile_id.to_owned(),
            names: tool_ids.clone(),
            tool_ids,
            handle_tool_ids: vec!["system:list_handles".to_owned()],
            approvals_json: approvals.to_string(),
        };
        let mut known = self.known.lock().unwrap();
        known.insert(turn.to_owned(), scope.clone());
        known.insert(profile_id.to_owned(), scope);
    }

    /// Returns the number of requests for an agent.
    pub(crate) fn asked(&self, id: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| *asked == id).count()
    }
}

#[tonic::async_trait]
impl AgentService for KnownAgents {
    type ExportTurnStream = Empty<Result<ExportTurnResponse, Status>>;

    async fn export_turn(
        &self,
        _: Request<ExportTurnRequest>,
    ) -> Result<Response<Self::ExportTurnStream>, Status> {
        Err(Status::unimplemented("the double has no turns"))
    }

    async fn get_tool_scope(
        &self,
        request: Request<GetToolScopeRequest>,
    ) -> Result<Response<GetToolScopeResponse>, Status> {
        let (id, reason) = match request.into_inner().agent.unwrap() {
            Agent::RunId(id) => (id, ErrorReason::RunNotFound),
            Agent::ProfileId(id) => (id, ErrorReason::ProfileNotFound),
        };
        self.asked.lock().unwrap().push(id.clone());
        let known = self.known.lock().unwrap().get(&id).cloned();
        let missing = || Failure::new(Code::NotFound, reason, "the double does not know it");
        Ok(Response::new(known.ok_or_else(missing)?))
    }

    async fn start_turn(
        &self,
        _: Request<StartTurnRequest>,
    ) -> Result<Response<StartTurnResponse>, Status> {
        Err(Status::unimplemented("the double has no turns"))
    }

    async fn steer_turn(
        &self,
        _: Request<SteerTurnRequest>,
    ) -> Result<Response<SteerTurnResponse>, Status> {
        Err(Status::unimplemented("the double has no turns"))
    }

    async fn fork_turn(
        &self,
        _: Request<ForkTurnRequest>,
    ) -> Result<Response<ForkTurnResponse>, Status> {
        Err(Status::unimplemented("the double has no turns"))
    }

    async fn edit_budgets(
        &self,
        _: Request<EditBudgetsRequest>,
    ) -> Result<Response<EditBudgetsResponse>, Status> {
        Err(Status::unimplemented("the double has no turns"))
    }
}
