//! The world states of scenes (rules G305 and G306).

use agent_domain::{
    scene::{Instance, Scene},
    state::{MAX_WORLD_BYTES, Operation},
};
use agent_store::store::{StateOwner, StateRow};
use contracts::tavern::{
    agent::v1::{
        GetWorldStateRequest, GetWorldStateResponse, UpdateWorldStateRequest,
        UpdateWorldStateResponse, get_world_state_request::Scene as Read,
        update_world_state_request::Scene as Written,
    },
    common::v1::ErrorReason,
};
use core_types::Tenant;
use grpc_kit::{CallContext, Failure};
use run_events::{request_hash, timestamp_to_proto};
use tonic::Code;

use super::{
    operations::{operations, path, paths},
    publishers::{Publishers, unnamed},
};
use crate::{
    runner::scenes::not_running,
    running_scenes::{Change, Request},
    states::{States, Update, refused},
};

/// Reads and changes world states.
#[derive(Clone, Debug)]
pub(super) struct Worlds {
    states: States,
    publishers: Publishers,
}

impl Worlds {
    pub(super) fn new(states: States, publishers: Publishers) -> Self {
        Self { states, publishers }
    }

    pub(super) async fn get(
        &self,
        context: &CallContext,
        request: GetWorldStateRequest,
    ) -> Result<GetWorldStateResponse, Failure> {
        let path = match request.path.as_str() {
            "" => None,
            written => Some(path("path", written)?),
        };
        let publishers = &self.publishers;
        let seen = match &request.scene {
            Some(Read::RunId(run_id)) => {
                let seen = publishers.sees_run(context, run_id).await?;
                seen.then(|| run_id.clone())
            }
            Some(Read::ConversationId(id)) => publishers.world_of(context, id).await?,
            None => return Err(unnamed()),
        };
        let version = (request.version > 0).then_some(request.version);
        // Nothing has the empty key: a world that the call cannot see takes the same look-up.
        let key = seen.unwrap_or_default();
        let world = StateOwner::world(context.tenant(), &key);
        let world = self.states.snapshot(world, version).await?;
        let world = world.ok_or_else(|| {
            not_running(
                "the run or the conversation belongs to no scene, or the version is no longer kept",
            )
        })?;
        let value = match path {
            None => &world.value,
            Some(path) => path.get(&world.value).map_err(|error| refused(&error))?,
        };
        Ok(GetWorldStateResponse {
            version: world.row.version,
            value_json: value.to_string(),
            create_time: Some(timestamp_to_proto(world.row.created)),
        })
    }

    pub(super) async fn update(
        &self,
        context: &CallContext,
        request: UpdateWorldStateRequest,
    ) -> Result<UpdateWorldStateResponse, Failure> {
        let hash = request_hash(context, &request);
        let operations = operations(&request.request_id, &request.operations)?;
        let update = Update {
            request: (!request.request_id.is_empty()).then_some((request.request_id, hash)),
            expected_version: request.expected_version,
            operations,
        };
        if let Some(Written::ConversationId(id)) = &request.scene
            && let Some(fork) = self.publishers.fork_in_scene(context, id).await?
        {
            let instance = Some(&fork.instance);
            let world = StateOwner::world(context.tenant(), &fork.world);
            let changed = self.change(&world, &fork.scene, instance, update);
            return changed.await.map(written);
        }
        let publisher = match &request.scene {
            Some(Written::RunId(run_id)) => {
                let name = context.principal().recorded().to_owned();
                self.publishers.caller(context, run_id, name)?
            }
            Some(Written::ConversationId(id)) => self.publishers.agent(context, id).await?,
            None => return Err(unnamed()),
        };
        let (running, instance) = (publisher.running, publisher.instance.as_ref());
        let world = StateOwner::world(context.tenant(), &running.run_id);
        let changed = self.change(&world, &running.scene, instance, update);
        let changed = changed.await?;
        // A scene that ends at this moment has no more agents to inform.
        let change = Change {
            by: publisher.source,
            chain: publisher.chain,
        };
        running.ask(Request::WorldChanged(change)).await;
        Ok(written(changed))
    }

    /// Changes a world state, for an agent of the scene or for a caller.
    async fn change(
        &self,
        world: &StateOwner,
        scene: &Scene,
        instance: Option<&Instance>,
        update: Update,
    ) -> Result<(StateRow, bool), Failure> {
        if let Some(instance) = instance {
            self.check_allowed(world.tenant, instance, &update.operations)
                .await?;
        }
        let schema = scene.world_schema.as_ref();
        let states = &self.states;
        states
            .update_within(world, update, schema, MAX_WORLD_BYTES)
            .await
    }

    /// Rejects changes that the profile of an agent does not allow.
    async fn check_allowed(
        &self,
        tenant: Tenant,
        instance: &Instance,
        operations: &[Operation],
    ) -> Result<(), Failure> {
        let settings = self.states.settings_of(tenant, instance).await?;
        let Some(patterns) = settings.world_write else {
            return Ok(());
        };
        let changed = operations.iter().filter_map(Operation::changes);
        let mut denied = changed
            .filter(|path| !patterns.iter().any(|pattern| path.is_within(pattern)))
            .map(ToString::to_string)
            .peekable();
        if denied.peek().is_none() {
            return Ok(());
        }
        let denied: Vec<String> = denied.collect();
        let message = format!(
            "this agent may not change {}; it may change {}",
            denied.join(", "),
            patterns.join(", ")
        );
        let reason = ErrorReason::WorldWriteDenied;
        Err(Failure::new(Code::PermissionDenied, reason, message))
    }
}

fn written((row, replayed): (StateRow, bool)) -> UpdateWorldStateResponse {
    UpdateWorldStateResponse {
        version: row.version,
        changed_paths: paths(&row),
        previous_json: row.previous.unwrap_or_default(),
        replayed,
    }
}
