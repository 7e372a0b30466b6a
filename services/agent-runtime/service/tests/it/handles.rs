//! Outputs that are too long for a model: their handles, and the tools that read them.

use contracts::tavern::agent::v1::StartTurnRequest;
use doubles::{Behaviour, TestRegistry};
use serde_json::{Value, json};

use crate::world::{World, says};

const LOOK: &str = "<ACTION><Look><at>it</at></Look></ACTION>";
const READ: &str = "<ACTION><system__read_stream><handle>h</handle></system__read_stream></ACTION>";

/// A registry with a tool whose output is too long for a model, and the tools for handles.
fn registry() -> TestRegistry {
    let part = json!({"state": "succeeded", "text": "the rest"});
    TestRegistry::default()
        .double()
        .gives("Look", &["at"], Value::String("x".repeat(70_000)))
        .gives("system:read_stream", &["handle"], part)
        .gives("system:list_handles", &[], json!({"handles": []}))
        .gives("system:cancel", &["handle"], json!({}))
}

#[tokio::test]
async fn the_tools_for_handles_are_there_once_a_handle_was_given() {
    let tools = json!([
        "system__read_stream",
        "system__list_handles",
        "system__cancel"
    ]);
    let says_handle = json!([
        "JSON text of 70002 bytes",
        "the rest is kept under the handle",
        "system:read_stream"
    ]);
    let turns = json!([
        {"expect": {"system_lacks": tools}, "answer": {"text": READ}},
        {
            "expect": {"system_lacks": tools, "last_contains": ["is not available"]},
            "answer": {"text": LOOK}
        },
        {
            "expect": {"system_contains": tools, "last_contains": says_handle},
            "answer": {"text": READ}
        },
        {"expect": {"last_contains": ["the rest"]}, "answer": {"text": "Read."}},
        {"expect": {"system_contains": tools}, "answer": {"text": "Still there."}}
    ]);
    let world = World::new(registry(), &["Look"], &turns);
    let running = world.build().await;
    let first = running.play(says("look")).await;
    assert_eq!(first.text(), "Read.", "{}", first.error_message());
    let same = StartTurnRequest {
        conversation_id: first.run.conversation_id.clone(),
        ..says("and now?")
    };
    let second = running.play(same).await;
    assert_eq!(second.text(), "Still there.", "{}", second.error_message());
    let calls = world.registry.asked().into_iter();
    let asked: Vec<String> = calls.map(|call| call.tool_id).collect();
    assert_eq!(asked, ["Look", "system:read_stream"]);
}

#[tokio::test]
async fn t27_a_call_that_asks_for_no_reply_is_started_and_read_later() {
    for render in [
        "<|[REQUEST_TOOL]|>\ncommand:「始」Render「末」\narchery:「始」no_reply「末」\n\
         scene:「始」dawn「末」\n<|[END_TOOL]|>",
        "<ACTION><Render><archery>no_reply</archery><scene>dawn</scene></Render></ACTION>",
        "<ACTION><Render archery=\"no_reply\"><scene>dawn</scene></Render></ACTION>",
    ] {
        let turns = json!([
            {"expect": {"system_lacks": ["system__read_stream"]}, "answer": {"text": render}},
            {
                "expect": {
                    "system_contains": ["system__read_stream"],
                    "last_contains": ["\"state\":\"running\"", "\"handle\":\"", "is not waited for"]
                },
                "answer": {"text": READ}
            },
            {"expect": {"last_contains": ["the rest"]}, "answer": {"text": "Rendered."}}
        ]);
        let registry = registry().tool("Render", &["scene"], Behaviour::Hangs);
        let world = World::new(registry, &["Render"], &turns);
        let running = world.build().await;
        let ended = running.play(says("render")).await;
        assert_eq!(ended.text(), "Rendered.", "{}", ended.error_message());
        assert_eq!(world.registry.dispatches().len(), 2, "{render}");
    }
}
