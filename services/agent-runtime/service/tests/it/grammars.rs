//! Answers that keep to the grammar of the visible tools' calls.

use doubles::TestRegistry;
use model_client::{GrammarUse, ModelSettings};
use serde_json::json;

use crate::{
    endpoint::{Endpoint, end, settings, stream_head, text},
    world::{World, says},
};

const CALL: &str = "<ACTION>\n<look>\n<at>shelf</at>\n</look>\n</ACTION>";

/// Plays a turn of two requests and returns the grammar of each.
async fn grammars(used: GrammarUse) -> [Option<String>; 2] {
    let endpoint = Endpoint::start(vec![
        vec![stream_head(), text(CALL), end("stop")],
        vec![stream_head(), text("A book."), end("stop")],
    ])
    .await;
    let registry = TestRegistry::default().gives("look", &["at"], json!("a book"));
    let mut world = World::new(registry, &["look"], &json!([]));
    let mut model = settings(&endpoint);
    model.api_key_env = None;
    model.grammar = used;
    let model = ModelSettings::Openai(model);
    world.settings.models.insert("play".to_owned(), model);
    let running = world.build().await;
    let ended = running.play(says("What is on the shelf?")).await;
    assert_eq!(ended.error_message(), "");
    let received = endpoint.received();
    assert_eq!(received.len(), 2);
    [0, 1].map(|index| received[index].body["grammar"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn the_first_answer_of_a_turn_may_be_required_to_hold_a_call() {
    let [first, second] = grammars(GrammarUse::CallFirst).await;
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.starts_with("root ::= prose block\n"), "{first}");
    assert!(second.starts_with("root ::= prose block?\n"), "{second}");
    assert!(first.contains("\"<look>\\n\""), "{first}");
}

#[tokio::test]
async fn a_grammar_is_sent_only_where_the_settings_say_so() {
    assert_eq!(grammars(GrammarUse::None).await, [None, None]);
    let [first, _] = grammars(GrammarUse::Free).await;
    assert!(first.unwrap().starts_with("root ::= prose block?\n"));
}
