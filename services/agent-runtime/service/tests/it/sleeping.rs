//! Agents of scenes that sleep or think by themselves (rules G111, G409 and G410).

use contracts::tavern::{
    agent::v1::{
        GetWorldStateRequest, InstanceState, PublishEventRequest, SleepInstanceRequest,
        SleepInstanceResponse, StartTurnRequest, WakeInstanceRequest,
        get_world_state_request::Scene as Read, start_turn_request::Input,
    },
    common::v1::{ErrorReason, EventPriority, instance_woke::Cause, run_event::Kind},
    run::v1::DeleteRunRequest,
};
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use tonic::Status;

use crate::{
    scenes::{event, scene, world},
    world::{Ended, Running},
};

/// Returns a model that answers each of this many turns.
fn answers(turns: usize) -> Value {
    Value::Array(vec![json!({"answer": {"text": "So be it."}}); turns])
}

impl Running {
    async fn sleep(
        &self,
        run_id: &str,
        request: SleepInstanceRequest,
    ) -> Result<SleepInstanceResponse, Status> {
        let request = SleepInstanceRequest {
            conversation_id: format!("{run_id}.gm"),
            ..request
        };
        let slept = self.scenes().sleep_instance(request).await?;
        Ok(slept.into_inner())
    }

    async fn instance_state(&self, run_id: &str) -> (InstanceState, usize) {
        let status = self.status(run_id).await;
        (status[0].state(), status[0].waiting.len())
    }
}

impl Ended {
    fn woken_by(&self) -> Vec<Cause> {
        let kinds = self.events.iter().filter_map(|event| event.kind.as_ref());
        let woken = kinds.filter_map(|kind| match kind {
            Kind::InstanceWoke(woke) => Some(woke.cause()),
            _ => None,
        });
        woken.collect()
    }

    /// Returns the number of events of each turn.
    fn taken(&self) -> Vec<usize> {
        let kinds = self.events.iter().filter_map(|event| event.kind.as_ref());
        let taken = kinds.filter_map(|kind| match kind {
            Kind::EventsTaken(taken) => Some(taken.event_ids.len()),
            _ => None,
        });
        taken.collect()
    }
}

#[tokio::test]
async fn g410_a_sleeping_instance_wakes_for_its_types_its_priority_and_a_direct_target() {
    let running = world(&scene(), &answers(3), &answers(0)).build().await;
    let run_id = running.start_scene().await;
    let plain = || event(&run_id, "player.action.step", &json!({}));
    let waking = [
        // Its profile does not subscribe to it.
        event(&run_id, "bell.tower.rings", &json!({})),
        PublishEventRequest {
            priority: EventPriority::Critical.into(),
            ..plain()
        },
        PublishEventRequest {
            target_instance_ids: vec!["gm".to_owned()],
            ..event(&run_id, "for.one", &json!({}))
        },
    ];
    for (turns, waking) in waking.into_iter().enumerate() {
        let request = SleepInstanceRequest {
            wake_on: vec!["bell.*".to_owned()],
            wake_priority: EventPriority::Critical.into(),
            ..SleepInstanceRequest::default()
        };
        running.sleep(&run_id, request).await.unwrap();
        running.publish(plain()).await.unwrap();
        assert_eq!(
            running.instance_state(&run_id).await,
            (InstanceState::Sleeping, 1)
        );
        let published = running.publish(waking).await.unwrap();
        assert_eq!(published.delivered_to, ["gm"]);
        running.until_handled(&run_id, turns + 1).await;
    }
    assert_eq!(
        running.instance_state(&run_id).await,
        (InstanceState::Idle, 0)
    );
    let ended = running.end_scene(&run_id).await;
    assert_eq!(ended.woken_by(), [Cause::Event; 3]);
    assert_eq!(ended.taken(), [2; 3]);
}

#[tokio::test]
async fn g410_a_sleep_and_its_timer_outlive_the_process() {
    let gm = json!([{"expect": {"contains": ["Event instance.woke from scene wood"]},
                     "answer": {"text": "Awake."}}]);
    let world = world(&scene(), &gm, &answers(0));
    let running = world.build().await;
    let run_id = running.start_scene().await;
    let request = SleepInstanceRequest {
        request_id: "s-1".to_owned(),
        seconds: 2,
        ..SleepInstanceRequest::default()
    };
    let slept = running.sleep(&run_id, request.clone()).await.unwrap();
    let plain = event(&run_id, "player.action.step", &json!({}));
    running.publish(plain).await.unwrap();
    running.runtime.shutdown().await;

    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    running.until_handled(&run_id, 1).await;
    // A repeated request does not put it to sleep again.
    let again = running.sleep(&run_id, request).await.unwrap();
    assert_eq!((again.wake_time, again.replayed), (slept.wake_time, true));
    assert_eq!(
        running.instance_state(&run_id).await,
        (InstanceState::Idle, 0)
    );
    let ended = running.end_scene(&run_id).await;
    assert_eq!(
        (ended.woken_by(), ended.taken()),
        (vec![Cause::Timer], vec![2])
    );
}

#[tokio::test]
async fn g410_a_user_and_a_caller_wake_it_and_nothing_is_asked_of_others() {
    let running = world(&scene(), &answers(1), &answers(0)).build().await;
    let run_id = running.start_scene().await;
    let sleep = SleepInstanceRequest::default;
    running.sleep(&run_id, sleep()).await.unwrap();
    let said = StartTurnRequest {
        profile_id: "gm".to_owned(),
        conversation_id: format!("{run_id}.gm"),
        input: Some(Input::UserMessage("Wake up.".to_owned())),
        ..StartTurnRequest::default()
    };
    assert_eq!(running.play(said).await.text(), "So be it.");
    running.sleep(&run_id, sleep()).await.unwrap();
    for expected in [true, false] {
        let wake = WakeInstanceRequest {
            conversation_id: format!("{run_id}.gm"),
        };
        let woke = running.scenes().wake_instance(wake).await.unwrap();
        assert_eq!(woke.into_inner().slept, expected);
    }
    let wrong = SleepInstanceRequest {
        wake_on: vec!["good.*".to_owned(), "a..b".to_owned()],
        ..sleep()
    };
    let wrong = running.sleep(&run_id, wrong).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&wrong)[0].0, "wake_on[1]");
    let ended = running.end_scene(&run_id).await;
    assert_eq!(ended.woken_by(), [Cause::Message, Cause::Caller]);
    let over = running.sleep(&run_id, sleep()).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&over), Some(ErrorReason::SceneNotRunning));
}

#[tokio::test]
async fn g409_a_tick_opens_a_turn_only_if_something_changed_unless_idle_ticks_do_too() {
    let mut scene = scene();
    scene["agent_instances"][0]["custom_runtime_config"] = json!({"deliberation_frequency_hz": 2});
    scene["agent_instances"][1]["custom_runtime_config"] =
        json!({"deliberation_frequency_hz": 2, "tavern": {"tick_when_idle": true}});
    let gm = json!([
        {"expect": {"contains": ["Event instance.tick from task tick/gm"]}, "answer": {"text": "One."}},
        {"expect": {"contains": ["Event instance.tick from task tick/gm"]}, "answer": {"text": "Two."}},
    ]);
    let running = world(&scene, &gm, &answers(20)).build().await;
    let run_id = running.start_scene().await;
    // One of `gm`, and three of `elara`.
    running.until_handled(&run_id, 4).await;
    let of_gm = |messages: Vec<contracts::tavern::agent::v1::Message>| messages.len() / 2;
    let conversation = format!("{run_id}.gm");
    assert_eq!(of_gm(running.messages(&conversation).await), 1);
    // An event without subscribers is a change too.
    running
        .publish(event(&run_id, "weather.turns", &json!({})))
        .await
        .unwrap();
    running.until_handled(&run_id, 8).await;
    assert_eq!(of_gm(running.messages(&conversation).await), 2);
    running.end_scene(&run_id).await;
}

#[tokio::test]
async fn the_world_state_of_a_scene_is_deleted_with_its_run() {
    let running = world(&scene(), &answers(0), &answers(0)).build().await;
    let run_id = running.start_scene().await;
    let delete = || DeleteRunRequest {
        run_id: run_id.clone(),
    };
    let read = || GetWorldStateRequest {
        scene: Some(Read::RunId(run_id.clone())),
        ..GetWorldStateRequest::default()
    };
    running.runs.clone().delete_run(delete()).await.unwrap_err();
    running
        .world_states()
        .get_world_state(read())
        .await
        .unwrap();
    running.end_scene(&run_id).await;
    running.runs.clone().delete_run(delete()).await.unwrap();
    let gone = running
        .world_states()
        .get_world_state(read())
        .await
        .unwrap_err();
    assert_eq!(grpc_kit::reason(&gone), Some(ErrorReason::SceneNotRunning));
}

#[tokio::test]
async fn g409_a_storage_that_does_not_answer_is_no_change() {
    let mut scene = scene();
    scene["agent_instances"][0]["custom_runtime_config"] = json!({"deliberation_frequency_hz": 2});
    scene["agent_instances"][1]["custom_runtime_config"] =
        json!({"deliberation_frequency_hz": 2, "tavern": {"tick_when_idle": true}});
    let world = world(&scene, &answers(20), &answers(40));
    let running = world.build().await;
    let run_id = running.start_scene().await;
    // One of `gm`, and three of `elara`, who thinks when she is idle too: so she has ticks.
    running.until_handled(&run_id, 4).await;
    let conversation = format!("{run_id}.gm");
    let path = world.settings.data_dir.join("agent-runtime.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut door = options.connect().await.unwrap();
    // Text that is not JSON cannot be read.
    for (request_id, handled) in [("CAST(x'ff' AS TEXT)", 8), ("''", 12)] {
        let change = format!(
            "UPDATE private_states SET request_id = {request_id} WHERE conversation_id = ?"
        );
        let changed = sqlx::query(sqlx::AssertSqlSafe(change)).bind(&conversation);
        let changed = changed.execute(&mut door).await.unwrap();
        assert_eq!(changed.rows_affected(), 1);
        running.until_handled(&run_id, handled).await;
    }
    assert_eq!(running.messages(&conversation).await.len() / 2, 1);
    running.end_scene(&run_id).await;
}
