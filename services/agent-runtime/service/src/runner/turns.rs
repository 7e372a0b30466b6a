//! Starting turns, for callers and for the agents of scenes.

mod fork;
mod waits;

use std::sync::Arc;

use agent_domain::{
    budgets::{Budgets, Limits},
    plan::{Opening, Plan, Sampling, SceneTurn, TurnInput, nonce_of},
    profile::{Profile, TavernSection},
    sleep::WakeCause,
};
use agent_store::{
    conversations::Conversations,
    profiles::{KnownProfile, Profiles, of_instance},
    store::StateOwner,
};
use call_catalogue::Dialect;
use contracts::tavern::common::v1::{Run, RunOptions, run_event::Kind};
use core_types::RequestId;
use grpc_kit::{CallContext, Failure};
use model_client::Models;
use plugin_client::Point;
use run_events::{Runs, StartRun, Started, to_its_end};

use crate::{
    error::{no_such_model, no_such_profile, run_lost, store_failure},
    runner::{Runner, TURN, hooked::before_turn},
    running_scenes::{RunningScenes, SceneInstance},
    settings::AgentSettings,
};
use turn_log::journal::message_given;

pub use fork::NewFork;

/// Starts turns. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Turns {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runs: Runs,
    runner: Runner,
    conversations: Conversations,
    profiles: Profiles,
    models: Models,
    running_scenes: RunningScenes,
    budgets: Budgets,
    default_model: String,
}

/// A turn that was started, now or before.
#[derive(Debug)]
pub struct StartedTurn {
    /// Its run.
    pub run: Run,
    /// Whether the request was seen before.
    pub replayed: bool,
    /// The revision of the profile that it keeps.
    pub profile_revision: u64,
}

/// A turn to start.
#[derive(Debug)]
pub struct NewTurn {
    /// The agent.
    pub profile_id: String,
    /// The opening of the turn.
    pub input: TurnInput,
    /// The conversation.
    pub conversation_id: String,
    /// Whether the conversation is dropped when the turn ends.
    pub ephemeral: bool,
    /// The caller's budgets.
    pub budgets: Limits,
    /// The grant of an agent that called this one.
    pub granted: Limits,
    /// The caller's settings for the answers of the model.
    pub sampling: Sampling,
    /// The dialect of a text from the caller.
    pub dialect: Option<Dialect>,
    /// The caller's name for the request; empty if it is never repeated.
    pub request_id: String,
    /// The scope of request ids.
    pub scope: &'static str,
    /// The digest of the request.
    pub body_hash: run_log::Hash,
    /// Durability and time.
    pub options: Option<RunOptions>,
    /// Whether the turn is refused while another of the conversation continues.
    pub refuse_if_busy: bool,
    /// Whether it only replaces earlier turns by a summary.
    pub compact: bool,
    /// Its place in a scene, for a turn that a scene starts.
    pub scene: Option<SceneTurn>,
}

impl Turns {
    /// Builds the starter from the runs, the documents and the settings.
    pub fn new(
        runs: Runs,
        runner: Runner,
        conversations: Conversations,
        profiles: Profiles,
        models: Models,
        running_scenes: RunningScenes,
        settings: &AgentSettings,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                runs,
                runner,
                conversations,
                profiles,
                models,
                running_scenes,
                budgets: settings.budgets,
                default_model: settings.default_model.clone(),
            }),
        }
    }

    /// Returns the profiles of agents.
    pub fn profiles(&self) -> &Profiles {
        &self.inner.profiles
    }

    /// Returns the runner of turns.
    pub fn runner(&self) -> &Runner {
        &self.inner.runner
    }

    /// Starts a turn, or finds the turn that the same request started.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND for a conversation that the caller cannot see, INVALID_FIELDS for an id that a client cannot
    /// begin, CONVERSATION_BUSY, PROFILE_NOT_FOUND, MODEL_NOT_FOUND, OVERLOADED, REQUEST_ID_REUSED, or a storage that does
    /// not work.
    pub async fn start(
        &self,
        context: &CallContext,
        turn: NewTurn,
    ) -> Result<StartedTurn, Failure> {
        let (inner, context) = (Arc::clone(&self.inner), context.clone());
        to_its_end(async move { inner.start(&context, turn).await }).await
    }
}

impl Inner {
    async fn start(
        &self,
        context: &CallContext,
        mut turn: NewTurn,
    ) -> Result<StartedTurn, Failure> {
        let inner = self;
        let scenes = &inner.running_scenes;
        let instance = scenes.instance(context, &turn.conversation_id);
        let known = inner
            .profile(context, &turn.profile_id, instance.as_ref())
            .await?;
        let _one_asks_at_a_time = match &instance {
            Some(instance) => inner.refuse_cycle(context, instance).await?,
            None => None,
        };
        if let (Some(instance), None) = (&instance, &turn.scene) {
            instance.wake(WakeCause::Message).await;
        }
        let profile = Arc::clone(&known.document);
        let settings = match &instance {
            None => profile.tavern.clone(),
            Some(known) => {
                if turn.scene.is_none() {
                    turn.scene = Some(known.turn(inner.chain_above(context, known).await?));
                }
                known.instance.tavern.over(&profile.tavern)
            }
        };
        let mut plan = inner.plan(&turn, &known, &settings);
        if let Some(instance) = &instance {
            plan.know_agents(instance.agents());
        }
        inner.check_model(&plan)?;
        let conversation_id = &*turn.conversation_id.clone();
        let tenant = context.tenant();
        let _one_at_a_time = inner.conversations.lock(tenant, conversation_id).await;
        inner.check_conversation(context, &turn).await?;
        let is_queued = inner.queues(context, &turn).await?;
        let hooked = inner.hooked(context, &mut turn).await?;
        let room = inner.runner.admit(tenant).await?;
        if !turn.ephemeral {
            inner.begin(context, conversation_id, &profile).await?;
        }
        let input = turn.input;
        let given = input.history.iter().map(message_given);
        let start = StartRun {
            subject: profile.id.to_string(),
            conversation_id: turn.conversation_id,
            request_id: turn.request_id,
            scope: turn.scope,
            body_hash: turn.body_hash,
            input_json: input.opening.to_json(),
            input_is_model_text: matches!(input.opening, Opening::ModelText { .. }),
            options: turn.options,
            first_events: given.chain(hooked).collect(),
            ..run_of(&plan)
        };
        match inner.runs.start(context, start).await? {
            Started::Replayed(run) => {
                let meta = inner.runs.meta(context, &run.run_id).await?;
                let revision = meta.data["profile_revision"].as_u64();
                Ok(StartedTurn {
                    run,
                    replayed: true,
                    profile_revision: revision.unwrap_or_default(),
                })
            }
            Started::New(recorder, meta) => {
                let run_id = recorder.run_id().to_string();
                if is_queued && let Err(error) = recorder.enqueue().await {
                    // The turn waits all the same, and the storage is tried again.
                    tracing::warn!(run = run_id, %error, "that a turn waits is not recorded");
                }
                let run = inner.runs.get(context, &run_id).await;
                let run = run.map_err(|_| run_lost(&run_id))?;
                let profile_revision = plan.profile_revision;
                inner.runner.start(recorder, meta, plan, &input, room);
                Ok(StartedTurn {
                    run,
                    replayed: false,
                    profile_revision,
                })
            }
        }
    }
}

/// Returns the start of a turn's run, without its input and its request.
pub(super) fn run_of(plan: &Plan) -> StartRun {
    StartRun {
        kind: TURN,
        owner: None,
        subject: String::new(),
        conversation_id: String::new(),
        request_id: String::new(),
        scope: "",
        body_hash: run_log::Hash::of(&[]),
        input_json: String::new(),
        input_is_model_text: false,
        options: None,
        can_wait: true,
        concurrency_key: String::new(),
        priority: 0,
        deadline_cap: None,
        grant: None,
        owner_data: serde_json::to_value(plan).expect("a plan has only text keys"),
        first_events: Vec::new(),
        forks: None,
    }
}

impl Inner {
    /// Returns the profile of a turn: its agent's profile in a scene, or the newest.
    async fn profile(
        &self,
        context: &CallContext,
        id: &str,
        instance: Option<&SceneInstance>,
    ) -> Result<KnownProfile, Failure> {
        let tenant = context.tenant();
        let known = match instance.map(|known| &known.instance) {
            None => self.profiles.get(tenant, id).await,
            Some(instance) if instance.profile_id == id => {
                of_instance(&self.profiles, tenant, instance).await
            }
            Some(instance) => {
                let owner = &instance.profile_id;
                let problem = format!("the conversation is that of `{owner}` in a scene");
                return Err(Failure::invalid_fields().violation("profile_id", problem));
            }
        };
        match known.map_err(|error| store_failure(&error))? {
            Some(known) => Ok(known),
            None => Err(no_such_profile(tenant, id, &self.profiles).await),
        }
    }

    /// Passes the text of a user through the hooks before a turn, unless the turn was started before. Returns their
    /// events.
    async fn hooked(
        &self,
        context: &CallContext,
        turn: &mut NewTurn,
    ) -> Result<Vec<Kind>, Failure> {
        let Opening::UserMessage(text) = &turn.input.opening else {
            return Ok(Vec::new());
        };
        let hooks = self.runner.hooks();
        if !hooks.may_have(Point::TurnBefore)
            || self.is_known(context, turn.scope, &turn.request_id).await?
        {
            return Ok(Vec::new());
        }
        let place = (&*turn.profile_id, &*turn.conversation_id);
        let hooked = before_turn(hooks, context, place, text).await?;
        if let Some(text) = hooked.text {
            turn.input.opening = Opening::UserMessage(text);
        }
        Ok(hooked.applied.into_iter().map(Kind::HookApplied).collect())
    }

    /// Refuses a conversation that the caller cannot see, and a new one that a client cannot begin.
    async fn check_conversation(
        &self,
        context: &CallContext,
        turn: &NewTurn,
    ) -> Result<(), Failure> {
        let (conversations, id) = (&self.conversations, turn.conversation_id.as_str());
        match turn.scene {
            Some(_) => conversations.seen_or_new(context, id).await.map(drop),
            None => conversations.seen_or_begun(context, id).await.map(drop),
        }
    }

    /// Returns whether a turn has to wait for others of its conversation.
    async fn queues(&self, context: &CallContext, turn: &NewTurn) -> Result<bool, Failure> {
        let (conversations, id) = (&self.conversations, turn.conversation_id.as_str());
        match self.is_known(context, turn.scope, &turn.request_id).await? {
            true => Ok(false),
            false if turn.refuse_if_busy => conversations
                .refuse_if_busy(context.tenant(), id)
                .await
                .map(|()| false),
            false => conversations.queues(context, id).await,
        }
    }

    /// Begins a conversation with the state and the goals of its agent, unless they have begun.
    async fn begin(
        &self,
        context: &CallContext,
        conversation_id: &str,
        profile: &Profile,
    ) -> Result<(), Failure> {
        let (owner, tenant) = (context.principal(), context.tenant());
        self.conversations.begin(owner, conversation_id).await?;
        let states = self.runner.states();
        if let Some(first) = &profile.first_state {
            let owner = StateOwner::agent(tenant, conversation_id, profile.id.as_str());
            states.begin(&owner, first).await?;
        }
        let begun = states.begin_goals(tenant, conversation_id, profile, &[]);
        begun.await
    }

    /// Makes the plan from which the turn is resumed.
    fn plan(&self, turn: &NewTurn, known: &KnownProfile, settings: &TavernSection) -> Plan {
        let profile = &known.document;
        let go_on = match &turn.input.opening {
            Opening::UserMessage(_) | Opening::Events(_) => true,
            Opening::ModelText { go_on, .. } => *go_on,
        };
        let default_model = Some(&self.default_model).filter(|name| !name.is_empty());
        let prompt = settings.system_prompt.clone();
        Plan {
            budgets: Budgets::settled(&self.budgets, &settings.budgets, &turn.budgets)
                .within(&turn.granted),
            go_on,
            ephemeral: turn.ephemeral,
            model: settings.model.as_ref().or(default_model).cloned(),
            fallbacks: settings.fallbacks.clone(),
            profile_revision: known.revision_number(),
            deliberation: profile.deliberation.clone(),
            inventory: profile.inventory(),
            approvals: settings.approvals.clone(),
            system_prompt: prompt.unwrap_or_else(|| profile.system_prompt()),
            opening_dialect: turn.dialect,
            dialect: settings.dialect,
            formats: settings.formats.clone(),
            language: settings.language.unwrap_or_default(),
            tools: settings.tools.unwrap_or_default(),
            temperature: turn.sampling.temperature.or(settings.temperature),
            max_output_tokens: turn
                .sampling
                .max_output_tokens_within(settings.max_output_tokens),
            stop_at_unknown_tool: settings.stop_at_unknown_tool.unwrap_or(true),
            begins_in_thought: settings.begins_in_thought,
            compaction: settings.compaction.clone().unwrap_or_default(),
            reduction: settings.reduction.clone().unwrap_or_default(),
            compact: turn.compact,
            interaction: settings.interaction.unwrap_or_default(),
            nonce: settings.nonce.unwrap_or_default().then(|| {
                // The low bits of an id are random.
                let (_, random) = self.runs.ids().next_uuid().as_u64_pair();
                nonce_of(random)
            }),
            scene: turn.scene.clone(),
        }
    }

    fn check_model(&self, plan: &Plan) -> Result<(), Failure> {
        let asks_model = match plan.compact {
            true => plan.compaction.workflow.is_none(),
            false => plan.go_on && plan.deliberation.is_none(),
        };
        if !asks_model {
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
                Err(unknown) => Err(no_such_model(Some(unknown))),
            },
            None => Err(no_such_model(None)),
        }
    }

    async fn is_known(
        &self,
        context: &CallContext,
        scope: &str,
        request_id: &str,
    ) -> Result<bool, Failure> {
        let Ok(request_id) = RequestId::new(request_id) else {
            return Ok(false);
        };
        let found = self.runs.by_request(context, scope, &request_id);
        Ok(found.await?.is_some())
    }
}
