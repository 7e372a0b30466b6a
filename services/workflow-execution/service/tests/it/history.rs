//! Conversations that nodes read and extend.

use serde_json::{Value, json};

use crate::support::*;

fn load(limit: u64) -> Value {
    json!({
        "nodes": [
            {"id": "load", "type": "core:HistoryLoad", "configValues": {"limit": limit},
             "inputValues": {"conversation_id": "c"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("load", "messages", "out", "messages"), edge("load", "revision", "out", "revision")],
        "interfaceOutputs": {"messages": {"dataFlowType": "ARRAY"}, "revision": {"dataFlowType": "STRING"}},
    })
}

fn save(messages: &[(&str, &str)], expected_revision: &str) -> Value {
    let messages: Vec<Value> = messages
        .iter()
        .map(|(role, content)| json!({"role": role, "content": content}))
        .collect();
    json!({
        "nodes": [
            {"id": "save", "type": "core:HistorySave", "inputValues": {
                "conversation_id": "c", "messages": messages, "expected_revision": expected_revision}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("save", "revision", "out", "revision")],
        "interfaceOutputs": {"revision": {"dataFlowType": "STRING"}},
    })
}

#[tokio::test]
async fn the_newest_messages_are_loaded_in_their_order() {
    let world = World::new().await;
    world.conversations.say("c", &["a", "b", "c", "d", "e"]);
    let outcome = world.run(&load(3), json!({})).await;
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let newest = json!([
        message("user", "c"),
        message("assistant", "d"),
        message("user", "e")
    ]);
    assert_eq!(
        result(&outcome),
        json!({"messages": newest, "revision": "1"})
    );
}

#[tokio::test]
async fn a_conversation_that_has_not_begun_is_empty() {
    let world = World::new().await;
    let outcome = world.run(&load(3), json!({})).await;
    assert_eq!(result(&outcome), json!({"messages": [], "revision": "0"}));
}

#[tokio::test]
async fn w35_only_what_is_new_is_appended_and_a_repetition_appends_nothing() {
    let world = World::new().await;
    world.conversations.say("c", &["a", "b"]);
    let chat = [("user", "a"), ("assistant", "b"), ("user", "c")];
    for _ in 0..2 {
        let outcome = world.run(&save(&chat, ""), json!({})).await;
        assert_eq!(result(&outcome), json!({"revision": "2"}));
        assert_eq!(world.conversations.texts("c"), ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn w35_a_conversation_that_was_changed_since_is_not_extended() {
    let world = World::new().await;
    world.conversations.say("c", &["a"]);
    world.conversations.say("c", &["b"]);
    let outcome = world.run(&save(&[("user", "x")], "1"), json!({})).await;
    assert_eq!(outcome.error.unwrap().code, "revision_mismatch");
    assert_eq!(world.conversations.texts("c"), ["a", "b"]);
}

#[tokio::test]
async fn declarations_of_tools_are_not_saved() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            {"id": "prompt", "type": "core:DecisionPrompt",
             "inputValues": {"user_query": "Go.", "tools": [{"name": "echo", "description": "x"}]}},
            {"id": "save", "type": "core:HistorySave", "inputValues": {"conversation_id": "c"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("prompt", "messages", "save", "messages"), edge("save", "revision", "out", "revision")],
        "interfaceOutputs": {"revision": {"dataFlowType": "STRING"}},
    });
    world.run(&definition, json!({})).await;
    assert_eq!(world.conversations.texts("c"), ["Go."]);
}
