//! Blocks that open with a nonce of the turn (rule G1006).

use contracts::tavern::common::v1::run_event::Kind;
use doubles::TestRegistry;
use model_client::ModelSettings;
use serde_json::{Value, json};

use crate::{
    endpoint::{Endpoint, Step, end, settings, stream_head, text},
    world::{Ended, World, says},
};

const CALL: &str = "<look>\n<at>shelf</at>\n</look>\n</ACTION>";

/// Returns the mark that the last message of a request states.
fn mark(request: &Value) -> String {
    let last = request["messages"].as_array().unwrap().last().unwrap();
    let last = last["content"].as_str().unwrap();
    let from = last.find("<ACTION n=").unwrap();
    let end = from + last[from..].find('>').unwrap() + 1;
    last[from..end].to_owned()
}

/// Plays a turn of an agent whose blocks have a nonce, against a model with these answers.
async fn play(replies: Vec<Vec<Step>>) -> (Endpoint, World, Ended) {
    let endpoint = Endpoint::start(replies).await;
    let registry = TestRegistry::default().gives("look", &["at"], json!("a book"));
    let profile = json!({
        "id": "ada", "name": "Ada", "tool_ids_inventory": ["look"],
        "custom_metadata": {"tavern": {"model": "play", "system_prompt": "You are Ada.", "nonce": true}},
    });
    let mut world = World::of(registry, &[("ada.json", &profile)], &json!({"turns": []}));
    let mut model = settings(&endpoint);
    model.api_key_env = None;
    let model = ModelSettings::Openai(model);
    world.settings.models.insert("play".to_owned(), model);
    let ended = world
        .build()
        .await
        .play(says("What is on the shelf?"))
        .await;
    assert_eq!(ended.error_message(), "");
    (endpoint, world, ended)
}

#[tokio::test]
async fn g1006_a_block_with_the_nonce_that_the_prompt_states_is_carried_out() {
    let calls = Step::Answer(|request| {
        let Step::Send(text) = text(&format!("{}{CALL}", mark(request))) else {
            unreachable!("a text is sent");
        };
        text
    });
    let (endpoint, world, ended) = play(vec![
        vec![stream_head(), calls, end("stop")],
        vec![stream_head(), text("A book."), end("stop")],
    ])
    .await;
    assert_eq!(ended.text(), "A book.");
    assert_eq!(world.registry.dispatches().len(), 1);
    let received = endpoint.received();
    let marks = [0, 1].map(|index| mark(&received[index].body));
    assert_eq!(marks[0], marks[1], "one nonce for the whole turn");
}

#[tokio::test]
async fn g1006_a_block_without_the_nonce_is_text_with_a_diagnostic() {
    let block = text(&format!("<ACTION>{CALL}"));
    let (_endpoint, world, ended) = play(vec![vec![stream_head(), block, end("stop")]]).await;
    assert!(world.registry.dispatches().is_empty());
    assert_eq!(ended.text(), format!("<ACTION>{CALL}"));
    let codes = ended.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::Diagnosed(diagnosed)) => Some(diagnosed.diagnostic.as_ref()?.code.as_str()),
        _ => None,
    });
    assert!(codes.into_iter().any(|code| code == "nonce_missing"));
}
