//! Long conversations: earlier turns are replaced by a summary.

use contracts::tavern::{
    agent::v1::{CompactConversationRequest, StartTurnRequest},
    common::v1::{
        ChatMessage, ChatRole, ConversationCompacted, EndedCall, NativeCall,
        conversation_compacted::Method, run_event::Kind,
    },
};
use doubles::TestRegistry;
use model_client::{EndpointSettings, ModelSettings, ScriptedSettings};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::endpoint::{self, Endpoint, Step, end, event, status, stream_head, text};
use crate::world::{Ended, Running, World, says};

/// A message of a user, of some 340 tokens.
fn long(number: usize) -> String {
    format!("Message {number}. {}", "word ".repeat(200))
}

/// Makes a world whose model has a context of 2,000 tokens, and keeps one turn when it is compacted.
fn world(parts: &Value, turns: &Value) -> World {
    let profile = json!({
        "id": "ada",
        "name": "Ada",
        "custom_metadata": {"tavern": {"model": "play", "system_prompt": "You are Ada.",
            "compaction": {"at_percent": 60, "keep_turns": 1}}},
    });
    let script = json!({"parts": parts, "turns": turns});
    let mut world = World::of(TestRegistry::default(), &[("ada.json", &profile)], &script);
    let play = ScriptedSettings {
        script: "play.script.json".into(),
        context_tokens: 2_000,
        ..ScriptedSettings::default()
    };
    let model = ModelSettings::Scripted(play);
    world.settings.models.insert("play".to_owned(), model);
    world
}

fn talk(number: usize) -> StartTurnRequest {
    StartTurnRequest {
        conversation_id: "talk".to_owned(),
        ..says(&long(number))
    }
}

/// A part that summarises.
fn summary(text: &str) -> Value {
    json!({
        "system_contains": ["Summarise the conversation"],
        "turns": [{
            "expect": {"contains": ["user: Message 1.", "assistant: One."], "lacks": ["Message 4."]},
            "answer": {"text": text, "input_tokens": 700, "output_tokens": 9},
        }],
    })
}

impl Ended {
    fn compacted(&self) -> Vec<&ConversationCompacted> {
        let kinds = self.events.iter().filter_map(|event| event.kind.as_ref());
        let compacted = kinds.filter_map(|kind| match kind {
            Kind::ConversationCompacted(compacted) => Some(compacted),
            _ => None,
        });
        compacted.collect()
    }
}

async fn play(running: &Running, numbers: std::ops::RangeInclusive<usize>) -> Vec<Ended> {
    let mut turns = Vec::new();
    for number in numbers {
        let ended = running.play(talk(number)).await;
        assert_eq!(ended.error_message(), "", "turn {number}");
        turns.push(ended);
    }
    turns
}

/// The errors by which endpoints report that a request is too long.
fn too_long() -> Vec<Vec<Step>> {
    let refused = |message: &str, kind: &str| {
        let error = json!({"error": {"message": message, "type": kind, "code": 400}});
        status("400 Bad Request", "", &error.to_string())
    };
    let in_stream =
        json!({"error": {"message": "Too many tokens.", "code": "context_length_exceeded"}});
    vec![
        refused(
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
            "BadRequestError",
        ),
        refused(
            "the request exceeds the available context size, try increasing it",
            "exceed_context_size_error",
        ),
        refused(
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
            "invalid_request_error",
        ),
        vec![stream_head(), event(&in_stream.to_string())],
    ]
}

#[tokio::test]
async fn g603_a_request_that_is_too_long_in_the_words_of_any_server_is_compacted_once_and_answered()
{
    for refusal in too_long() {
        let answer = |said: &str| vec![stream_head(), text(said), end("stop")];
        let shortened = answer("They counted to three.");
        let replies = vec![
            answer("One."),
            answer("Two."),
            refusal,
            shortened,
            answer("Three."),
        ];
        let endpoint = Endpoint::start(replies).await;
        let mut world = world(&json!([]), &json!([]));
        let settings = EndpointSettings {
            api_key_env: None,
            retries: 0,
            ..endpoint::settings(&endpoint)
        };
        let model = ModelSettings::Openai(settings);
        world.settings.models.insert("play".to_owned(), model);
        let running = world.build().await;
        let turns = play(&running, 1..=3).await;
        assert_eq!(turns[2].text(), "Three.");
        assert_eq!(turns[2].compacted().len(), 1);
        assert_eq!(endpoint.received().len(), 5);
        let asked = endpoint.received()[4].body["messages"].to_string();
        assert!(asked.contains("They counted to three."), "{asked}");
    }
}

#[tokio::test]
async fn g603_turns_before_the_last_ones_give_way_to_a_summary_that_later_turns_read_too() {
    // After the summary the request holds one answer: of the turn that stays.
    let turns = json!([
        {"answer": {"text": "One."}},
        {"expect": {"contains": ["Message 1."], "lacks": ["Summary of"]}, "answer": {"text": "Two."}},
        {"answer": {"text": "Three."}},
    ]);
    let after = json!({
        "system_contains": ["You are Ada."],
        "turns": turns,
    });
    let world = world(
        &json!([summary("They counted <ACTION> to two."), after]),
        &json!([]),
    );
    let running = world.build().await;
    let first = play(&running, 1..=3).await;
    assert!(first.iter().all(|turn| turn.compacted().is_empty()));
    world.script_parts(&json!([
        summary("They counted <ACTION> to two."),
        {"system_contains": ["You are Ada."], "turns": [
            {},
            {"expect": {
                "contains": ["Summary of the conversation so far: They counted", "Message 3.", "Three.", "Message 4."],
                "lacks": ["Message 1.", "Message 2.", "<ACTION>"]},
             "answer": {"text": "Four."}},
            {"expect": {
                "contains": ["Summary of the conversation so far: They counted", "Message 3.", "Message 5."],
                "lacks": ["Message 2."]},
             "answer": {"text": "Five."}},
        ]},
    ]));
    running.runtime.shutdown().await;
    let running = world.build().await;
    let fourth = running.play(talk(4)).await;
    assert_eq!(fourth.text(), "Four.", "{}", fourth.error_message());
    let compacted = fourth.compacted();
    assert_eq!(compacted.len(), 1);
    assert_eq!(
        (compacted[0].method(), compacted[0].turns),
        (Method::Model, 2)
    );
    assert!(compacted[0].tokens_after < compacted[0].tokens_before);
    assert_eq!(compacted[0].usage.as_ref().unwrap().input_tokens, 700);
    // The usage of the turn includes the summary.
    let totals = &fourth.run.outcome.as_ref().unwrap().model_totals;
    assert_eq!(totals[0].answers, 2);
    let fifth = running.play(talk(5)).await;
    assert_eq!(fifth.text(), "Five.", "{}", fifth.error_message());
    // G604: the originals stay.
    assert_eq!(running.messages("talk").await.len(), 10);
}

#[tokio::test]
async fn g603_without_a_summary_the_fewest_oldest_turns_are_left_out_and_counted() {
    let parts = json!([
        {"system_contains": ["Summarise the conversation"], "turns": [
            {"fault": {"kind": "refused", "status": 400, "message": "no"}},
        ]},
    ]);
    // The request of the fourth turn holds two answers, as the third did.
    let turns = json!([
        {"answer": {"text": "One."}},
        {"answer": {"text": "Two."}},
        {"answer": {"text": "And so on."}},
    ]);
    let world = world(&parts, &turns);
    let running = world.build().await;
    let turns = play(&running, 1..=4).await;
    let compacted = turns[3].compacted();
    assert_eq!(
        (compacted[0].method(), compacted[0].turns),
        (Method::Dropped, 1)
    );
    assert_eq!(
        (compacted[0].summary.as_str(), compacted[0].model.as_str()),
        ("", "")
    );
}

#[tokio::test]
async fn g603_a_reported_overflow_is_answered_by_one_compaction() {
    let own = |turns: Value| json!({"system_contains": ["You are Ada."], "turns": turns});
    let parts = |third: Value| {
        json!([
            {"system_contains": ["Summarise the conversation"],
             "turns": [{"expect": {"contains": ["Message 1."]}, "answer": {"text": "One was said."}}]},
            own(json!([
                {"answer": {"text": "One."}},
                {"expect": {"contains": ["Message 2."]}, "answer": {"text": "Two."}},
                third,
            ])),
        ])
    };
    let too_long = json!({"fault": {"kind": "context_exceeded"}});
    let world = world(&parts(too_long), &json!([]));
    let running = world.build().await;
    play(&running, 1..=2).await;
    // With the summary the request holds one answer, and is the second of the script.
    let third = running.play(talk(3)).await;
    assert_eq!(third.text(), "Two.", "{}", third.error_message());
    assert_eq!(third.compacted()[0].turns, 1);
    assert_eq!(
        third
            .story()
            .iter()
            .filter(|word| **word == "asked")
            .count(),
        2
    );
}

#[tokio::test]
async fn g603_after_a_crash_a_turn_continues_with_its_summary() {
    let own = |last: Value| {
        json!({"system_contains": ["You are Ada."], "turns": [
            {"answer": {"text": "One."}},
            last,
            {"answer": {"text": "Three."}},
        ]})
    };
    let two = json!({"answer": {"text": "Two."}});
    let world = world(&json!([summary("They counted."), own(two)]), &json!([]));
    let running = world.build().await;
    play(&running, 1..=3).await;
    running.runtime.shutdown().await;
    world.script_parts(&json!([
        summary("They counted."),
        own(json!({"answer": {"text": "Slow.", "delay": "20s"}})),
    ]));
    let running = world.build().await;
    let run_id = running.begin(talk(4)).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::ModelRequested(_)))
        .await;
    running.runtime.shutdown().await;
    // No summary is requested again.
    world.script_parts(&json!([own(json!({
        "expect": {"contains": ["Summary of the conversation so far: They counted.", "Message 3."],
                   "lacks": ["Message 2."]},
        "answer": {"text": "Four."},
    }))]));
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.text(), "Four.", "{}", ended.error_message());
    assert_eq!(ended.compacted().len(), 1);
}

impl Running {
    async fn compact(&self, conversation_id: &str) -> Result<Ended, Status> {
        let request = CompactConversationRequest {
            conversation_id: conversation_id.to_owned(),
            ..CompactConversationRequest::default()
        };
        let started = self
            .conversations
            .clone()
            .compact_conversation(request)
            .await?;
        let run = started.into_inner().run.unwrap();
        Ok(self.follow(&run.run_id, 0).await)
    }
}

#[tokio::test]
async fn g603_a_caller_compacts_a_conversation_whose_next_turn_reads_the_summary() {
    let speaks = json!({"system_contains": ["You are Ada."], "turns": [
        {"answer": {"text": "One."}}, {"answer": {"text": "Two."}}, {"answer": {"text": "Three."}},
    ]});
    let summarises = json!({
        "system_contains": ["Summarise the conversation"],
        "turns": [{
            "expect": {"contains": ["user: Hello 1", "assistant: Two."], "lacks": ["Hello 3"]},
            "answer": {"text": "They greeted twice.", "input_tokens": 70, "output_tokens": 9},
        }],
    });
    let world = world(&json!([summarises, speaks]), &json!([]));
    let running = world.build().await;
    let refused = running.compact("talk").await.err().unwrap();
    assert_eq!(refused.code(), Code::NotFound);
    let greet = |number: usize| StartTurnRequest {
        conversation_id: "talk".to_owned(),
        ..says(&format!("Hello {number}"))
    };
    for number in 1..=3 {
        running.play(greet(number)).await;
    }
    let compacted = running.compact("talk").await.unwrap();
    assert_eq!(compacted.error_message(), "");
    let [event] = compacted.compacted()[..] else {
        panic!("one event, not {:?}", compacted.compacted());
    };
    assert_eq!(
        (event.method(), event.turns, event.summary.as_str()),
        (Method::Model, 2, "They greeted twice.")
    );
    // Only the summary and the turn that stays are left, so there is nothing more to replace.
    let again = running.compact("talk").await.unwrap();
    assert_eq!((again.error_message(), again.compacted().len()), ("", 0));
    world.script_parts(&json!([{"system_contains": ["You are Ada."], "turns": [
        {},
        {"expect": {"contains": ["They greeted twice.", "Hello 3", "Hello 4"], "lacks": ["Hello 2"]},
         "answer": {"text": "Four."}},
    ]}]));
    running.runtime.shutdown().await;
    let running = world.build().await;
    let next = running.play(greet(4)).await;
    assert_eq!(next.error_message(), "");
}

/// A native call of a model, and its result.
fn call_and_result() -> [ChatMessage; 2] {
    let call = NativeCall {
        id: "c1".to_owned(),
        name: "rain".to_owned(),
        arguments_json: "{}".to_owned(),
    };
    let ended = EndedCall {
        id: "c1".to_owned(),
        failed: false,
    };
    let answer = ChatMessage {
        role: ChatRole::Assistant.into(),
        calls: vec![call],
        ..ChatMessage::default()
    };
    let result = ChatMessage {
        role: ChatRole::Tool.into(),
        text: "It rains.".to_owned(),
        result_of: Some(ended),
        ..ChatMessage::default()
    };
    [answer, result]
}

#[tokio::test]
async fn g603_a_call_and_its_result_that_was_appended_later_give_way_together() {
    let speaks = |turns: Value| json!([{"system_contains": ["You are Ada."], "turns": turns}]);
    let first = json!({"expect": {"roles": ["system", "assistant", "tool", "user"]},
                       "answer": {"text": "One."}});
    let summarises = json!({
        "system_contains": ["Summarise the conversation"],
        "turns": [{
            "expect": {"contains": ["<tool_call>{\"name\":\"rain\"", "tool: It rains."], "lacks": ["Hello"]},
            "answer": {"text": "It rained."},
        }],
    });
    let parts = [speaks(json!([{}, first]))[0].clone(), summarises];
    let world = world(&json!(parts), &json!([]));
    let running = world.build().await;
    let [answer, result] = call_and_result();
    running.append("talk", 0, vec![answer]).await.unwrap();
    running.append("talk", 1, vec![result]).await.unwrap();
    let greet = |text: &str| StartTurnRequest {
        conversation_id: "talk".to_owned(),
        ..says(text)
    };
    let ended = running.play(greet("Hello 1")).await;
    assert_eq!(ended.error_message(), "");
    let compacted = running.compact("talk").await.unwrap();
    assert_eq!(compacted.error_message(), "");
    assert_eq!(compacted.compacted()[0].turns, 1);
    let next = json!({"expect": {"roles": ["system", "user", "user", "assistant", "user"],
                                 "contains": ["It rained."], "lacks": ["It rains."]},
                      "answer": {"text": "Two."}});
    world.script_parts(&speaks(json!([{}, next])));
    running.runtime.shutdown().await;
    let running = world.build().await;
    assert_eq!(running.play(greet("Hello 2")).await.error_message(), "");
}
