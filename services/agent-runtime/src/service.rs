//! The service put together.

use std::{collections::HashMap, ffi::OsString, fmt, sync::Arc};

use contracts::tavern::agent::v1::{
    agent_service_server::AgentServiceServer,
    conversation_service_server::ConversationServiceServer,
    model_service_server::ModelServiceServer, profile_service_server::ProfileServiceServer,
    state_service_server::StateServiceServer,
};
use core_types::{Clock, IdSource, RunOwner, SystemClock, SystemIds};
use grpc_kit::{Failure, Services};
use run_events::Runs;
use run_log::RunLogs;
use sql_store::{DataDir, SqliteDatabase, SqliteOptions};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    conversations::Conversations,
    error::BuildError,
    peers::Peers,
    profiles::Profiles,
    provider::Models,
    rpc::{AgentRpc, ConversationRpc, ModelRpc, ProfileRpc, StateRpc},
    runner::Runner,
    settings::AgentSettings,
    states::States,
    store::{self, AgentStore},
};

/// What the service takes from outside instead of asking the system.
#[derive(Clone)]
pub struct Environment {
    /// Returns the time.
    pub clock: Arc<dyn Clock>,
    /// Makes identifiers.
    pub ids: Arc<dyn IdSource>,
    /// Environment variables, in which the keys of models are.
    pub variables: HashMap<String, String>,
}

impl Environment {
    /// Takes everything from the system.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            variables: unicode_variables(),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Among the variables are keys.
        formatter
            .debug_struct("Environment")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// A key that is no UTF-8 could not be sent anyway.
fn unicode_variables() -> HashMap<String, String> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// The agent runtime. Clone, cheap.
#[derive(Clone, Debug)]
pub struct AgentRuntime {
    runs: Runs,
    runner: Runner,
    store: AgentStore,
    agent: AgentRpc,
    profile: ProfileRpc,
    conversation: ConversationRpc,
    model: ModelRpc,
    state: StateRpc,
    /// Reads the files of profiles again; ends with the last clone.
    _following: Option<Arc<AbortOnDropHandle<()>>>,
}

/// Builds the service on its data directory.
///
/// # Errors
/// [`BuildError`] when a model, the data directory or the run log cannot be used.
pub async fn build(
    settings: AgentSettings,
    peers: Peers,
    environment: Environment,
) -> Result<AgentRuntime, BuildError> {
    let models = Models::build(
        &settings.models,
        &settings.scripts_dir,
        &environment.variables,
    )?;
    let data = DataDir::open(&settings.data_dir)?;
    let logs = RunLogs::open(SqliteOptions::new(data.file("agent-runtime.runs.db")?)).await?;
    let clock = Arc::clone(&environment.clock);
    let runs = Runs::new(
        logs,
        RunOwner::Agent,
        Arc::clone(&clock),
        Arc::clone(&environment.ids),
    );
    let options = SqliteOptions::new(data.file("agent-runtime.db")?);
    let database = SqliteDatabase::open(options, &[store::MIGRATIONS]).await;
    let store = AgentStore::new(database.map_err(BuildError::Database)?);
    let profiles = Profiles::open(settings.agents_dir.clone(), store.clone()).await?;
    let following = settings.follow_agents_dir.then(|| {
        let profiles = profiles.clone();
        let following = tokio::spawn(async move { profiles.follow_files().await });
        Arc::new(AbortOnDropHandle::new(following))
    });
    let conversations = Conversations::new(store.clone(), runs.clone(), Arc::clone(&clock));
    let states = States::new(
        store.clone(),
        runs.clone(),
        profiles.clone(),
        conversations.clone(),
        Arc::clone(&clock),
    );
    let runner = Runner::new(
        runs.clone(),
        conversations.clone(),
        states.clone(),
        models.clone(),
        peers,
        clock,
        &settings,
    );
    let agent = AgentRpc::new(
        runs.clone(),
        runner.clone(),
        conversations.clone(),
        profiles.clone(),
        models.clone(),
        Arc::clone(&environment.ids),
        &settings,
    );
    Ok(AgentRuntime {
        runs,
        runner,
        store,
        agent,
        profile: ProfileRpc::new(profiles, settings.default_model),
        conversation: ConversationRpc::new(conversations, environment.ids),
        model: ModelRpc::new(models),
        state: StateRpc::new(states),
        _following: following,
    })
}

impl AgentRuntime {
    /// Returns what a server of its own serves.
    pub fn services(&self) -> Services {
        self.services_beside_gateway().add(self.runs.service())
    }

    /// Returns what a server serves that serves the gateway too, whose run service covers these
    /// runs.
    pub fn services_beside_gateway(&self) -> Services {
        Services::new()
            .add(AgentServiceServer::new(self.agent.clone()))
            .add(ProfileServiceServer::new(self.profile.clone()))
            .add(ConversationServiceServer::new(self.conversation.clone()))
            .add(ModelServiceServer::new(self.model.clone()))
            .add(StateServiceServer::new(self.state.clone()))
    }

    /// Continues with the turns that the process before this one left.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn recover(&self) -> Result<(), Failure> {
        self.runner.recover().await
    }

    /// Ends all tasks. Turns continue at the next start.
    pub async fn shutdown(&self) {
        self.runs.shutdown().await;
        self.store.close().await;
    }
}
