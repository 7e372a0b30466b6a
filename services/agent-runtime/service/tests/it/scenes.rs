//! Scenes: agents that share a world and receive events.

use std::time::Duration;

use contracts::tavern::{
    agent::v1::{
        DeleteSceneRequest, EndSceneRequest, GetPrivateStateRequest, GetSceneRequest,
        GetSceneStatusRequest, GetWorldStateRequest, InstanceStatus, ListScenesRequest,
        PublishEventRequest, PublishEventResponse, PutSceneRequest, StartSceneRequest,
        StartTurnRequest, StateOperation, UpdateWorldStateRequest, UpdateWorldStateResponse,
        get_world_state_request::Scene as Read, publish_event_request::Scene,
        scene_service_client::SceneServiceClient, start_turn_request::Input,
        state_operation::Kind as Change, state_service_client::StateServiceClient,
        update_world_state_request::Scene as Written,
    },
    common::v1::{ErrorReason, RunState, SceneEvent, run_event::Kind, watch_record::Record},
    run::v1::WatchRunRequest,
};
use doubles::TestRegistry;
use grpc_kit::Outbound;
use model_client::{ModelSettings, ScriptedSettings};
use serde_json::{Value, json};
use tonic::Status;

use crate::world::{Ended, Running, World};

/// A scene with two agents: `gm` receives the actions of the player, `elara` the words addressed to
/// her, and both the changes of the world's flags.
pub(crate) fn scene() -> Value {
    json!({
        "id": "wood",
        "name": "The wood",
        "agent_instances": [
            {"instance_id": "gm", "profile_id": "gm"},
            {"instance_id": "elara", "profile_id": "elara",
             "initial_private_state_override": {"mood": "wary"}},
        ],
        "initial_world_state": {"weather": "clear", "flags": {"warned": false}},
        "custom_metadata": {"tavern": {"world_schema": {
            "type": "object", "properties": {"weather": {"enum": ["clear", "mist"]}}}}},
    })
}

pub(crate) fn profile(id: &str, hears: &Value) -> Value {
    json!({
        "id": id,
        "name": id,
        "initial_private_state_values": {"mood": "calm", "trust": 1},
        "subscribed_event_types": hears,
        "custom_metadata": {"tavern": {"model": id, "system_prompt": format!("You are {id}."),
            "world_write": ["flags.*"]}},
    })
}

/// Makes a world with the scene, in which the models of both agents play turns.
pub(crate) fn world(scene: &Value, gm: &Value, elara: &Value) -> World {
    let flags = json!({"type": "world.state.updated",
        "filter_condition": "payload.paths.exists(p, p.startsWith('/flags/'))"});
    let profiles = [
        ("gm.json", &profile("gm", &json!(["player.action.*"]))),
        (
            "elara.json",
            &profile(
                "elara",
                &json!(["npc.elara.address", "world.time.*", flags]),
            ),
        ),
    ];
    let mut world = World::of(TestRegistry::default(), &profiles, &json!({"turns": []}));
    let directory = world.directory.path().to_owned();
    for (model, turns) in [("gm", gm), ("elara", elara)] {
        let script = format!("{model}.script.json");
        let text = json!({"turns": turns}).to_string();
        std::fs::write(directory.join(&script), text).unwrap();
        let settings = ScriptedSettings {
            script: script.into(),
            ..ScriptedSettings::default()
        };
        let settings = ModelSettings::Scripted(settings);
        world.settings.models.insert(model.to_owned(), settings);
    }
    let scenes = directory.join("scenes");
    std::fs::create_dir_all(&scenes).unwrap();
    std::fs::write(scenes.join("wood.json"), scene.to_string()).unwrap();
    world.settings.scenes_dir = scenes;
    world
}

pub(crate) fn says(text: &str) -> Value {
    json!([{"answer": {"text": text}}])
}

pub(crate) fn is_handled(kind: &Kind) -> bool {
    matches!(kind, Kind::EventsHandled(_))
}

impl Running {
    pub(crate) fn scenes(&self) -> SceneServiceClient<Outbound> {
        SceneServiceClient::new(grpc_kit::local(&self.runtime.services()).outermost())
    }

    pub(crate) fn world_states(&self) -> StateServiceClient<Outbound> {
        StateServiceClient::new(grpc_kit::local(&self.runtime.services()).outermost())
    }

    pub(crate) async fn start_scene(&self) -> String {
        let request = StartSceneRequest {
            scene_id: "wood".to_owned(),
            ..StartSceneRequest::default()
        };
        let started = self.scenes().start_scene(request).await.unwrap();
        started.into_inner().run.unwrap().run_id
    }

    pub(crate) async fn publish(
        &self,
        request: PublishEventRequest,
    ) -> Result<PublishEventResponse, Status> {
        Ok(self.scenes().publish_event(request).await?.into_inner())
    }

    pub(crate) async fn status(&self, run_id: &str) -> Vec<InstanceStatus> {
        let request = GetSceneStatusRequest {
            run_id: run_id.to_owned(),
        };
        let status = self.scenes().get_scene_status(request).await.unwrap();
        status.into_inner().instances
    }

    /// Waits until this many turns with events have ended.
    pub(crate) async fn until_handled(&self, run_id: &str, turns: usize) {
        let request = WatchRunRequest {
            run_id: run_id.to_owned(),
            after_sequence: 0,
        };
        let records = self.runs.clone().watch_run(request).await.unwrap();
        let (mut records, mut handled) = (records.into_inner(), 0);
        while handled < turns {
            let answer = records.message().await.unwrap();
            let record = answer.expect("the watch ended before").record;
            if let Some(Record::Event(event)) = contracts::watch::decode(record).unwrap() {
                handled += usize::from(event.kind.as_ref().is_some_and(is_handled));
            }
        }
    }

    pub(crate) async fn end_scene(&self, run_id: &str) -> Ended {
        let request = EndSceneRequest {
            run_id: run_id.to_owned(),
            reason: "enough".to_owned(),
        };
        self.scenes().end_scene(request).await.unwrap();
        self.follow(run_id, 0).await
    }

    pub(crate) async fn set_world(
        &self,
        scene: Written,
        path: &str,
        value: &Value,
    ) -> Result<UpdateWorldStateResponse, Status> {
        let request = UpdateWorldStateRequest {
            scene: Some(scene),
            operations: vec![StateOperation {
                kind: Change::Set.into(),
                path: path.to_owned(),
                value_json: value.to_string(),
            }],
            ..UpdateWorldStateRequest::default()
        };
        let updated = self.world_states().update_world_state(request).await;
        Ok(updated?.into_inner())
    }

    pub(crate) async fn world_at(&self, run_id: &str, path: &str) -> Result<String, Status> {
        let request = GetWorldStateRequest {
            scene: Some(Read::RunId(run_id.to_owned())),
            path: path.to_owned(),
            ..GetWorldStateRequest::default()
        };
        let read = self.world_states().get_world_state(request).await?;
        Ok(read.into_inner().value_json)
    }
}

pub(crate) fn event(run_id: &str, event_type: &str, payload: &Value) -> PublishEventRequest {
    PublishEventRequest {
        scene: Some(Scene::RunId(run_id.to_owned())),
        r#type: event_type.to_owned(),
        payload_json: payload.to_string(),
        source_id: "mara".to_owned(),
        ..PublishEventRequest::default()
    }
}

impl Ended {
    fn published(&self) -> Vec<&SceneEvent> {
        let kinds = self.events.iter().filter_map(|event| event.kind.as_ref());
        let published = kinds.filter_map(|kind| match kind {
            Kind::EventPublished(published) => published.event.as_ref(),
            _ => None,
        });
        published.collect()
    }
}

#[tokio::test]
async fn g407_an_event_opens_a_turn_and_the_scene_shows_everything_in_one_order() {
    let gm = json!([{
        "expect": {
            "contains": ["Event player.action.speak from caller mara: {\"message\":\"hello\"}"],
            "last_contains": ["\"mood\":\"calm\"", "The state of the world now:", "\"weather\":\"clear\""],
        },
        "answer": {"text": "The wood listens."},
    }]);
    let running = world(&scene(), &gm, &says("never")).build().await;
    let run_id = running.start_scene().await;
    assert!(run_id.starts_with("scene_"), "{run_id}");
    let spoken = event(&run_id, "player.action.speak", &json!({"message": "hello"}));
    let published = running.publish(spoken).await.unwrap();
    assert_eq!(published.delivered_to, ["gm"]);
    running.until(&run_id, is_handled).await;
    let conversation = format!("{run_id}.gm");
    let said: Vec<String> = running
        .messages(&conversation)
        .await
        .into_iter()
        .map(|message| message.text)
        .collect();
    assert_eq!(said[1], "The wood listens.");
    let ended = running.end_scene(&run_id).await;
    assert_eq!(ended.run.state(), RunState::Succeeded);
    let words = ended.story();
    assert_eq!(
        words,
        [
            "started",
            "event published",
            "events taken",
            "started",
            "iteration",
            "asked",
            "text",
            "answered",
            "finished",
            "events handled",
            "scene ending",
            "finished"
        ]
    );
}

#[tokio::test]
async fn g106_first_states_come_from_profile_and_scene_and_what_is_wrong_is_refused() {
    let running = world(&scene(), &says(""), &says("")).build().await;
    let run_id = running.start_scene().await;
    let status = running.status(&run_id).await;
    let conversation_id = status[1].conversation_id.clone();
    let request = GetPrivateStateRequest {
        conversation_id,
        profile_id: "elara".to_owned(),
        ..GetPrivateStateRequest::default()
    };
    let state = running.world_states().get_private_state(request).await;
    let state: Value = serde_json::from_str(&state.unwrap().into_inner().value_json).unwrap();
    assert_eq!(state, json!({"mood": "wary", "trust": 1}));
    assert_eq!(
        running.world_at(&run_id, "weather").await.unwrap(),
        "\"clear\""
    );
    running.end_scene(&run_id).await;
    // The world can still be read.
    assert_eq!(
        running.world_at(&run_id, "weather").await.unwrap(),
        "\"clear\""
    );

    let mut wrong = scene();
    wrong["agent_instances"][0]["profile_id"] = json!("unknown");
    let running = world(&wrong, &says(""), &says("")).build().await;
    let request = StartSceneRequest {
        scene_id: "wood".to_owned(),
        ..StartSceneRequest::default()
    };
    let refused = running.scenes().start_scene(request).await.unwrap_err();
    let places: Vec<String> = grpc_kit::violations(&refused)
        .into_iter()
        .map(|(place, _)| place)
        .collect();
    assert_eq!(places, ["scene/agent_instances/0/profile_id"]);
}

#[tokio::test]
async fn g306_a_change_of_the_world_is_an_event_and_g305_an_agent_changes_only_its_part() {
    let elara = json!([{
        "expect": {"contains": ["Event world.state.updated from instance gm"],
                   "last_contains": ["\"warned\":true"]},
        "answer": {"text": "So it is."},
    }]);
    let running = world(&scene(), &says("never"), &elara).build().await;
    let run_id = running.start_scene().await;
    let gm = || Written::ConversationId(format!("{run_id}.gm"));
    let denied = running.set_world(gm(), "weather", &json!("mist")).await;
    assert_eq!(
        grpc_kit::reason(&denied.unwrap_err()),
        Some(ErrorReason::WorldWriteDenied)
    );
    let broken = Written::RunId(run_id.clone());
    let broken = running.set_world(broken, "weather", &json!("snow")).await;
    assert_eq!(
        grpc_kit::reason(&broken.unwrap_err()),
        Some(ErrorReason::StateInvalid)
    );
    let changed = running
        .set_world(gm(), "flags.warned", &json!(true))
        .await
        .unwrap();
    assert_eq!(
        (changed.version, changed.previous_json.as_str()),
        (2, "false")
    );
    running.until(&run_id, is_handled).await;
    let ended = running.end_scene(&run_id).await;
    let payload: Value = serde_json::from_str(&ended.published()[0].payload_json).unwrap();
    assert_eq!(
        payload,
        json!({"paths": ["/flags/warned"], "version": 2, "previous_version": 1})
    );
}

#[tokio::test]
async fn a_repeated_request_publishes_once_and_wrong_events_are_refused() {
    let running = world(&scene(), &says("Yes."), &says("")).build().await;
    let run_id = running.start_scene().await;
    let named = |text: &str| PublishEventRequest {
        request_id: "e-1".to_owned(),
        ..event(&run_id, "player.action.speak", &json!({"message": text}))
    };
    let first = running.publish(named("a")).await.unwrap();
    let again = running.publish(named("a")).await.unwrap();
    assert_eq!((again.replayed, again.event_id), (true, first.event_id));
    let other = running.publish(named("b")).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&other), Some(ErrorReason::RequestIdReused));
    let wrong = PublishEventRequest {
        payload_json: "[]".to_owned(),
        ..event(&run_id, "a..b", &json!({}))
    };
    let wrong = running.publish(wrong).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&wrong).len(), 2, "{wrong:?}");
    let target = PublishEventRequest {
        target_instance_ids: vec!["gm".to_owned(), "owl".to_owned()],
        ..event(&run_id, "tick", &json!({}))
    };
    let target = running.publish(target).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&target)[0].0, "target_instance_ids[1]");
    let gone = running
        .publish(event("scene_none", "tick", &json!({})))
        .await;
    assert_eq!(
        grpc_kit::reason(&gone.unwrap_err()),
        Some(ErrorReason::SceneNotRunning)
    );
}

#[tokio::test]
async fn g405_a_publisher_that_is_too_fast_is_refused_for_a_second() {
    let running = world(&scene(), &says(""), &says("")).build().await;
    let run_id = running.start_scene().await;
    let at_once = (0..400).map(|_| running.publish(event(&run_id, "tick", &json!({}))));
    let published = futures::future::join_all(at_once).await;
    let mut refused = published.into_iter().filter_map(Result::err);
    let refused = refused.next().expect("400 events at once are too many");
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::EventsThrottled)
    );
    assert_eq!(
        grpc_kit::retry_after(&refused),
        Some(Duration::from_secs(1))
    );
}

#[tokio::test]
async fn g403_after_a_restart_every_event_is_taken_by_one_turn() {
    let slow = json!([
        {"answer": {"text": "One.", "delay": "300ms"}},
        {"expect": {"contains": ["\"number\":1", "\"number\":2"]}, "answer": {"text": "Two."}},
    ]);
    let world = world(&scene(), &slow, &says(""));
    let running = world.build().await;
    let run_id = running.start_scene().await;
    let step = |number: u32| event(&run_id, "player.action.step", &json!({"number": number}));
    running.publish(step(0)).await.unwrap();
    running
        .until(&run_id, |kind| matches!(kind, Kind::ModelRequested(_)))
        .await;
    running.publish(step(1)).await.unwrap();
    running.publish(step(2)).await.unwrap();
    running.runtime.shutdown().await;

    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    running.until_handled(&run_id, 2).await;
    let ended = running.end_scene(&run_id).await;
    let taken: Vec<usize> = ended
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::EventsTaken(taken)) => Some(taken.event_ids.len()),
            _ => None,
        })
        .collect();
    assert_eq!(taken, [1, 2]);
    assert_eq!(
        ended.count(|kind| matches!(kind, Kind::ModelAnswered(_))),
        2
    );
    assert_eq!(ended.count(|kind| matches!(kind, Kind::RunStarted(_))), 3);
}

#[tokio::test]
async fn a_turn_of_a_caller_comes_first_and_an_event_waits_for_its_end() {
    let gm = json!([
        {"expect": {"last_contains": ["The state of the world now:"]},
         "answer": {"text": "You said it.", "delay": "200ms"}},
        {"expect": {"contains": ["Event player.action.wait", "You said it."]}, "answer": {"text": "And heard."}},
    ]);
    let running = world(&scene(), &gm, &says("")).build().await;
    let run_id = running.start_scene().await;
    let conversation = format!("{run_id}.gm");
    let turn = |profile: &str| StartTurnRequest {
        profile_id: profile.to_owned(),
        conversation_id: conversation.clone(),
        input: Some(Input::UserMessage("hello".to_owned())),
        ..StartTurnRequest::default()
    };
    let other = running.start(turn("elara")).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&other)[0].0, "profile_id");
    let own = running.begin(turn("gm")).await;
    running
        .publish(event(&run_id, "player.action.wait", &json!({})))
        .await
        .unwrap();
    assert_eq!(running.follow(&own, 0).await.text(), "You said it.");
    running.until(&run_id, is_handled).await;
    let messages = running.messages(&conversation).await;
    assert_eq!(messages.len(), 4, "{messages:?}");
}

#[tokio::test]
async fn a_paused_scene_collects_events_and_a_cancelled_one_ends_its_turns() {
    let gm = json!([{"answer": {"text": "Slow.", "delay": "20s"}}]);
    let running = world(&scene(), &gm, &says("")).build().await;
    let run_id = running.start_scene().await;
    running.pause(&run_id).await;
    for _ in 0..2 {
        let request = event(&run_id, "player.action.knock", &json!({}));
        running.publish(request).await.unwrap();
    }
    let status = running.status(&run_id).await;
    assert_eq!((status[0].is_busy, status[0].waiting.len()), (false, 2));
    running.resume(&run_id).await;
    let asked = running.until(&run_id, |kind| matches!(kind, Kind::ModelRequested(_)));
    let turn_id = asked.await.run_id;
    // Its turns follow (rule G811).
    running.pause(&run_id).await;
    assert_eq!(running.run(&turn_id).await.state(), RunState::Paused);
    running.resume(&run_id).await;
    assert_eq!(running.run(&turn_id).await.state(), RunState::Running);
    running.cancel(&run_id).await;
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.run.state(), RunState::Cancelled);
    let turn = ended.events.iter().find(|event| event.run_id != run_id);
    let turn = running.follow(&turn.unwrap().run_id, 0).await;
    assert_eq!(turn.run.state(), RunState::Cancelled);
}

#[tokio::test]
async fn g408_a_timer_publishes_its_event() {
    let mut scene = scene();
    scene["scheduled_tasks"] = json!([
        {"id": "dusk", "after_seconds": 1, "event_type": "world.time.dusk", "payload": {"hour": 20}},
    ]);
    let elara = json!([{
        "expect": {"contains": ["Event world.time.dusk from task dusk: {\"hour\":20}"]},
        "answer": {"text": "Dusk."},
    }]);
    let running = world(&scene, &says(""), &elara).build().await;
    let run_id = running.start_scene().await;
    running.until(&run_id, is_handled).await;
    let ended = running.end_scene(&run_id).await;
    assert_eq!(ended.published().len(), 1);
    assert_eq!(ended.published()[0].qualified_type, "wood.world.time.dusk");
}

#[tokio::test]
async fn g103_scenes_are_files_or_put_and_everything_wrong_is_named() {
    let running = world(&scene(), &says(""), &says("")).build().await;
    let mut scenes = running.scenes();
    let listed = scenes.list_scenes(ListScenesRequest::default()).await;
    let listed = listed.unwrap().into_inner().scenes;
    assert_eq!(listed.len(), 1);
    assert!(listed[0].from_file);
    let mut other = scene();
    other["name"] = json!("Another wood");
    let put = PutSceneRequest {
        scene_json: other.to_string(),
        etag: listed[0].etag.clone(),
        ..PutSceneRequest::default()
    };
    scenes.put_scene(put.clone()).await.unwrap();
    let stale = scenes.put_scene(put).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&stale), Some(ErrorReason::EtagMismatch));
    let request = GetSceneRequest {
        scene_id: "wood".to_owned(),
        ..GetSceneRequest::default()
    };
    let found = scenes.get_scene(request).await.unwrap().into_inner();
    let found = found.scene.unwrap();
    assert_eq!(
        (found.name.as_str(), found.from_file),
        ("Another wood", false)
    );
    let mut delete = DeleteSceneRequest {
        scene_id: "wood".to_owned(),
        etag: listed[0].etag.clone(),
    };
    let stale = scenes.delete_scene(delete.clone()).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&stale), Some(ErrorReason::EtagMismatch));
    delete.etag = found.etag;
    scenes.delete_scene(delete).await.unwrap();
    let listed = scenes.list_scenes(ListScenesRequest::default()).await;
    assert!(listed.unwrap().into_inner().scenes[0].from_file);
    let wrong = PutSceneRequest {
        scene_json: json!({"id": "x", "agent_instances": []}).to_string(),
        ..PutSceneRequest::default()
    };
    let wrong = scenes.put_scene(wrong).await.unwrap_err();
    assert_eq!(
        grpc_kit::violations(&wrong)[0].0,
        "scene_json/agent_instances"
    );
}

#[tokio::test]
async fn a_repeated_start_finds_its_scene_although_the_file_is_gone() {
    let world = world(&scene(), &says(""), &says(""));
    let running = world.build().await;
    let start = |scene_id: &str| StartSceneRequest {
        request_id: "s-1".to_owned(),
        scene_id: scene_id.to_owned(),
        ..StartSceneRequest::default()
    };
    let mut scenes = running.scenes();
    let first = scenes
        .start_scene(start("wood"))
        .await
        .unwrap()
        .into_inner();
    std::fs::remove_file(world.settings.scenes_dir.join("wood.json")).unwrap();
    let again = scenes
        .start_scene(start("wood"))
        .await
        .unwrap()
        .into_inner();
    assert!(again.replayed);
    assert_eq!(again.run.unwrap().run_id, first.run.unwrap().run_id);
    let other = scenes.start_scene(start("another")).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&other), Some(ErrorReason::RequestIdReused));
}

#[tokio::test]
async fn a_paused_scene_starts_no_workflow() {
    let mut scene = scene();
    scene["scene_lifecycle_workflows"] = json!({"on_bell": "ring"});
    let running = world(&scene, &says(""), &says("")).build().await;
    let run_id = running.start_scene().await;
    running.pause(&run_id).await;
    running
        .publish(event(&run_id, "bell", &json!({})))
        .await
        .unwrap();
    // The answer comes after the event, so the scene has handled it.
    running.status(&run_id).await;
    running.resume(&run_id).await;
    running
        .until(&run_id, |kind| {
            matches!(kind, Kind::SceneWorkflowStarted(_))
        })
        .await;
    let ended = running.end_scene(&run_id).await;
    let words = ended.story();
    let place = |word: &str| words.iter().position(|known| *known == word);
    assert!(
        place("resumed") < place("scene workflow started"),
        "{words:?}"
    );
}
