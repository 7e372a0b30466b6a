//! Starting turns, for callers and for the agents of scenes.

use std::sync::Arc;

use call_text::Dialect;
use contracts::tavern::common::v1::{Run, RunOptions};
use core_types::RequestId;
use grpc_kit::Failure;
use run_events::{Runs, StartRun, Started};

use crate::{
    conversations::Conversations,
    domain::{
        budgets::{Budgets, Limits},
        plan::{Opening, Plan, SceneTurn, TurnInput},
        profile::{Profile, TavernSection},
    },
    error::{no_such_model, run_lost},
    provider::Models,
    runner::{Runner, TURN},
    running_scenes::RunningScenes,
    settings::AgentSettings,
    store::StateOwner,
    turn_log::journal::message_given,
};

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
    models: Models,
    running_scenes: RunningScenes,
    budgets: Budgets,
    default_model: String,
}

/// A turn to start.
#[derive(Debug)]
pub struct NewTurn {
    /// The agent.
    pub profile: Arc<Profile>,
    /// What the turn begins with.
    pub input: TurnInput,
    /// The conversation.
    pub conversation_id: String,
    /// Whether the conversation is dropped when the turn ends.
    pub ephemeral: bool,
    /// What the caller says about budgets.
    pub budgets: Limits,
    /// The dialect of a text that the caller gives.
    pub dialect: Option<Dialect>,
    /// The caller's name for the request; empty if it is never repeated.
    pub request_id: String,
    /// The scope in which request ids count.
    pub scope: &'static str,
    /// The digest of the request.
    pub body_hash: run_log::Hash,
    /// Durability and time.
    pub options: Option<RunOptions>,
    /// Its place in a scene, for a turn that a scene starts.
    pub scene: Option<SceneTurn>,
}

impl Turns {
    /// Takes what turns are started with.
    pub fn new(
        runs: Runs,
        runner: Runner,
        conversations: Conversations,
        models: Models,
        running_scenes: RunningScenes,
        settings: &AgentSettings,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                runs,
                runner,
                conversations,
                models,
                running_scenes,
                budgets: settings.budgets,
                default_model: settings.default_model.clone(),
            }),
        }
    }

    /// Returns what carries turns out.
    pub fn runner(&self) -> &Runner {
        &self.inner.runner
    }

    /// Starts a turn, or finds the one that the same request started. Returns its run, and whether the
    /// request was seen before.
    ///
    /// # Errors
    /// CONVERSATION_BUSY, MODEL_NOT_FOUND, OVERLOADED, REQUEST_ID_REUSED, or a storage that does not work.
    pub async fn start(&self, mut turn: NewTurn) -> Result<(Run, bool), Failure> {
        let inner = &self.inner;
        let instance = inner.running_scenes.instance(&turn.conversation_id);
        let settings = match &instance {
            None => turn.profile.tavern.clone(),
            Some(known) if known.instance.profile_id == turn.profile.id.as_str() => {
                if turn.scene.is_none() {
                    turn.scene = Some(known.turn(Vec::new()));
                }
                known.instance.tavern.over(&turn.profile.tavern)
            }
            Some(known) => {
                let owner = &known.instance.profile_id;
                let problem = format!("the conversation is that of `{owner}` in a scene");
                return Err(Failure::invalid_fields().violation("profile_id", problem));
            }
        };
        let plan = inner.plan(&turn, &settings);
        inner.check_model(&plan)?;
        let conversation_id = turn.conversation_id.as_str();
        let _one_at_a_time = inner.conversations.lock(conversation_id).await;
        if !inner.is_known(turn.scope, &turn.request_id).await? {
            inner.conversations.refuse_if_busy(conversation_id).await?;
        }
        let room = inner.runner.admit()?;
        if !turn.ephemeral {
            inner.conversations.begin(conversation_id).await?;
            if let Some(first) = &turn.profile.first_state {
                let owner = StateOwner::agent(conversation_id, turn.profile.id.as_str());
                inner.runner.states().begin(&owner, first).await?;
            }
        }
        let input = turn.input;
        let start = StartRun {
            kind: TURN,
            owner: None,
            subject: turn.profile.id.to_string(),
            conversation_id: turn.conversation_id,
            request_id: turn.request_id,
            scope: turn.scope,
            body_hash: turn.body_hash,
            input_json: input.opening.to_json(),
            input_is_model_text: matches!(input.opening, Opening::ModelText { .. }),
            options: turn.options,
            can_wait: true,
            concurrency_key: String::new(),
            priority: 0,
            deadline_cap: None,
            owner_data: serde_json::to_value(&plan).expect("a plan has only text keys"),
            first_events: input.history.iter().map(message_given).collect(),
            path: None,
        };
        match inner.runs.start(start).await? {
            Started::Replayed(run) => Ok((run, true)),
            Started::New(recorder, meta) => {
                let run_id = recorder.run_id().to_string();
                let run = inner.runs.get(&run_id).await;
                let run = run.map_err(|_| run_lost(&run_id))?;
                inner.runner.start(recorder, meta, plan, &input, room);
                Ok((run, false))
            }
        }
    }
}

impl Inner {
    /// Puts down what the turn needs to be resumed.
    fn plan(&self, turn: &NewTurn, settings: &TavernSection) -> Plan {
        let go_on = match &turn.input.opening {
            Opening::UserMessage(_) | Opening::Events(_) => true,
            Opening::ModelText { go_on, .. } => *go_on,
        };
        let default_model = Some(&self.default_model).filter(|name| !name.is_empty());
        let prompt = settings.system_prompt.clone();
        Plan {
            budgets: Budgets::settled(&self.budgets, &settings.budgets, &turn.budgets),
            go_on,
            ephemeral: turn.ephemeral,
            model: settings.model.as_ref().or(default_model).cloned(),
            fallbacks: settings.fallbacks.clone(),
            deliberation: turn.profile.deliberation.clone(),
            inventory: turn.profile.inventory(),
            system_prompt: prompt.unwrap_or_else(|| turn.profile.system_prompt()),
            opening_dialect: turn.dialect,
            dialect: settings.dialect,
            language: settings.language.unwrap_or_default(),
            tools: settings.tools.unwrap_or_default(),
            temperature: settings.temperature,
            max_output_tokens: settings.max_output_tokens,
            stop_at_unknown_tool: settings.stop_at_unknown_tool.unwrap_or(true),
            compaction: settings.compaction.unwrap_or_default(),
            interaction: settings.interaction.unwrap_or_default(),
            scene: turn.scene.clone(),
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
                Err(unknown) => Err(no_such_model(Some(unknown))),
            },
            None => Err(no_such_model(None)),
        }
    }

    async fn is_known(&self, scope: &str, request_id: &str) -> Result<bool, Failure> {
        let Ok(request_id) = RequestId::new(request_id) else {
            return Ok(false);
        };
        Ok(self.runs.by_request(scope, &request_id).await?.is_some())
    }
}
