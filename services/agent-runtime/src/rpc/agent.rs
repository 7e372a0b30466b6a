//! AgentService: turns.

use std::sync::Arc;

use contracts::tavern::{
    agent::v1::{
        EditBudgetsRequest, EditBudgetsResponse, StartTurnRequest, StartTurnResponse,
        SteerTurnRequest, SteerTurnResponse, agent_service_server::AgentService,
    },
    common::v1::ErrorReason,
};
use core_types::{IdSource, RequestId};
use grpc_kit::Failure;
use run_events::{Runs, StartRun, Started, request_hash};
use tonic::{Code, Request, Response, Status};

use super::{model::model_not_found, profiles::no_such_profile, start, steering};
use crate::{
    conversations::Conversations,
    domain::{
        budgets::Budgets,
        plan::{Opening, Plan},
    },
    profiles::Profiles,
    provider::Models,
    runner::{Runner, TURN},
    settings::AgentSettings,
    turn_log::journal::message_given,
};

/// The scope in which request ids of turns count.
const SCOPE: &str = "tavern.agent.v1.AgentService/StartTurn";

/// The server side of AgentService.
#[derive(Clone, Debug)]
pub struct AgentRpc {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runs: Runs,
    runner: Runner,
    conversations: Conversations,
    profiles: Profiles,
    models: Models,
    ids: Arc<dyn IdSource>,
    budgets: Budgets,
    default_model: String,
}

impl AgentRpc {
    /// Puts the server side together.
    pub fn new(
        runs: Runs,
        runner: Runner,
        conversations: Conversations,
        profiles: Profiles,
        models: Models,
        ids: Arc<dyn IdSource>,
        settings: &AgentSettings,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                runs,
                runner,
                conversations,
                profiles,
                models,
                ids,
                budgets: settings.budgets,
                default_model: settings.default_model.clone(),
            }),
        }
    }
}

impl Inner {
    async fn start(&self, request: StartTurnRequest) -> Result<StartTurnResponse, Failure> {
        let body_hash = request_hash(&request);
        let asked = start::read(&request, self.ids.as_ref())?;
        let known = self.profiles.get(&request.profile_id);
        let profile = known.ok_or_else(|| no_such_profile(&request.profile_id))?;
        let plan = start::plan(&asked, &profile.profile, &self.budgets, &self.default_model);
        self.check_model(&plan)?;
        let _one_at_a_time = self.conversations.lock(&asked.conversation_id).await;
        if !self.is_known(&request.request_id).await? {
            self.conversations
                .refuse_if_busy(&asked.conversation_id)
                .await?;
        }
        let room = self.runner.admit()?;
        if !asked.ephemeral {
            self.conversations.begin(&asked.conversation_id).await?;
            let states = self.runner.states();
            states
                .begin(&asked.conversation_id, &profile.profile)
                .await?;
        }
        let owner_data = serde_json::to_value(&plan).expect("a plan has only text keys");
        let start = StartRun {
            kind: TURN,
            subject: profile.profile.id.to_string(),
            conversation_id: asked.conversation_id,
            request_id: request.request_id,
            scope: SCOPE,
            body_hash,
            input_json: asked.input_json,
            input_is_model_text: matches!(asked.input.opening, Opening::ModelText { .. }),
            options: request.options,
            can_wait: false,
            concurrency_key: String::new(),
            priority: 0,
            deadline_cap: None,
            owner_data,
            first_events: asked.input.history.iter().map(message_given).collect(),
            path: None,
        };
        match self.runs.start(start).await? {
            Started::Replayed(run) => Ok(StartTurnResponse {
                run: Some(run),
                replayed: true,
            }),
            Started::New(recorder, meta) => {
                let run_id = recorder.run_id().to_string();
                let run = self.runs.get(&run_id).await.map_err(|_| lost(&run_id))?;
                self.runner.start(recorder, meta, plan, &asked.input, room);
                Ok(StartTurnResponse {
                    run: Some(run),
                    replayed: false,
                })
            }
        }
    }

    fn check_model(&self, plan: &Plan) -> Result<(), Failure> {
        if !plan.go_on || plan.deliberation.is_some() {
            return Ok(());
        }
        match &plan.model {
            Some(name) => match self.models.with_fallbacks(name, plan.fallbacks.as_deref()) {
                Ok(model) if plan.budgets.money_micros.is_some() && !model.is_priced() => {
                    let problem = format!(
                        "cannot be kept, as the model `{name}` or one of its fallbacks has no prices; \
                         state them in its settings, or leave the budget out of request and profile"
                    );
                    Err(Failure::invalid_fields().violation("budgets.money_micros", problem))
                }
                Ok(_) => Ok(()),
                Err(unknown) => Err(model_not_found(unknown)),
            },
            None => Err(Failure::new(
                Code::NotFound,
                ErrorReason::ModelNotFound,
                "the agent names no model and there is no default; set custom_metadata.tavern.model or default_model",
            )),
        }
    }

    async fn is_known(&self, request_id: &str) -> Result<bool, Failure> {
        let Ok(request_id) = RequestId::new(request_id) else {
            return Ok(false);
        };
        Ok(self.runs.by_request(SCOPE, &request_id).await?.is_some())
    }
}

fn lost(run_id: &str) -> Failure {
    let message = format!("the run {run_id} was created and cannot be read back; ask for it again");
    Failure::new(Code::Unavailable, ErrorReason::StorageUnavailable, message)
        .metadata("run_id", run_id)
}

#[tonic::async_trait]
impl AgentService for AgentRpc {
    async fn start_turn(
        &self,
        request: Request<StartTurnRequest>,
    ) -> Result<Response<StartTurnResponse>, Status> {
        Ok(Response::new(self.inner.start(request.into_inner()).await?))
    }

    async fn steer_turn(
        &self,
        request: Request<SteerTurnRequest>,
    ) -> Result<Response<SteerTurnResponse>, Status> {
        let (runner, runs) = (&self.inner.runner, &self.inner.runs);
        let steered = steering::steer(runner, runs, request.into_inner()).await?;
        Ok(Response::new(steered))
    }

    async fn edit_budgets(
        &self,
        request: Request<EditBudgetsRequest>,
    ) -> Result<Response<EditBudgetsResponse>, Status> {
        let (runner, runs) = (&self.inner.runner, &self.inner.runs);
        let edited = steering::edit_budgets(runner, runs, request.into_inner()).await?;
        Ok(Response::new(edited))
    }
}
