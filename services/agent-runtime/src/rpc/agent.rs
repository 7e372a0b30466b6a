//! AgentRuntimeService: profiles, turns, conversations.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use contracts::tavern::{
    agent::v1::{
        self as proto, GetProfileRequest, GetProfileResponse, ListMessagesRequest,
        ListMessagesResponse, ListProfilesRequest, ListProfilesResponse, StartTurnRequest,
        StartTurnResponse, agent_runtime_service_server::AgentRuntimeService,
    },
    common::v1::{self as common, ErrorReason},
};
use core_types::{ConversationId, IdSource, LoadDiagnostic, RequestId};
use grpc_kit::Failure;
use run_events::{Runs, StartRun, Started, request_hash, timestamp_to_proto};
use tokio::sync::Mutex;
use tonic::{Code, Request, Response, Status};

use super::{model::model_not_found, start};
use crate::{
    domain::{
        plan::{Budgets, Opening},
        profile::Profile,
    },
    profiles::Profiles,
    provider::Models,
    runner::{Runner, TURN, conversation, journal::message_given},
    settings::AgentSettings,
    wire,
};

/// The scope in which request ids of turns count.
const SCOPE: &str = "tavern.agent.v1.AgentRuntimeService/StartTurn";
/// How many starts of turns in different conversations can continue beside each other.
const STRIPES: usize = 64;

/// The server side of AgentRuntimeService.
#[derive(Clone, Debug)]
pub struct AgentRpc {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runs: Runs,
    runner: Runner,
    profiles: Profiles,
    models: Models,
    ids: Arc<dyn IdSource>,
    budgets: Budgets,
    default_model: String,
    /// One conversation starts one turn at a time: looking whether one continues and starting the
    /// next are one step. A conversation's stripe is found by its hash; held across the commit.
    starting: Vec<Mutex<()>>,
}

impl AgentRpc {
    /// Puts the server side together.
    pub fn new(
        runs: Runs,
        runner: Runner,
        profiles: Profiles,
        models: Models,
        ids: Arc<dyn IdSource>,
        settings: &AgentSettings,
    ) -> Self {
        let starting = std::iter::repeat_with(Mutex::default)
            .take(STRIPES)
            .collect();
        let (budgets, default_model) = (settings.budgets, settings.default_model.clone());
        Self {
            inner: Arc::new(Inner {
                runs,
                runner,
                profiles,
                models,
                ids,
                budgets,
                default_model,
                starting,
            }),
        }
    }
}

impl Inner {
    fn profile(&self, id: &str) -> Result<Arc<Profile>, Failure> {
        self.profiles.get(id).ok_or_else(|| {
            let shown: String = id.chars().take(80).collect();
            let message = format!("no agent profile has the id `{shown}`");
            Failure::new(Code::NotFound, ErrorReason::ProfileNotFound, message)
                .metadata("profile_id", shown)
        })
    }

    async fn start(&self, request: StartTurnRequest) -> Result<StartTurnResponse, Failure> {
        let body_hash = request_hash(&request);
        let asked = start::read(&request, self.budgets, self.ids.as_ref())?;
        let profile = self.profile(&request.profile_id)?;
        let plan = start::plan(&asked, &profile, &self.default_model);
        self.check_model(&plan)?;
        let _one_at_a_time = self.starting[stripe(&asked.conversation_id)].lock().await;
        if !self.is_known(&request.request_id).await? {
            self.refuse_if_busy(&asked.conversation_id).await?;
        }
        let room = self.runner.admit()?;
        let owner_data = serde_json::to_value(&plan).expect("a plan has only text keys");
        let start = StartRun {
            kind: TURN,
            subject: profile.id.to_string(),
            conversation_id: asked.conversation_id,
            request_id: request.request_id,
            scope: SCOPE,
            body_hash,
            input_json: asked.input_json,
            input_is_model_text: matches!(asked.input.opening, Opening::ModelText { .. }),
            options: request.options,
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

    fn check_model(&self, plan: &crate::domain::plan::Plan) -> Result<(), Failure> {
        if !plan.go_on {
            return Ok(());
        }
        match &plan.model {
            Some(model) if self.models.get(model).is_some() => Ok(()),
            Some(model) => Err(model_not_found(model)),
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

    async fn refuse_if_busy(&self, conversation_id: &str) -> Result<(), Failure> {
        let turns = self.runs.by_conversation(conversation_id).await?;
        let Some((run, _)) = turns.iter().find(|(run, _)| run.outcome.is_none()) else {
            return Ok(());
        };
        let message = format!(
            "the conversation has a turn that goes on, {}; wait for its end or cancel it",
            run.run_id
        );
        Err(Failure::new(
            Code::FailedPrecondition,
            ErrorReason::ConversationBusy,
            message,
        )
        .metadata("run_id", run.run_id.clone())
        .violation("conversation_id", "has a turn that goes on"))
    }

    async fn messages(
        &self,
        request: &ListMessagesRequest,
    ) -> Result<ListMessagesResponse, Failure> {
        let conversation_id =
            ConversationId::new(request.conversation_id.as_str()).map_err(|error| {
                Failure::invalid_fields().violation("conversation_id", error.to_string())
            })?;
        let list = format!("messages\0{conversation_id}");
        let after = super::page_after(&list, &request.page_token)?;
        let skip = match after.map(|after| after.parse::<usize>()) {
            None => 0,
            Some(Ok(last)) => last + 1,
            Some(Err(_)) => {
                return Err(Failure::invalid_fields().violation("page_token", "is damaged"));
            }
        };
        let turns = conversation(&self.runs, conversation_id.as_str(), None, usize::MAX).await?;
        let size = core_types::page::page_size(request.page_size);
        let said = turns.into_iter().flat_map(|turn| {
            let run_id = turn.run_id;
            turn.messages
                .into_iter()
                .map(move |message| (run_id.clone(), message))
        });
        let entries: Vec<(usize, proto::Message)> = said
            .enumerate()
            .skip(skip)
            .take(size + 1)
            .map(|(place, (run_id, message))| {
                let message = proto::Message {
                    role: wire::role_to_proto(message.role).into(),
                    text: message.text,
                    observation: message.observation,
                    run_id,
                    time: Some(timestamp_to_proto(message.time)),
                };
                (place, message)
            })
            .collect();
        let (entries, next_page_token) =
            super::page(&list, entries, size, |(place, _)| place.to_string());
        let messages = entries.into_iter().map(|(_, message)| message).collect();
        Ok(ListMessagesResponse {
            messages,
            next_page_token,
        })
    }
}

fn stripe(conversation_id: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    conversation_id.hash(&mut hasher);
    usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or_default()
}

fn lost(run_id: &str) -> Failure {
    let message = format!("the run {run_id} was created and cannot be read back; ask for it again");
    Failure::new(Code::Unavailable, ErrorReason::StorageUnavailable, message)
        .metadata("run_id", run_id)
}

fn diagnostics_to_proto(findings: &[LoadDiagnostic]) -> Vec<common::LoadDiagnostic> {
    findings
        .iter()
        .map(call_wire::load_diagnostic_to_proto)
        .collect()
}

fn profile_to_proto(profile: &Profile, default_model: &str) -> proto::Profile {
    proto::Profile {
        profile_id: profile.id.to_string(),
        name: profile.name.clone(),
        description: profile.description.clone(),
        tool_ids_inventory: profile.tool_ids.clone(),
        model: profile
            .tavern
            .model
            .clone()
            .unwrap_or_else(|| default_model.to_owned()),
        profile_json: profile.source.to_string(),
        diagnostics: diagnostics_to_proto(&profile.diagnostics),
    }
}

#[tonic::async_trait]
impl AgentRuntimeService for AgentRpc {
    async fn get_profile(
        &self,
        request: Request<GetProfileRequest>,
    ) -> Result<Response<GetProfileResponse>, Status> {
        let profile = self.inner.profile(&request.into_inner().profile_id)?;
        let profile = Some(profile_to_proto(&profile, &self.inner.default_model));
        Ok(Response::new(GetProfileResponse { profile }))
    }

    async fn list_profiles(
        &self,
        request: Request<ListProfilesRequest>,
    ) -> Result<Response<ListProfilesResponse>, Status> {
        const LIST: &str = "profiles";
        let request = request.into_inner();
        let after = super::page_after(LIST, &request.page_token)?;
        let size = core_types::page::page_size(request.page_size);
        let profiles = self.inner.profiles.after(after.as_deref()).take(size + 1);
        let profiles = profiles
            .map(|profile| profile_to_proto(profile, &self.inner.default_model))
            .collect();
        let (profiles, next_page_token) =
            super::page(LIST, profiles, size, |profile: &proto::Profile| {
                profile.profile_id.clone()
            });
        let diagnostics = match after {
            None => diagnostics_to_proto(self.inner.profiles.left_out()),
            Some(_) => Vec::new(),
        };
        Ok(Response::new(ListProfilesResponse {
            profiles,
            next_page_token,
            diagnostics,
        }))
    }

    async fn start_turn(
        &self,
        request: Request<StartTurnRequest>,
    ) -> Result<Response<StartTurnResponse>, Status> {
        Ok(Response::new(self.inner.start(request.into_inner()).await?))
    }

    async fn list_messages(
        &self,
        request: Request<ListMessagesRequest>,
    ) -> Result<Response<ListMessagesResponse>, Status> {
        Ok(Response::new(
            self.inner.messages(&request.into_inner()).await?,
        ))
    }
}
