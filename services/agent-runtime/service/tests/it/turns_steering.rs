//! People send messages to a running turn, and change its budgets.

use contracts::tavern::{
    agent::v1::{
        Budgets, EditBudgetsRequest, EditBudgetsResponse, StartTurnRequest, SteerTurnRequest,
        SteerTurnResponse,
    },
    common::v1::{ErrorReason, StopReason, run_event::Kind},
};
use doubles::{Behaviour, TestRegistry};
use serde_json::json;
use tonic::Status;

use crate::{
    endpoint::{self, Endpoint, Step, end, stream_head, text},
    turns::call,
    turns_usage::world_with,
    world::{Running, World, says},
};

impl Running {
    async fn steer(&self, run_id: &str, message: &str) -> Result<SteerTurnResponse, Status> {
        self.steer_with(SteerTurnRequest {
            run_id: run_id.to_owned(),
            message: message.to_owned(),
            ..SteerTurnRequest::default()
        })
        .await
    }

    async fn steer_with(&self, request: SteerTurnRequest) -> Result<SteerTurnResponse, Status> {
        Ok(self.agent.clone().steer_turn(request).await?.into_inner())
    }

    async fn edit(&self, run_id: &str, budgets: Budgets) -> Result<EditBudgetsResponse, Status> {
        let request = EditBudgetsRequest {
            run_id: run_id.to_owned(),
            request_id: "edit-1".to_owned(),
            budgets: Some(budgets),
        };
        Ok(self.agent.clone().edit_budgets(request).await?.into_inner())
    }
}

fn hangs() -> TestRegistry {
    TestRegistry::default().tool("Look", &["at"], Behaviour::Hangs)
}

fn left(kind: &Kind) -> bool {
    matches!(kind, Kind::CallDispatched(_))
}

#[tokio::test]
async fn g810_a_message_is_read_after_the_calls_that_are_under_way() {
    let turns = json!([
        {"answer": {"text": call("Look", "at", "shelf")}},
        {
            "expect": {"last_is": "Only the top shelf.", "contains": ["Result: dust"]},
            "answer": {"text": "Dust on the top shelf."}
        }
    ]);
    let world = World::new(hangs(), &["Look"], &turns);
    let running = world.build().await;
    let run = running.begin(says("look")).await;
    running.until(&run, left).await;
    let request = SteerTurnRequest {
        run_id: run.clone(),
        request_id: "s-1".to_owned(),
        message: "Only the top shelf.".to_owned(),
        interrupt: false,
    };
    let early = running.steer_with(request.clone()).await.unwrap();
    assert_eq!(early.effect_sequence, 0, "the call has not ended");
    world.registry.release("Look", json!("dust"));
    let ended = running.follow(&run, 0).await;
    assert_eq!(
        ended.text(),
        "Dust on the top shelf.",
        "{}",
        ended.error_message()
    );
    let of = |wanted: fn(&Kind) -> bool| {
        let mut events = ended.events.iter();
        let found = events.find(|event| event.kind.as_ref().is_some_and(wanted));
        found.map(|event| event.sequence)
    };
    assert_eq!(
        of(|kind| matches!(kind, Kind::SteeringAccepted(_))),
        Some(early.accepted_sequence)
    );
    assert!(of(|kind| matches!(kind, Kind::Steered(_))) > Some(early.accepted_sequence));
    let late = running.steer_with(request).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&late), Some(ErrorReason::RunFinished));
}

#[tokio::test]
async fn g810_a_repeated_message_is_read_once() {
    let turns = json!([
        {"answer": {"text": call("Look", "at", "shelf")}},
        {"answer": {"text": "Done."}}
    ]);
    let world = World::new(hangs(), &["Look"], &turns);
    let running = world.build().await;
    let run = running.begin(says("look")).await;
    running.until(&run, left).await;
    let request = SteerTurnRequest {
        run_id: run.clone(),
        request_id: "s-1".to_owned(),
        message: "Hurry.".to_owned(),
        interrupt: false,
    };
    let (one, two) = tokio::join!(
        running.steer_with(request.clone()),
        running.steer_with(request)
    );
    assert_eq!(one.unwrap(), two.unwrap());
    world.registry.release("Look", json!("dust"));
    let ended = running.follow(&run, 0).await;
    assert_eq!(ended.count(|kind| matches!(kind, Kind::Steered(_))), 1);
}

#[tokio::test]
async fn g810_an_interrupt_drops_the_request_that_is_under_way() {
    let slow = vec![stream_head(), text("Let me think"), Step::Silence];
    let quick = vec![stream_head(), text("Blue."), end("stop")];
    let endpoint = Endpoint::start(vec![slow, quick]).await;
    let world = world_with(&endpoint, endpoint::settings(&endpoint));
    let running = world.build().await;
    let run = running.begin(says("Which colour?")).await;
    running
        .until(&run, |kind| matches!(kind, Kind::Text(_)))
        .await;
    let steered = running
        .steer_with(SteerTurnRequest {
            run_id: run.clone(),
            message: "Just say one.".to_owned(),
            interrupt: true,
            ..SteerTurnRequest::default()
        })
        .await
        .unwrap();
    assert!(steered.effect_sequence > steered.accepted_sequence);
    endpoint.client_gone().await;
    let ended = running.follow(&run, 0).await;
    assert_eq!(ended.text(), "Blue.");
    let [.., asked] = &endpoint.received()[..] else {
        panic!("the model was not asked");
    };
    let messages = asked.body["messages"].as_array().unwrap();
    let last = &messages[messages.len() - 1];
    assert_eq!(
        (&last["role"], &last["content"]),
        (&json!("user"), &json!("Just say one."))
    );
}

#[tokio::test]
async fn g810_a_turn_whose_model_is_about_to_stop_continues() {
    let turns = json!([
        {"answer": {"text": "Once upon a time.", "chunk": 1, "delay": "30ms"}},
        {"expect": {"last_is": "And then?"}, "answer": {"text": "They slept."}}
    ]);
    let world = World::new(TestRegistry::default(), &[], &turns);
    let running = world.build().await;
    let run = running.begin(says("a story")).await;
    running
        .until(&run, |kind| matches!(kind, Kind::Text(_)))
        .await;
    let steered = running.steer(&run, "And then?").await.unwrap();
    assert!(steered.effect_sequence > 0);
    let ended = running.follow(&run, 0).await;
    assert_eq!(ended.text(), "They slept.");
    let conversation = ended.run.conversation_id;
    let said: Vec<String> = running
        .messages(&conversation)
        .await
        .into_iter()
        .map(|message| message.text)
        .collect();
    assert_eq!(
        said,
        ["a story", "Once upon a time.", "And then?", "They slept."]
    );
}

#[tokio::test]
async fn g810_an_accepted_message_survives_a_crash() {
    let turns = json!([
        {"answer": {"text": call("Look", "at", "shelf")}},
        {"expect": {"last_is": "Only the top shelf."}, "answer": {"text": "Done."}}
    ]);
    let world = World::new(hangs(), &["Look"], &turns);
    let running = world.build().await;
    let run = running.begin(says("look")).await;
    running.until(&run, left).await;
    running.steer(&run, "Only the top shelf.").await.unwrap();
    running.runtime.shutdown().await;
    drop(running);
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    world.registry.release("Look", json!("dust"));
    let ended = running.follow(&run, 0).await;
    assert_eq!(ended.text(), "Done.", "{}", ended.error_message());
    assert_eq!(world.registry.dispatches().len(), 1);
}

#[tokio::test]
async fn g704_edited_budgets_are_in_force_from_their_sequence_on() {
    let turns = json!([
        {"answer": {"text": call("Look", "at", "one")}},
        {"expect": {"last_lacks": ["No calls remain"]}, "answer": {"text": call("Look", "at", "two")}},
        {"expect": {"last_contains": ["all of its 2 rounds"]}, "answer": {"text": "Enough."}}
    ]);
    let world = World::new(hangs(), &["Look"], &turns);
    let running = world.build().await;
    let budgets = |iterations| Budgets {
        iterations,
        ..Budgets::default()
    };
    let request = StartTurnRequest {
        budgets: Some(budgets(1)),
        ..says("look")
    };
    let run = running.begin(request).await;
    running.until(&run, left).await;
    let edited = running.edit(&run, budgets(2)).await.unwrap();
    assert_eq!(
        running.edit(&run, budgets(2)).await.unwrap(),
        edited,
        "asked again"
    );
    assert_eq!(edited.budgets.unwrap().iterations, 2);
    world.registry.release("Look", json!("dust"));
    let ended = running.follow(&run, 0).await;
    assert_eq!(
        (ended.text().as_str(), ended.stop_reason()),
        ("Enough.", StopReason::Iterations),
        "{}",
        ended.error_message()
    );
    let at = ended
        .events
        .iter()
        .find(|event| event.sequence == edited.effect_sequence);
    assert!(matches!(at.unwrap().kind, Some(Kind::BudgetsEdited(_))));
}

#[tokio::test]
async fn a_turn_that_does_not_exist_cannot_be_steered() {
    let running = World::new(hangs(), &["Look"], &json!([])).build().await;
    let unknown = running
        .steer("turn_00000000000000000000000000000000", "hello")
        .await;
    let reason = grpc_kit::reason(&unknown.unwrap_err());
    assert_eq!(reason, Some(ErrorReason::RunNotFound));
}
