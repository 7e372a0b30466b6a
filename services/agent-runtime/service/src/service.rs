//! Building the service from its parts.

use std::{collections::HashMap, ffi::OsString, fmt, path::Path, sync::Arc, time::Duration};

use agent_store::{
    conversations::Conversations,
    knowledge::Knowledge,
    profiles::{ProfileKind, Profiles},
    projects::{ProjectKind, ProjectParts, Projects},
    questions::Questions,
    scenes::{SceneKind, Scenes},
    store::{self, AgentStore, StateStore},
};
use contracts::lf::a2a::v1::a2a_service_server::A2aServiceServer;
use contracts::tavern::agent::v1::{
    agent_service_server::AgentServiceServer,
    conversation_service_server::ConversationServiceServer,
    knowledge_service_server::KnowledgeServiceServer, model_service_server::ModelServiceServer,
    profile_service_server::ProfileServiceServer, project_service_server::ProjectServiceServer,
    scene_service_server::SceneServiceServer, state_service_server::StateServiceServer,
};
use core_types::{Clock, IdSource, RunOwner, SystemClock, SystemIds};
use data_home::{DataHome, LogOptions, ServiceData};
use documents::{DocumentParts, Kind as _, StoredDocuments};
use grpc_kit::{Failure, Services};
use model_client::Models;
use run_events::{Neighbours, RetentionSettings, Runs};
use tenancy::TenantSync;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    error::{Error, store_failure},
    knowledge_override::{KnowledgeBases, KnowledgeOverride},
    peers::Peers,
    rpc::{
        A2aRpc, AgentRpc, ConversationRpc, KnowledgeRpc, LONG_METHOD, ModelRpc, ProfileRpc,
        ProjectRpc, Publishers, SceneRpc, StateRpc, Surroundings,
    },
    runner::{
        Runner, RunnerParts,
        answers::Answers,
        retention::IdleConversations,
        scenes::{SCENE, SceneParts, SceneRunner},
        turns::Turns,
    },
    running_scenes::RunningScenes,
    settings::AgentSettings,
    states::States,
    tenants::AgentTenants,
};

/// The log of turns and scenes.
const LOG: LogOptions = LogOptions::new("agent-runtime.runs.db", "turn");

/// The data of this service.
pub const DATA: ServiceData = ServiceData {
    service: "agent-runtime",
    file: "agent-runtime.db",
    in_file: &[documents::MIGRATIONS, store::MIGRATIONS],
    schema: "agent",
    kinds: &[ProfileKind::NAME, SceneKind::NAME, ProjectKind::NAME],
    logs: &[LOG],
};

/// The longest time of a method that waits for the end of a turn.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The clock, the identifiers and the environment variables, as the service gets them from outside.
#[derive(Clone)]
pub struct Environment {
    /// Returns the time.
    pub clock: Arc<dyn Clock>,
    /// Makes identifiers.
    pub ids: Arc<dyn IdSource>,
    /// Environment variables, which hold the keys of models.
    pub variables: HashMap<String, String>,
}

impl Environment {
    /// Uses the clock, random identifiers and the variables of the system.
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
        // Some of the variables are keys.
        formatter
            .debug_struct("Environment")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// A key that is not UTF-8 could not be sent anyway.
fn unicode_variables() -> HashMap<String, String> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// The agent runtime. Clone, cheap.
#[derive(Clone, Debug)]
pub struct AgentRuntime {
    home: DataHome,
    runs: Runs,
    runner: Runner,
    scene_runner: SceneRunner,
    store: AgentStore,
    retention: RetentionSettings,
    neighbours: Neighbours,
    idle_conversations: Arc<IdleConversations>,
    tenants: Arc<AgentTenants>,
    agent: AgentRpc,
    a2a: A2aRpc,
    profile: ProfileRpc,
    knowledge: KnowledgeRpc,
    conversation: ConversationRpc,
    model: ModelRpc,
    state: StateRpc,
    scene: SceneRpc,
    project: ProjectRpc,
    /// The tasks that read the files of profiles again, and follow questions; they end with the
    /// last clone.
    _following: Vec<Following>,
}

/// Builds the service on its data directory.
///
/// # Errors
/// [`Error`] when a model, the data directory or the run log cannot be used.
pub async fn build(
    settings: AgentSettings,
    peers: Peers,
    environment: Environment,
) -> Result<AgentRuntime, Error> {
    let home = DataHome::open(settings.home()).await?;
    build_at(home, settings, peers, environment).await
}

/// Builds the service at a home that the process has opened, in place of that of the settings.
///
/// # Errors
/// [`Error`] when a model, a database or the run log cannot be used.
pub async fn build_at(
    home: DataHome,
    settings: AgentSettings,
    peers: Peers,
    environment: Environment,
) -> Result<AgentRuntime, Error> {
    let ids = Arc::clone(&environment.ids);
    let base = Base::open(home, &settings, peers, &environment).await?;
    let (questions, opened) = Questions::new(Arc::new(base.store.clone()));
    let runner = base.runner(questions, &settings);
    let turns = base.turns(runner.clone(), &settings);
    let mut following = base.follow_files(settings.follow_agents_dir);
    following.push(until_dropped(base.answers(turns.clone()).run(opened)));
    let parts = base.scene_parts(turns.clone());
    let idle_conversations = base.idle_conversations(settings.conversation_retention);
    let tenants = Arc::new(base.tenants());
    let Base {
        home,
        runs,
        store,
        models,
        profiles,
        documents,
        knowledge,
        conversations,
        states,
        running_scenes,
        peers,
        clock,
    } = base;
    let agent = AgentRpc::new(runs.clone(), turns.clone(), Arc::clone(&ids));
    let conversation = ConversationRpc::new(conversations.clone(), turns, ids.clone());
    let scene_runner = SceneRunner::new(parts, settings.max_scenes, Arc::clone(&clock), ids);
    let publishers = Publishers::new(running_scenes.clone(), conversations.clone(), runs.clone());
    let scenes = Scenes::open(SceneKind, &settings.scenes_dir, documents.clone()).await?;
    let projects = Projects::open(ProjectKind, Path::new(""), documents).await?;
    let project_parts = ProjectParts {
        profiles: profiles.clone(),
        scenes: scenes.clone(),
        knowledge: knowledge.own.clone(),
    };
    let surroundings = Surroundings {
        peers: peers.clone(),
        models: models.clone(),
        default_model: settings.default_model,
        profiles: profiles.clone(),
        knowledge: knowledge.clone(),
    };
    let scene = SceneRpc::new(
        scenes,
        surroundings.clone(),
        scene_runner.clone(),
        conversations.clone(),
        publishers.clone(),
        runs.clone(),
        clock,
    );
    Ok(AgentRuntime {
        home,
        project: ProjectRpc::new(projects, project_parts, scene.clone()),
        runs,
        runner,
        scene,
        scene_runner,
        store,
        retention: settings.retention,
        neighbours: peers.neighbours.clone(),
        idle_conversations,
        tenants,
        a2a: A2aRpc::new(agent.clone(), peers.clone(), settings.a2a_url),
        agent,
        profile: ProfileRpc::new(profiles.clone(), running_scenes.clone(), surroundings),
        knowledge: KnowledgeRpc::new(knowledge, profiles, states.clone()),
        conversation,
        model: ModelRpc::new(models, peers.hooks),
        state: StateRpc::new(states, publishers),
        _following: following,
    })
}

/// Indexes the words of knowledge whose rows were copied to a home.
///
/// # Errors
/// [`Error`] when the database cannot be used.
pub async fn index_knowledge(home: &DataHome) -> Result<(), Error> {
    let database = home.tables(DATA.file, DATA.in_file).await?;
    AgentStore::new(database.clone()).index_knowledge().await?;
    database.close().await;
    Ok(())
}

/// A task that ends with the last clone of the service.
type Following = Arc<AbortOnDropHandle<()>>;

fn until_dropped(work: impl Future<Output = ()> + Send + 'static) -> Following {
    Arc::new(AbortOnDropHandle::new(tokio::spawn(work)))
}

/// The stores and clients that the other parts use.
struct Base {
    home: DataHome,
    runs: Runs,
    store: AgentStore,
    models: Models,
    profiles: Profiles,
    documents: DocumentParts,
    knowledge: KnowledgeBases,
    conversations: Conversations,
    states: States,
    running_scenes: RunningScenes,
    peers: Peers,
    clock: Arc<dyn Clock>,
}

impl Base {
    /// Opens the stores.
    async fn open(
        home: DataHome,
        settings: &AgentSettings,
        peers: Peers,
        environment: &Environment,
    ) -> Result<Self, Error> {
        let logs = home.log(LOG).await?;
        let (clock, ids) = (Arc::clone(&environment.clock), Arc::clone(&environment.ids));
        let runs = Runs::new(logs, RunOwner::Agent, Arc::clone(&clock), ids);
        runs.pause_below(peers.workflow.clone());
        let models = Models::build(
            &settings.models,
            &settings.scripts_dir,
            &environment.variables,
            runs.tenants(),
        )?;
        let database = home.tables(DATA.file, DATA.in_file).await?;
        let documents = DocumentParts {
            store: Arc::new(StoredDocuments::new(database.clone())),
            runs: Some(runs.clone()),
            clock: Arc::clone(&clock),
        };
        let store = AgentStore::new(database);
        let deleting = store.clone();
        runs.before_deletion(move |run| {
            let (store, tenant, run) = (deleting.clone(), run.owner.tenant(), run.id);
            Box::pin(async move {
                match run.owner() {
                    RunOwner::Scene => store.delete_world(tenant, &run.to_string()).await,
                    _ => Ok(()),
                }
                .map_err(|error| store_failure(&error))
            })
        });
        let agents_dir = settings.agents_dir.as_path();
        let profiles = Profiles::open(ProfileKind, agents_dir, documents.clone()).await?;
        let kept = Arc::new(store.clone());
        let (runs_of, clock_of) = (runs.clone(), Arc::clone(&clock));
        let conversations =
            Conversations::new(kept.clone(), kept.clone(), kept.clone(), runs_of, clock_of);
        let owners = conversations.find_owners().await;
        owners.map_err(|failure| Error::Owners(Box::new(failure.into_status())))?;
        let knowledge_dir = settings.knowledge_dir.clone();
        let (clock_of, ids) = (Arc::clone(&clock), Arc::clone(&environment.ids));
        let own = Knowledge::open(knowledge_dir, kept.clone(), clock_of, ids).await?;
        let of_backend =
            KnowledgeOverride::new(peers.hooks.overrides(), Arc::clone(&environment.ids));
        let knowledge = KnowledgeBases { own, of_backend };
        let running_scenes = RunningScenes::default();
        let states = States::new(
            kept,
            profiles.clone(),
            knowledge.clone(),
            conversations.clone(),
            running_scenes.clone(),
            Arc::clone(&clock),
        );
        Ok(Self {
            home,
            runs,
            store,
            models,
            profiles,
            documents,
            knowledge,
            conversations,
            states,
            running_scenes,
            peers,
            clock,
        })
    }

    /// Reads files of documents again when they change, if that is enabled.
    fn follow_files(&self, is_asked_for: bool) -> Vec<Following> {
        if !is_asked_for {
            return Vec::new();
        }
        let (profiles, knowledge) = (self.profiles.clone(), self.knowledge.own.clone());
        vec![
            until_dropped(async move { profiles.follow_files().await }),
            until_dropped(async move { knowledge.follow_files().await }),
        ]
    }

    fn runner(&self, questions: Questions, settings: &AgentSettings) -> Runner {
        let parts = RunnerParts {
            runs: self.runs.clone(),
            conversations: self.conversations.clone(),
            states: self.states.clone(),
            questions,
            models: self.models.clone(),
            peers: self.peers.clone(),
            clock: Arc::clone(&self.clock),
        };
        Runner::new(parts, settings)
    }

    fn turns(&self, runner: Runner, settings: &AgentSettings) -> Turns {
        Turns::new(
            self.runs.clone(),
            runner,
            self.conversations.clone(),
            self.profiles.clone(),
            self.models.clone(),
            self.running_scenes.clone(),
            settings,
        )
    }

    fn scene_parts(&self, turns: Turns) -> SceneParts {
        SceneParts {
            runs: self.runs.clone(),
            turns,
            states: self.states.clone(),
            conversations: self.conversations.clone(),
            profiles: self.profiles.clone(),
            peers: self.peers.clone(),
            running_scenes: self.running_scenes.clone(),
        }
    }

    fn idle_conversations(&self, age: Duration) -> Arc<IdleConversations> {
        let (conversations, store) = (self.conversations.clone(), self.store.clone());
        Arc::new(IdleConversations::new(conversations, store, age))
    }

    fn tenants(&self) -> AgentTenants {
        AgentTenants {
            runs: self.runs.clone(),
            store: self.store.clone(),
            documents: Arc::clone(&self.documents.store),
            knowledge: self.knowledge.own.clone(),
        }
    }

    fn answers(&self, turns: Turns) -> Answers {
        Answers {
            store: Arc::new(self.store.clone()),
            runs: self.runs.clone(),
            peers: self.peers.clone(),
            running_scenes: self.running_scenes.clone(),
            turns,
        }
    }
}

impl AgentRuntime {
    /// Returns the services of a server without the gateway.
    pub fn services(&self) -> Services {
        let (tenants, data) = (self.runs.tenants().clone(), Arc::clone(&self.tenants));
        self.services_beside_gateway()
            .add(self.runs.service())
            .add(TenantSync::service(tenants, data))
    }

    /// Returns the services of a server with the gateway, whose run service covers these runs; tenants arrive in memory.
    pub fn services_beside_gateway(&self) -> Services {
        Services::new()
            .add(AgentServiceServer::new(self.agent.clone()))
            .add(A2aServiceServer::new(self.a2a.clone()))
            .method_timeout(LONG_METHOD, LONGEST)
            .add(ProfileServiceServer::new(self.profile.clone()))
            .add(KnowledgeServiceServer::new(self.knowledge.clone()))
            .add(ConversationServiceServer::new(self.conversation.clone()))
            .add(ModelServiceServer::new(self.model.clone()))
            .add(StateServiceServer::new(self.state.clone()))
            .add(SceneServiceServer::new(self.scene.clone()))
            .add(ProjectServiceServer::new(self.project.clone()))
    }

    /// Continues the turns and scenes of the process before this one.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn recover(&self) -> Result<(), Failure> {
        let resume = {
            let (runs, scenes, turns) = (&self.runs, &self.scene_runner, &self.runner);
            let (runs, scenes, turns) = (runs.clone(), scenes.clone(), turns.clone());
            move || resume_open(runs.clone(), scenes.clone(), turns.clone())
        };
        resume().await?;
        self.runs.resume_left_open(resume);
        let (neighbours, beside) = (self.neighbours.clone(), self.idle_conversations.clone());
        self.runs
            .retain(LOG.file, self.retention, neighbours, beside);
        Ok(())
    }

    /// Returns the home of the tables and logs.
    pub fn home(&self) -> &DataHome {
        &self.home
    }

    /// Ends all tasks. Turns continue at the next start.
    pub async fn shutdown(&self) {
        self.runs.shutdown().await;
        self.store.close().await;
    }
}

/// Continues the turns and scenes that are open.
async fn resume_open(runs: Runs, scenes: SceneRunner, turns: Runner) -> Result<(), Failure> {
    for open in runs.open_runs().await? {
        match open.kind == SCENE {
            true => scenes.resume(open).await,
            false => turns.resume(open),
        }
    }
    Ok(())
}
