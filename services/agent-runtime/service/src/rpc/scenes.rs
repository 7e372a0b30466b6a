//! SceneService: scenes, and the requests to running ones.

use std::{sync::Arc, time::Duration};

use agent_domain::{
    event::{self, MAX_PAYLOAD_BYTES, Priority},
    scene::conversation::conversation_of,
    sleep::{Sleep, WakeCause},
    subscription::is_pattern,
};
use agent_store::{
    conversations::Conversations,
    scenes::{KnownScene, Scenes},
};
use contracts::tavern::{
    agent::v1::{
        self as proto, DeleteSceneRequest, DeleteSceneResponse, EndSceneRequest, EndSceneResponse,
        GetSceneRequest, GetSceneResponse, GetSceneStatusRequest, GetSceneStatusResponse,
        InstanceState, ListSceneRevisionsRequest, ListSceneRevisionsResponse, ListScenesRequest,
        ListScenesResponse, PublishEventRequest, PublishEventResponse, PutSceneRequest,
        PutSceneResponse, SleepInstanceRequest, SleepInstanceResponse, StartSceneRequest,
        StartSceneResponse, WakeInstanceRequest, WakeInstanceResponse,
        publish_event_request::Scene as Named, scene_service_server::SceneService,
    },
    common::v1::{EventPriority, RunOptions, RunState},
};
use core_types::{Clock, LoadDiagnostic, RequestId, Tenant};
use documents::Put;
use grpc_kit::{CallContext, Failure};
use json_schema::parse_json_strict;
use run_events::{Runs, request_hash, timestamp_to_proto};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::{
    documents::{
        change_failure, diagnostics_of, diagnostics_to_proto, revision_to_proto, revisions_page,
    },
    publishers::Publishers,
    references::Surroundings,
};
use crate::{
    error::{no_such_document, store_failure},
    runner::scenes::{NewScene, SceneRunner, not_running},
    running_scenes::{Asleep, Draft, InstanceStatus, Request as Asked, RunningScene},
    wire,
};

/// The kind of document.
const SCENE: &str = "scene";

/// The server side of SceneService.
#[derive(Clone, Debug)]
pub struct SceneRpc {
    scenes: Scenes,
    surroundings: Surroundings,
    runner: SceneRunner,
    conversations: Conversations,
    publishers: Publishers,
    runs: Runs,
    clock: Arc<dyn Clock>,
}

impl SceneRpc {
    /// Puts the server side together.
    pub fn new(
        scenes: Scenes,
        surroundings: Surroundings,
        runner: SceneRunner,
        conversations: Conversations,
        publishers: Publishers,
        runs: Runs,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            scenes,
            surroundings,
            runner,
            conversations,
            publishers,
            runs,
            clock,
        }
    }

    async fn write(&self, context: &CallContext, known: &KnownScene) -> proto::Scene {
        let named = known.document.references();
        let neighbours = self.surroundings.ask(context, &named).await;
        let missing = self
            .surroundings
            .missing(context.tenant(), &named, &neighbours);
        write(known, missing)
    }

    async fn find(&self, tenant: Tenant, id: &str, revision: u64) -> Result<KnownScene, Failure> {
        let found = self.scenes.at(tenant, id, revision).await;
        let found = found.map_err(|error| store_failure(&error))?;
        found.ok_or_else(|| no_such_document(SCENE, id, revision))
    }

    async fn list(
        &self,
        context: &CallContext,
        request: ListScenesRequest,
    ) -> Result<ListScenesResponse, Failure> {
        let (scenes, tenant) = (&self.scenes, context.tenant());
        let listed = scenes.list(tenant, &request.page_token, request.page_size);
        let listed = listed.await?;
        let named = listed.entries.iter();
        let named = named.flat_map(|known| known.document.references());
        let named: Vec<_> = named.collect();
        let neighbours = self.surroundings.ask(context, &named).await;
        let scenes = listed.entries.iter().map(|known| {
            let named = known.document.references();
            write(
                known,
                self.surroundings.missing(tenant, &named, &neighbours),
            )
        });
        Ok(ListScenesResponse {
            scenes: scenes.collect(),
            next_page_token: listed.next_page_token,
            diagnostics: match listed.is_first {
                true => diagnostics_to_proto(&self.scenes.left_out(tenant)),
                false => Vec::new(),
            },
        })
    }

    async fn revisions(
        &self,
        tenant: Tenant,
        request: ListSceneRevisionsRequest,
    ) -> Result<ListSceneRevisionsResponse, Failure> {
        let id = request.scene_id;
        self.find(tenant, &id, 0).await?;
        let place = (request.page_size, request.page_token.as_str());
        let page = revisions_page(&self.scenes, tenant, &id, place).await?;
        let (revisions, next_page_token) = page.ok_or_else(|| no_such_document(SCENE, &id, 0))?;
        Ok(ListSceneRevisionsResponse {
            revisions,
            next_page_token,
        })
    }

    async fn put(
        &self,
        context: &CallContext,
        request: PutSceneRequest,
    ) -> Result<PutSceneResponse, Failure> {
        let put = Put {
            id: "",
            text: &request.scene_json,
            etag: &request.etag,
            validate_only: request.validate_only,
            request: None,
        };
        let put = self.scenes.put(context.tenant(), put).await;
        let (known, _) = put.map_err(|error| change_failure(SCENE, "", "", error))?;
        Ok(PutSceneResponse {
            scene: Some(self.write(context, &known).await),
        })
    }

    /// Starts a scene.
    pub(super) async fn start(
        &self,
        context: CallContext,
        request: StartSceneRequest,
    ) -> Result<StartSceneResponse, Failure> {
        let body_hash = request_hash(&context, &request);
        let before = self
            .runner
            .started_before(&context, &request.request_id, body_hash)
            .await?;
        if before.is_some() {
            return Ok(StartSceneResponse {
                run: before,
                replayed: true,
            });
        }
        let known = self.find(context.tenant(), &request.scene_id, 0).await?;
        let new = NewScene {
            revision: known.revision_number(),
            scene: known.document.as_ref().clone(),
            request_id: request.request_id,
            body_hash,
            options: RunOptions {
                timeout: request.timeout,
                ..RunOptions::default()
            },
        };
        let (run, replayed) = self.runner.start(context, new).await?;
        Ok(StartSceneResponse {
            run: Some(run),
            replayed,
        })
    }

    async fn end(
        &self,
        context: &CallContext,
        request: EndSceneRequest,
    ) -> Result<EndSceneResponse, Failure> {
        let running = self.publishers.scene(context, &request.run_id)?;
        let (answer, answered) = oneshot::channel();
        ask(&running, Asked::End(request.reason, answer), answered).await?;
        Ok(EndSceneResponse {})
    }

    async fn status(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<GetSceneStatusResponse, Failure> {
        let running = self.publishers.scene(context, run_id)?;
        let (answer, answered) = oneshot::channel();
        let status = ask(&running, Asked::Status(answer), answered).await?;
        let tenant = context.tenant();
        let profiles = self.runner.profiles_of(tenant, &running.scene).await?;
        let mut instances = Vec::new();
        for (status, profile) in status.into_iter().zip(profiles) {
            let instance = running.scene.instance(&status.instance_id);
            let conversation_id = conversation_of(run_id, &status.instance_id);
            let conversation = self.conversations.get(context, &conversation_id).await?;
            let active = conversation.active_run_id.unwrap_or_default();
            let state = self.state(&status, &active).await;
            instances.push(proto::InstanceStatus {
                state: state.into(),
                wake_time: status
                    .sleep
                    .and_then(|sleep| sleep.until)
                    .map(timestamp_to_proto),
                profile_id: instance.map_or_else(String::new, |known| known.profile_id.clone()),
                conversation_id,
                instance_id: status.instance_id,
                is_busy: status.is_busy,
                waiting: status.waiting.iter().map(waiting).collect(),
                profile_revision: profile.map_or(0, |known| known.revision_number()),
                active_run_id: active,
                queued_run_ids: conversation.queued_run_ids,
            });
        }
        Ok(GetSceneStatusResponse {
            scene_id: running.scene.id.clone(),
            instances,
            scene_revision: running.revision,
        })
    }

    /// Returns the state of an agent (rule G111).
    async fn state(&self, status: &InstanceStatus, active: &str) -> InstanceState {
        let run = match active {
            "" => None,
            // The caller can see the scene, of which this turn is a part.
            active => self.runs.get(&CallContext::outermost(), active).await.ok(),
        };
        match run.map(|run| run.state()) {
            Some(RunState::Paused) => InstanceState::Paused,
            Some(RunState::Waiting) => InstanceState::Waiting,
            Some(_) => InstanceState::Running,
            None if status.is_busy => InstanceState::Running,
            None if status.is_ending => InstanceState::Ended,
            None if status.is_paused => InstanceState::Paused,
            None if status.sleep.is_some() => InstanceState::Sleeping,
            None => InstanceState::Idle,
        }
    }

    async fn sleep(
        &self,
        context: &CallContext,
        request: SleepInstanceRequest,
    ) -> Result<SleepInstanceResponse, Failure> {
        let mut failure = Failure::invalid_fields();
        for (index, pattern) in request.wake_on.iter().enumerate() {
            if !is_pattern(pattern) {
                let problem = "give a type such as `player.action.speak` or `player.action.*`";
                failure.add_violation(format!("wake_on[{index}]"), problem);
            }
        }
        if !failure.is_empty() {
            return Err(failure);
        }
        super::check_request_id(&request.request_id)?;
        let known = self
            .publishers
            .instance(context, &request.conversation_id)?;
        let until = (request.seconds > 0).then(|| {
            let seconds = Duration::from_secs(request.seconds.into());
            self.clock.now().plus(seconds)
        });
        let asleep = Asleep {
            instance_id: known.instance.id,
            sleep: Sleep {
                until,
                priority: match request.wake_priority() {
                    EventPriority::Unspecified => Priority::High,
                    given => wire::priority_from_proto(given),
                },
                wake_on: request.wake_on,
            },
            request_id: request.request_id,
            principal: context.principal().clone(),
        };
        let (answer, answered) = oneshot::channel();
        let slept = ask(&known.running, Asked::Sleep(asleep, answer), answered).await??;
        Ok(SleepInstanceResponse {
            wake_time: slept.until.map(timestamp_to_proto),
            replayed: slept.replayed,
        })
    }

    async fn publish(
        &self,
        context: &CallContext,
        request: PublishEventRequest,
    ) -> Result<PublishEventResponse, Failure> {
        let payload = check(&request)?;
        let priority = wire::priority_from_proto(request.priority());
        let publisher = match request.scene {
            Some(Named::RunId(run_id)) => {
                let name = context.caller_name("source_id", request.source_id)?;
                self.publishers.caller(context, &run_id, name)?
            }
            Some(Named::ConversationId(id)) => self.publishers.agent(context, &id).await?,
            None => return Err(super::publishers::unnamed()),
        };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let draft = Draft {
            event_type: request.r#type,
            payload,
            source: publisher.source,
            targets: request.target_instance_ids,
            priority,
            ttl: (request.ttl_seconds > 0).then(|| seconds(request.ttl_seconds)),
            delay: seconds(request.delay_seconds),
            chain: publisher.chain,
            correlation_id: request.correlation_id,
            request_id: request.request_id,
            principal: context.principal().clone(),
        };
        let (answer, answered) = oneshot::channel();
        let published = ask(
            &publisher.running,
            Asked::Publish(Box::new(draft), answer),
            answered,
        )
        .await??;
        Ok(PublishEventResponse {
            event_id: published.event_id,
            delivered_to: published.delivered_to,
            replayed: published.replayed,
        })
    }
}

/// Sends a request to a scene, and waits for the answer.
async fn ask<T>(
    running: &RunningScene,
    request: Asked,
    answered: oneshot::Receiver<T>,
) -> Result<T, Failure> {
    let ended = || not_running("the scene has ended");
    match running.ask(request).await {
        true => answered.await.map_err(|_| ended()),
        false => Err(ended()),
    }
}

/// Checks an event to publish; reports every invalid field. Returns its payload.
fn check(request: &PublishEventRequest) -> Result<Value, Failure> {
    let mut failure = Failure::invalid_fields();
    if !event::is_type(&request.r#type) {
        let problem = "give words of letters, digits, `_` and `-` with `.` or `:` between";
        failure.add_violation("type", problem);
    }
    if !request.request_id.is_empty()
        && let Err(error) = RequestId::new(request.request_id.as_str())
    {
        failure.add_violation("request_id", error.to_string());
    }
    let payload = match request.payload_json.as_str() {
        "" => Ok(Value::Object(Map::new())),
        text if text.len() > MAX_PAYLOAD_BYTES => {
            Err(format!("has more than {MAX_PAYLOAD_BYTES} bytes"))
        }
        text => parse_json_strict(text).map_err(|error| error.to_string()),
    };
    let payload = payload.and_then(|payload| match payload.is_object() {
        true => Ok(payload),
        false => Err("is not an object; give values by key".to_owned()),
    });
    match payload {
        Ok(payload) if failure.is_empty() => Ok(payload),
        Ok(_) => Err(failure),
        Err(problem) => {
            failure.add_violation("payload_json", problem);
            Err(failure)
        }
    }
}

fn waiting(event: &event::Event) -> proto::WaitingEvent {
    proto::WaitingEvent {
        event_id: event.id.clone(),
        r#type: event.event_type.clone(),
        priority: wire::priority_to_proto(event.priority).into(),
        publish_time: Some(timestamp_to_proto(event.published)),
    }
}

/// Writes a scene with the findings about it and about its references.
fn write(known: &KnownScene, missing: Vec<LoadDiagnostic>) -> proto::Scene {
    let scene = &known.document;
    let findings = [scene.diagnostics.as_slice(), &missing].concat();
    let agents = scene.instances.iter().map(|instance| proto::SceneAgent {
        instance_id: instance.id.clone(),
        profile_id: instance.profile_id.clone(),
    });
    proto::Scene {
        scene_id: scene.id.clone(),
        name: scene.name.clone(),
        description: scene.description.clone(),
        agents: agents.collect(),
        scene_json: scene.text.clone(),
        diagnostics: diagnostics_of(&findings, known.revision.as_ref()),
        etag: scene.etag(),
        from_file: known.from_file,
        shared: known.is_shared,
        revision: known.revision.as_ref().map(revision_to_proto),
    }
}

#[tonic::async_trait]
impl SceneService for SceneRpc {
    async fn get_scene(
        &self,
        request: Request<GetSceneRequest>,
    ) -> Result<Response<GetSceneResponse>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let known = self
            .find(context.tenant(), &request.scene_id, request.revision)
            .await?;
        let scene = Some(self.write(&context, &known).await);
        Ok(Response::new(GetSceneResponse { scene }))
    }

    async fn list_scene_revisions(
        &self,
        request: Request<ListSceneRevisionsRequest>,
    ) -> Result<Response<ListSceneRevisionsResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let revisions = self.revisions(tenant, request.into_inner()).await?;
        Ok(Response::new(revisions))
    }

    async fn list_scenes(
        &self,
        request: Request<ListScenesRequest>,
    ) -> Result<Response<ListScenesResponse>, Status> {
        let context = CallContext::of(&request);
        let listed = self.list(&context, request.into_inner()).await?;
        Ok(Response::new(listed))
    }

    async fn put_scene(
        &self,
        request: Request<PutSceneRequest>,
    ) -> Result<Response<PutSceneResponse>, Status> {
        let context = CallContext::of(&request);
        let put = self.put(&context, request.into_inner()).await?;
        Ok(Response::new(put))
    }

    async fn delete_scene(
        &self,
        request: Request<DeleteSceneRequest>,
    ) -> Result<Response<DeleteSceneResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let DeleteSceneRequest { scene_id: id, etag } = request.into_inner();
        let deleted = self.scenes.delete(tenant, &id, &etag).await;
        deleted.map_err(|error| change_failure(SCENE, &id, "", error))?;
        Ok(Response::new(DeleteSceneResponse {}))
    }

    async fn start_scene(
        &self,
        request: Request<StartSceneRequest>,
    ) -> Result<Response<StartSceneResponse>, Status> {
        let context = CallContext::of(&request);
        let started = self.start(context, request.into_inner()).await?;
        Ok(Response::new(started))
    }

    async fn end_scene(
        &self,
        request: Request<EndSceneRequest>,
    ) -> Result<Response<EndSceneResponse>, Status> {
        let context = CallContext::of(&request);
        let ended = self.end(&context, request.into_inner()).await?;
        Ok(Response::new(ended))
    }

    async fn get_scene_status(
        &self,
        request: Request<GetSceneStatusRequest>,
    ) -> Result<Response<GetSceneStatusResponse>, Status> {
        let context = CallContext::of(&request);
        let status = self.status(&context, &request.into_inner().run_id).await?;
        Ok(Response::new(status))
    }

    async fn sleep_instance(
        &self,
        request: Request<SleepInstanceRequest>,
    ) -> Result<Response<SleepInstanceResponse>, Status> {
        let context = CallContext::of(&request);
        let slept = self.sleep(&context, request.into_inner()).await?;
        Ok(Response::new(slept))
    }

    async fn wake_instance(
        &self,
        request: Request<WakeInstanceRequest>,
    ) -> Result<Response<WakeInstanceResponse>, Status> {
        let context = CallContext::of(&request);
        let id = request.into_inner().conversation_id;
        let known = self.publishers.instance(&context, &id)?;
        let slept = known.wake(WakeCause::Caller).await;
        Ok(Response::new(WakeInstanceResponse { slept }))
    }

    async fn publish_event(
        &self,
        request: Request<PublishEventRequest>,
    ) -> Result<Response<PublishEventResponse>, Status> {
        let context = CallContext::of(&request);
        let published = self.publish(&context, request.into_inner()).await?;
        Ok(Response::new(published))
    }
}
