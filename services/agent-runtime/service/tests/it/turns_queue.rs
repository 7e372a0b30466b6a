//! Turns of one conversation wait for each other (rule G407).

use contracts::tavern::{
    agent::v1::{GetConversationRequest, StartTurnRequest},
    common::v1::{ErrorReason, RunState, run_event::Kind},
};
use doubles::TestRegistry;
use serde_json::json;

use crate::world::{Running, World, says};

const TALK: &str = "talk";

fn talk(text: &str) -> StartTurnRequest {
    StartTurnRequest {
        conversation_id: TALK.to_owned(),
        ..says(text)
    }
}

fn world(turns: &serde_json::Value) -> World {
    World::new(TestRegistry::default(), &[], turns)
}

impl Running {
    /// Returns the turn in progress and the turns that wait for it.
    async fn queue(&self) -> (String, Vec<String>) {
        let request = GetConversationRequest {
            conversation_id: TALK.to_owned(),
        };
        let got = self.conversations.clone().get_conversation(request).await;
        let conversation = got.unwrap().into_inner().conversation.unwrap();
        (conversation.active_run_id, conversation.queued_run_ids)
    }
}

#[tokio::test]
async fn g407_a_message_to_a_busy_conversation_is_the_next_turn_and_visible_meanwhile() {
    let running = world(&json!([
        {"answer": {"text": "One.", "delay": "400ms"}},
        {"expect": {"contains": ["first", "One.", "second"], "lacks": ["third"]}, "answer": {"text": "Two."}},
        {"expect": {"contains": ["Two.", "third"]}, "answer": {"text": "Three."}},
    ]));
    let running = running.build().await;
    let mut runs = Vec::new();
    for text in ["first", "second", "third"] {
        runs.push(running.begin(talk(text)).await);
    }
    assert_eq!(running.queue().await, (runs[0].clone(), runs[1..].to_vec()));
    assert_eq!(running.run(&runs[1]).await.state(), RunState::Queued);
    let refused = StartTurnRequest {
        refuse_if_busy: true,
        ..talk("fourth")
    };
    let refused = running.start(refused).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::ConversationBusy)
    );
    for (run, expected) in runs.iter().zip(["One.", "Two.", "Three."]) {
        let ended = running.follow(run, 0).await;
        assert_eq!(ended.text(), expected, "{}", ended.error_message());
    }
    assert_eq!(running.queue().await, (String::new(), Vec::new()));
    let words = running.follow(&runs[1], 0).await.story();
    assert_eq!(words[..4], ["started", "queued", "dequeued", "iteration"]);
}

#[tokio::test]
async fn g407_a_turn_that_waits_can_be_cancelled_and_holds_nothing_back() {
    let running = world(&json!([
        {"answer": {"text": "One.", "delay": "400ms"}},
        {"expect": {"contains": ["third"]}, "answer": {"text": "Three."}},
    ]));
    let running = running.build().await;
    running.begin(talk("first")).await;
    let second = running.begin(talk("second")).await;
    let third = running.begin(talk("third")).await;
    running.cancel(&second).await;
    assert_eq!(running.run(&second).await.state(), RunState::Cancelled);
    assert_eq!(running.follow(&third, 0).await.text(), "Three.");
}

#[tokio::test]
async fn g407_turns_that_wait_keep_their_order_over_a_restart() {
    let world = world(&json!([
        {"answer": {"text": "One.", "delay": "500ms"}},
        {"expect": {"contains": ["One.", "second"]}, "answer": {"text": "Two."}},
        {"expect": {"contains": ["Two.", "third"]}, "answer": {"text": "Three."}},
    ]));
    let running = world.build().await;
    let mut runs = Vec::new();
    for text in ["first", "second", "third"] {
        runs.push(running.begin(talk(text)).await);
    }
    running
        .until(&runs[0], |kind| matches!(kind, Kind::ModelRequested(_)))
        .await;
    running.runtime.shutdown().await;
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    for (run, expected) in runs.iter().zip(["One.", "Two.", "Three."]) {
        let ended = running.follow(run, 0).await;
        assert_eq!(ended.text(), expected, "{}", ended.error_message());
    }
}

#[tokio::test]
async fn g407_sixty_four_turns_wait_and_one_more_is_refused() {
    let running = world(&json!([{"answer": {"text": "..."}, "fault": {"kind": "hang"}}]));
    let running = running.build().await;
    let first = running.begin(talk("first")).await;
    let mut waiting = Vec::new();
    for number in 0..64 {
        waiting.push(running.begin(talk(&format!("message {number}"))).await);
    }
    let refused = running.start(talk("one more")).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::ConversationBusy)
    );
    for run in waiting.iter().rev().chain([&first]) {
        running.cancel(run).await;
    }
    assert_eq!(running.queue().await, (String::new(), Vec::new()));
}
