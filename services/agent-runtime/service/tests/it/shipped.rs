//! The agents and scripts of the project, with a double of the registry whose tools answer as the
//! real ones do.

use std::{path::PathBuf, sync::Arc};

use contracts::tavern::{
    agent::v1::{StartTurnRequest, start_turn_request::Input},
    common::v1::run_event::Kind,
};
use doubles::{Behaviour, TestRegistry};
use model_client::{ModelSettings, ScriptedSettings};
use serde_json::{Value, json};

use crate::world::{Ended, Running, World};

const NOTE: &str = "The bridge was built in 1431.\nIt has 7 arches & was restored in 1602 <by the guild>.\n\
    It stood 171 years before it was restored.";

fn deploy() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy"))
}

/// Builds a runtime on the shipped agents and scripts.
async fn shipped(registry: TestRegistry) -> (World, Running) {
    let mut world = World::of(registry, &[], &json!({"turns": []}));
    world.settings.agents_dir = deploy().join("agents");
    world.settings.scripts_dir = deploy().join("models");
    world.settings.models.clear();
    for file in std::fs::read_dir(deploy().join("models")).unwrap() {
        let script = PathBuf::from(file.unwrap().file_name());
        let name = script.to_string_lossy().replace(".script.json", "_script");
        world.settings.models.insert(
            name,
            ModelSettings::Scripted(ScriptedSettings {
                script,
                ..ScriptedSettings::default()
            }),
        );
    }
    let running = world.build().await;
    (world, running)
}

async fn says(running: &Running, profile_id: &str, conversation_id: &str, text: &str) -> Ended {
    let request = StartTurnRequest {
        profile_id: profile_id.to_owned(),
        conversation_id: conversation_id.to_owned(),
        input: Some(Input::UserMessage(text.to_owned())),
        ..StartTurnRequest::default()
    };
    running.play(request).await
}

fn gives(give: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Behaviour {
    Behaviour::Gives(Arc::new(give))
}

#[tokio::test]
async fn the_weather_guide_plays_its_two_turns() {
    let state = json!({"type": "object", "properties": {
        "path": {"type": "string"}, "default_value": {}}, "required": ["path"]});
    let registry = TestRegistry::default()
        .tool_with("ReadSampleWorldTool", &state, gives(|_| json!("sunny")))
        .tool(
            "GetPlayerInfo",
            &["player_id"],
            gives(|arguments| json!({"player_id": arguments["player_id"], "name": "Elara", "class": "ranger", "level": 7, "home": "Harbour"})),
        );
    let (_world, running) = shipped(registry).await;
    let first = says(
        &running,
        "weather_guide",
        "",
        "What is the weather like, and who is player123?",
    )
    .await;
    assert_eq!(
        first.text(),
        "The weather is sunny, and I have found player123 in the register of adventurers.",
        "{}",
        first.error_message()
    );
    assert_eq!(
        first.count(|kind| matches!(kind, Kind::CallDispatched(_))),
        2
    );
    let second = says(
        &running,
        "weather_guide",
        &first.run.conversation_id,
        "Is it a good day for an adventure?",
    )
    .await;
    assert!(
        second.text().ends_with("great day for an adventure!"),
        "{}",
        second.error_message()
    );
}

#[tokio::test]
async fn the_archivist_plays_its_turn() {
    let file = ["filePath", "content"];
    let registry = TestRegistry::default()
        .double()
        .tool(
            "FileOperator.WriteFile",
            &file,
            gives(|_| json!({"path": "notes/bridge.txt", "bytes": 84})),
        )
        .tool(
            "FileOperator.AppendFile",
            &file,
            gives(|_| json!({"path": "notes/bridge.txt", "bytes": 127})),
        )
        .tool(
            "FileOperator.ReadFile",
            &["filePath"],
            gives(|_| json!(NOTE)),
        )
        .tool(
            "workflow:summarize_text",
            &["text_to_summarize", "summary_length"],
            gives(|_| json!("The bridge was built in 1431.")),
        )
        .tool(
            "CodeInterpreter:execute",
            &["language", "code"],
            gives(|arguments| {
                assert_eq!(
                    arguments["code"],
                    "years = [1431, 1602]\nprint(years[1] - years[0])"
                );
                json!({"stdout": "171\n", "stderr": ""})
            }),
        );
    let (world, running) = shipped(registry).await;
    let text = "Keep this, please: The bridge was built in 1431. It has 7 arches & was restored in 1602 <by the guild>.";
    let ended = says(&running, "archivist", "", text).await;
    assert!(
        ended.text().contains("restored after 171 years"),
        "{}",
        ended.error_message()
    );
    assert_eq!(world.registry.dispatches().len(), 5);
}
