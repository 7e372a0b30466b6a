//! Conversations without changes for a long time.

use std::time::Duration;

use contracts::tavern::{
    agent::v1::{GetConversationRequest, StartTurnRequest},
    common::v1::ErrorReason,
    run::v1::GetRunRequest,
};
use doubles::{Behaviour, TestRegistry};
use run_events::RetentionSettings;
use serde_json::{Value, json};

use crate::{
    scenes::{event, scene, world},
    world::{Running, World, says},
};

const KEPT: Duration = Duration::from_secs(2);

impl Running {
    async fn has_conversation(&self, conversation_id: &str) -> bool {
        let request = GetConversationRequest {
            conversation_id: conversation_id.to_owned(),
        };
        let found = self.conversations.clone().get_conversation(request).await;
        match found {
            Ok(_) => true,
            Err(status) => {
                let reason = grpc_kit::reason(&status);
                assert_eq!(reason, Some(ErrorReason::ConversationNotFound));
                false
            }
        }
    }

    async fn until_gone(&self, conversation_id: &str) {
        while self.has_conversation(conversation_id).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn has_run(&self, run_id: &str) -> bool {
        let run_id = run_id.to_owned();
        let found = self.runs.clone().get_run(GetRunRequest { run_id }).await;
        found.is_ok()
    }

    /// Plays a turn of a conversation and waits until it is gone.
    async fn play_until_gone(&self, conversation_id: &str) {
        let request = StartTurnRequest {
            profile_id: "elara".to_owned(),
            conversation_id: conversation_id.to_owned(),
            ..says("Good evening.")
        };
        let ended = self.play(request).await;
        assert_eq!(ended.text(), "So be it.", "{}", ended.error_message());
        self.until_gone(conversation_id).await;
        assert!(!self.has_run(&ended.run.run_id).await);
    }
}

fn answers(turns: usize) -> Value {
    Value::Array(vec![json!({"answer": {"text": "So be it."}}); turns])
}

/// A world that keeps runs briefly, and conversations for a time.
fn brief(conversations: Duration) -> World {
    let mut world = world(&scene(), &answers(1), &answers(1));
    // With a tool it is tool-registry itself, which is called before a deletion.
    world.registry = TestRegistry::default().tool("Note", &["text"], Behaviour::Hangs);
    world.settings.retention = RetentionSettings {
        succeeded: KEPT,
        failed: KEPT,
    };
    world.settings.conversation_retention = conversations;
    world
}

#[tokio::test]
async fn a_conversation_goes_with_its_turns_once_it_is_quiet_and_its_scene_is_over() {
    let world = brief(KEPT);
    let running = world.build().await;
    let scene = running.start_scene().await;
    let first = event(&scene, "player.action.step", &json!({}));
    running.publish(first).await.unwrap();
    running.until_handled(&scene, 1).await;
    running.runtime.recover().await.unwrap();
    // Two later conversations, one after the other: whole passes were made since the agent's one is
    // old.
    running.play_until_gone("quiet").await;
    running.play_until_gone("later").await;
    let of_agent = format!("{scene}.gm");
    assert!(running.has_conversation(&of_agent).await);
    assert!(!running.messages(&of_agent).await.is_empty());
    assert!(running.has_run(&scene).await);
    running.end_scene(&scene).await;
    running.until_gone(&of_agent).await;
    while running.has_run(&scene).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(running.world_at(&scene, "/weather").await.is_err());
}

#[tokio::test]
async fn conversations_are_kept_for_ever_if_that_is_asked_for() {
    let world = brief(Duration::ZERO);
    let running = world.build().await;
    let kept = StartTurnRequest {
        profile_id: "elara".to_owned(),
        conversation_id: "kept".to_owned(),
        ..says("Good evening.")
    };
    let kept = running.play(kept).await;
    let scene = running.start_scene().await;
    running.end_scene(&scene).await;
    running.runtime.recover().await.unwrap();
    // The scene ended later than the turn.
    while running.has_run(&scene).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(running.has_run(&kept.run.run_id).await);
    assert!(running.has_conversation("kept").await);
}
