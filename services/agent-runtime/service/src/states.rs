//! The private states of agents, one for each agent of a conversation, and the world states of scenes
//! (rules G106, G110, G301 to G305).

use std::sync::Arc;

use agent_domain::{
    goals,
    knowledge::GoalReference,
    profile::{Profile, TavernSection},
    scene::Instance,
    state::{self, MAX_PRIVATE_BYTES, Operation, StateError},
};
use agent_store::{
    conversations::{self, Conversations},
    profiles::{Profiles, of_instance},
    store::{NamedRequest, StateOwner, StateRow, StateStore},
};
use contracts::tavern::common::v1::ErrorReason;
use core_types::{Clock, Tenant, Timestamp};
use documents::{Seen, change::request_id_reused};
use grpc_kit::{CallContext, Failure};
use json_schema::Schema;
use run_log::Hash;
use serde_json::Value;
use tonic::Code;

use crate::{
    error::store_failure, knowledge_override::KnowledgeBases, running_scenes::RunningScenes,
};

/// The states. Clone, cheap.
#[derive(Clone, Debug)]
pub struct States {
    store: Arc<dyn StateStore>,
    profiles: Profiles,
    knowledge: KnowledgeBases,
    conversations: Conversations,
    running_scenes: RunningScenes,
    clock: Arc<dyn Clock>,
}

/// A state at one version.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The owner.
    pub owner: StateOwner,
    /// The state.
    pub value: Value,
    /// The stored row of the version.
    pub row: StateRow,
}

/// A change of a state.
#[derive(Clone, Debug)]
pub struct Update {
    /// The caller's name for it and its digest; none if it is never repeated.
    pub request: Option<(String, Hash)>,
    /// The version that the caller has read; zero for any.
    pub expected_version: u64,
    /// The changes.
    pub operations: Vec<Operation>,
}

impl States {
    /// Uses the stores of states.
    pub fn new(
        store: Arc<dyn StateStore>,
        profiles: Profiles,
        knowledge: KnowledgeBases,
        conversations: Conversations,
        running_scenes: RunningScenes,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            profiles,
            knowledge,
            conversations,
            running_scenes,
            clock,
        }
    }

    /// Begins a state, unless it has begun.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn begin(&self, owner: &StateOwner, first: &Value) -> Result<(), Failure> {
        if self.stored(owner, None).await?.is_none() {
            let row = self.row(1, first, Vec::new(), None, String::new());
            self.put(owner, &row, None).await?;
        }
        Ok(())
    }

    /// Begins the goals of an agent, unless they have begun or there are none (rule G106). Their
    /// descriptions are read once, now.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn begin_goals(
        &self,
        tenant: Tenant,
        conversation_id: &str,
        profile: &Profile,
        of_scene: &[GoalReference],
    ) -> Result<(), Failure> {
        let given = goals::given(&profile.goals, of_scene);
        let owner = StateOwner::goals(tenant, conversation_id, profile.id.as_str());
        if given.is_empty() || self.stored(&owner, None).await?.is_some() {
            return Ok(());
        }
        let mut found = Vec::new();
        for goal in given {
            let context = CallContext::of_tenant(tenant);
            let KnowledgeBases { own, of_backend } = &self.knowledge;
            let text = match of_backend
                .goal_text(&context, profile, &goal.reference)
                .await?
            {
                Some(text) => text,
                None => {
                    let own = own.goal_text(tenant, profile, &goal.reference);
                    own.await?
                }
            };
            found.push((goal, text));
        }
        self.begin(&owner, &goals::first(&found)).await
    }

    /// Adds or changes a goal. Returns the version of the change, and whether the request was seen
    /// before.
    ///
    /// # Errors
    /// The reason for which nothing is changed.
    pub async fn update_goal(
        &self,
        agent: &StateOwner,
        update: Update,
    ) -> Result<(StateRow, bool), Failure> {
        let owner = StateOwner::goals(agent.tenant, &agent.conversation_id, &agent.profile_id);
        let schema = goals::schema();
        let changed = self.change(&owner, update, Some(&schema), MAX_PRIVATE_BYTES);
        changed.await?.map_err(|error| goal_refused(&error))
    }

    /// Returns a state at a version, the newest by default; none if the state does not exist.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn snapshot(
        &self,
        owner: StateOwner,
        version: Option<u64>,
    ) -> Result<Option<Snapshot>, Failure> {
        let row = self.stored(&owner, version).await?;
        row.map(|row| snapshot(owner, row)).transpose()
    }

    /// Begins a state as a copy of another at a time, with its versions that were shown.
    ///
    /// # Errors
    /// STATE_LOST, or a storage that does not work.
    pub async fn copy(
        &self,
        from: &StateOwner,
        to: &StateOwner,
        time: Timestamp,
        shown: &[u64],
    ) -> Result<(), Failure> {
        let then = self.store.state_at(from, time).await;
        let Some(then) = then.map_err(|error| store_failure(&error))? else {
            // A state that began later still has its first version.
            let is_kept = self.stored(from, Some(1)).await?.is_some();
            return match is_kept || self.stored(from, None).await?.is_none() {
                true => Ok(()),
                false => Err(state_lost()),
            };
        };
        for version in shown.iter().filter(|version| **version < then.version) {
            if let Some(row) = self.stored(from, Some(*version)).await? {
                self.put(to, &copied(row), None).await?;
            }
        }
        self.put(to, &copied(then), None).await
    }

    /// Returns the owner of the state in a request: the agent whose turn continues, or had the
    /// newest one, if the request names none.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND, or a storage that does not work.
    pub async fn owner(
        &self,
        context: &CallContext,
        conversation_id: &str,
        profile_id: &str,
    ) -> Result<StateOwner, Failure> {
        let tenant = context.tenant();
        let row = self.conversations.seen(context, conversation_id).await?;
        row.ok_or_else(|| no_state(conversation_id))?;
        let profile_id = match profile_id {
            "" => {
                let runs = self.conversations.turns(tenant, conversation_id).await?;
                let present = conversations::present(runs);
                // The changes of an ephemeral turn could never be read again.
                let lasting = present.filter(|(_, meta)| meta.data["ephemeral"] != true);
                let (_, meta) = lasting.ok_or_else(|| no_state(conversation_id))?;
                meta.subject
            }
            given => given.to_owned(),
        };
        Ok(StateOwner::agent(tenant, conversation_id, &profile_id))
    }

    /// Returns a state, at its newest version by default.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND, or a storage that does not work.
    pub async fn get(&self, owner: &StateOwner, version: Option<u64>) -> Result<Snapshot, Failure> {
        let row = self.stored(owner, version).await?;
        let row = row.ok_or_else(|| no_state(&owner.conversation_id))?;
        snapshot(owner.clone(), row)
    }

    /// Returns the settings of an agent of a tenant's scene.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn settings_of(
        &self,
        tenant: Tenant,
        instance: &Instance,
    ) -> Result<TavernSection, Failure> {
        let known = self.profiles.get(tenant, &instance.profile_id);
        let known = known.await.map_err(|error| store_failure(&error))?;
        Ok(match known {
            Some(known) => instance.tavern.over(&known.document.tavern),
            None => instance.tavern.clone(),
        })
    }

    /// Returns at most `limit` versions below `before`, the newest first.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn versions(
        &self,
        owner: &StateOwner,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<StateRow>, Failure> {
        let versions = self.store.state_versions(owner, before, limit).await;
        versions.map_err(|error| store_failure(&error))
    }

    /// Returns the versions after a given one, the newest first, as far as they are kept.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn versions_after(
        &self,
        owner: &StateOwner,
        version: u64,
    ) -> Result<Vec<StateRow>, Failure> {
        // Each row holds the whole state, so no more are read than exist.
        let newest = self.versions(owner, None, 1).await?;
        let count = newest
            .first()
            .map_or(0, |row| row.version.saturating_sub(version));
        match usize::try_from(count).unwrap_or(usize::MAX) {
            0 => Ok(Vec::new()),
            1 => Ok(newest),
            more => self.versions(owner, None, more).await,
        }
    }

    /// Changes the private state of an agent. Returns the version of the change, and whether the
    /// request was seen before.
    ///
    /// # Errors
    /// The reason for which nothing is changed.
    pub async fn update(
        &self,
        owner: &StateOwner,
        update: Update,
    ) -> Result<(StateRow, bool), Failure> {
        let (tenant, context) = (owner.tenant, CallContext::of_tenant(owner.tenant));
        let scenes = &self.running_scenes;
        let instance = scenes.instance(&context, &owner.conversation_id);
        let instance = instance.filter(|known| known.instance.profile_id == owner.profile_id);
        let profile = match instance {
            // It may use an earlier revision.
            Some(known) => of_instance(&self.profiles, tenant, &known.instance).await,
            None => self.profiles.get(tenant, &owner.profile_id).await,
        };
        let profile = profile.map_err(|error| store_failure(&error))?;
        let schema = profile.and_then(|known| known.document.state_schema.clone());
        self.update_within(owner, update, schema.as_ref(), MAX_PRIVATE_BYTES)
            .await
    }

    /// Changes a state that has a schema and at most `most` bytes. Returns the version of the
    /// change, and whether the request was seen before.
    ///
    /// # Errors
    /// The reason for which nothing is changed.
    pub async fn update_within(
        &self,
        owner: &StateOwner,
        update: Update,
        schema: Option<&Value>,
        most: usize,
    ) -> Result<(StateRow, bool), Failure> {
        let changed = self.change(owner, update, schema, most);
        changed.await?.map_err(|error| refused(&error))
    }

    async fn change(
        &self,
        owner: &StateOwner,
        update: Update,
        schema: Option<&Value>,
        most: usize,
    ) -> Result<Result<(StateRow, bool), StateError>, Failure> {
        let conversations = &self.conversations;
        let one_at_a_time = conversations.lock(owner.tenant, &owner.conversation_id);
        let _one_at_a_time = one_at_a_time.await;
        let named = update.request.as_ref();
        let named = named.map(|(request_id, body)| owner.named(request_id, *body));
        if let Some(named) = &named {
            let seen = self.store.seen(owner.tenant, owner.request(named)).await;
            let made = match seen.map_err(|error| store_failure(&error))? {
                Seen::New => None,
                Seen::Same(version) => self.stored(owner, version.parse().ok()).await?,
                Seen::OtherBody => {
                    let request_id = update.request.as_ref().map_or("", |(id, _)| id);
                    return Err(request_id_reused(request_id));
                }
            };
            // A version that is no longer kept is so old that the request is a new one.
            if let Some(made) = made {
                return Ok(Ok((made, true)));
            }
        }
        // An agent without declared values begins with its first change.
        let (version, value) = match self.stored(owner, None).await? {
            Some(row) => (row.version, snapshot(owner.clone(), row)?.value),
            None => (0, Value::Object(serde_json::Map::new())),
        };
        if update.expected_version > 0 && update.expected_version != version {
            let message = format!("the state has version {version}; read it again and repeat");
            let reason = ErrorReason::StateVersionMismatch;
            let failure = Failure::new(Code::Aborted, reason, message);
            return Err(failure.metadata("version", version.to_string()));
        }
        let schema = compiled(schema)?;
        let changed = match state::change(&value, &update.operations, schema.as_ref(), most) {
            Ok(changed) => changed,
            Err(error) => return Ok(Err(error)),
        };
        let request_id = update.request.map_or_else(String::new, |(id, _)| id);
        let row = self.row(
            version + 1,
            &changed.state,
            changed.paths,
            changed.previous,
            request_id,
        );
        self.put(owner, &row, named.as_ref()).await?;
        Ok(Ok((row, false)))
    }

    fn row(
        &self,
        version: u64,
        state: &Value,
        paths: Vec<String>,
        previous: Option<Value>,
        request_id: String,
    ) -> StateRow {
        StateRow {
            version,
            created: self.clock.now(),
            state: state.to_string(),
            paths: Value::from(paths).to_string(),
            previous: previous.map(|value| value.to_string()),
            request_id,
        }
    }

    async fn stored(
        &self,
        owner: &StateOwner,
        version: Option<u64>,
    ) -> Result<Option<StateRow>, Failure> {
        let row = self.store.state(owner, version).await;
        row.map_err(|error| store_failure(&error))
    }

    async fn put(
        &self,
        owner: &StateOwner,
        row: &StateRow,
        request: Option<&NamedRequest>,
    ) -> Result<(), Failure> {
        let stored = self.store.put_state(owner, row, request).await;
        stored.map(drop).map_err(|error| store_failure(&error))
    }
}

/// Makes the version of a copy, which has no request.
fn copied(row: StateRow) -> StateRow {
    StateRow {
        request_id: String::new(),
        ..row
    }
}

fn state_lost() -> Failure {
    let message = "a state is no longer kept as it was at the event; fork at a later one";
    Failure::new(Code::FailedPrecondition, ErrorReason::StateLost, message)
}

fn compiled(schema: Option<&Value>) -> Result<Option<Schema>, Failure> {
    schema.map(Schema::compile).transpose().map_err(|error| {
        let message = format!("the schema of the state cannot be used: {error}");
        Failure::new(Code::FailedPrecondition, ErrorReason::StateInvalid, message)
    })
}

fn snapshot(owner: StateOwner, row: StateRow) -> Result<Snapshot, Failure> {
    let value = serde_json::from_str(&row.state).map_err(|_| {
        let message = "stored data is damaged; the server's log names the place";
        tracing::error!(conversation = owner.conversation_id, "a state is damaged");
        Failure::new(Code::DataLoss, ErrorReason::DataCorrupt, message)
    })?;
    Ok(Snapshot { owner, value, row })
}

fn no_state(conversation_id: &str) -> Failure {
    let message =
        "the agent has no private state in this conversation; it begins with the first turn";
    Failure::new(Code::NotFound, ErrorReason::ConversationNotFound, message)
        .metadata("conversation_id", conversation_id)
}

/// Reports an invalid goal, by the fields of `UpdateGoalRequest`.
fn goal_refused(error: &StateError) -> Failure {
    let StateError::BreaksSchema(violations) = error else {
        return refused(error);
    };
    let message = "the goal is not valid";
    let failure = Failure::new(Code::InvalidArgument, ErrorReason::StateInvalid, message);
    violations.iter().fold(failure, |failure, found| {
        match found.pointer.ends_with("/description") {
            true => failure.violation("description", "is required for a new goal"),
            false => failure.violation("goal_id", &found.message),
        }
    })
}

/// Reports an invalid change, or a missing path.
pub(crate) fn refused(error: &StateError) -> Failure {
    let message = error.to_string();
    match error {
        StateError::PathNotFound { path, near } => {
            Failure::new(Code::NotFound, ErrorReason::StatePathNotFound, message)
                .metadata("path", path)
                .metadata("near", near.join(","))
        }
        StateError::BreaksSchema(violations) => violations.iter().fold(
            Failure::new(
                Code::InvalidArgument,
                ErrorReason::StateInvalid,
                "the change would break the state's schema",
            ),
            |failure, found| failure.violation(&found.pointer, &found.message),
        ),
        StateError::TestFailed { .. }
        | StateError::WrongKind { .. }
        | StateError::TooLarge { .. }
        | StateError::TooDeep => {
            Failure::new(Code::FailedPrecondition, ErrorReason::StateInvalid, message)
        }
    }
}
