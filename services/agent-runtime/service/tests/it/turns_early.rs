//! Calls that start, and requests that end, while the model is still writing.

use contracts::tavern::common::v1::{CallResult, CallStatus, RunEvent, RunState, run_event::Kind};
use doubles::{Behaviour, TestRegistry};
use serde_json::{Value, json};

use crate::world::{Ended, Running, World, says};

const LOOK: &str = "Looking. <ACTION><Look><at>x</at></Look></ACTION>";

fn looking() -> TestRegistry {
    TestRegistry::default()
        .gives("Look", &["at"], json!("seen"))
        .read_only("Look")
}

/// A model that has written `text` and never ends.
fn unfinished(text: &str) -> Value {
    json!([{"answer": {"text": text, "chunk": 5}, "fault": {"kind": "hang"}}])
}

async fn start(running: &Running, text: &str) -> String {
    running.begin(says(text)).await
}

fn results(ended: &Ended) -> Vec<CallResult> {
    let settled = |event: &RunEvent| match event.kind.as_ref()? {
        Kind::CallSettled(settled) => settled.result.clone(),
        _ => None,
    };
    ended.events.iter().filter_map(settled).collect()
}

fn effects(ended: &Ended) -> Vec<String> {
    let dispatched = |event: &RunEvent| match event.kind.as_ref()? {
        Kind::CallDispatched(call) => Some(call.effect_id.clone()),
        _ => None,
    };
    ended.events.iter().filter_map(dispatched).collect()
}

fn is_settled(kind: &Kind) -> bool {
    matches!(kind, Kind::CallSettled(_))
}

#[tokio::test]
async fn a_read_only_call_starts_and_ends_before_the_model_has_finished() {
    let turns = json!([
        {"answer": {"text": format!("{LOOK}<think>What will it be? I had better wait and see.</think>"),
                    "chunk": 4, "delay": "2ms"}},
        {"expect": {"last_is": "Observation: Tool Look executed successfully. Result: seen"},
         "answer": {"text": "I saw it."}}
    ]);
    let world = World::new(looking(), &["Look"], &turns);
    let ended = world.build().await.play(says("look")).await;
    assert_eq!(ended.text(), "I saw it.", "{}", ended.error_message());
    let story = ended.story();
    let place = |word: &str| story.iter().position(|line| *line == word).unwrap();
    assert!(place("text") < place("selected"), "{story:?}");
    assert!(place("dispatched") < place("thinking"), "{story:?}");
    assert!(place("settled") < place("answered"), "{story:?}");
    assert!(place("answered") < place("observed"), "{story:?}");
    assert_eq!(effects(&ended), [format!("{}/1/0", ended.run.run_id)]);
    assert_eq!(world.registry.dispatches().len(), 1);
}

#[tokio::test]
async fn a_call_that_could_change_something_waits_for_the_whole_answer() {
    let act = "<ACTION><Act><x>1</x></Act></ACTION>";
    let cases = [
        // A tool that has effects, and a read-only one after it.
        ("go", format!("{act}{LOOK}")),
        // A wrapper was supplied: the call is repaired.
        ("go", "<Look><at>x</at></Look></ACTION>".to_owned()),
    ];
    for (message, text) in cases {
        let registry = looking().gives("Act", &["x"], json!("done"));
        let turns = json!([{"answer": {"text": text, "chunk": 3}}, {"answer": {"text": "ok"}}]);
        let ended = World::new(registry, &["Act", "Look"], &turns)
            .build()
            .await
            .play(says(message))
            .await;
        assert_eq!(ended.text(), "ok", "{}", ended.error_message());
        let story = ended.story();
        let place = |word: &str| story.iter().position(|line| *line == word).unwrap();
        assert!(place("answered") < place("dispatched"), "{text}: {story:?}");
    }
}

#[tokio::test]
async fn a9_what_stands_before_a_lone_mark_was_a_thought_and_only_what_is_read_only_has_run() {
    let act = |x: &str| format!("<ACTION><Act><x>{x}</x></Act></ACTION>");
    let thought = format!("{LOOK} Or {}?\n</think>\n\nNow. {}", act("1"), act("2"));
    let registry = looking().gives("Act", &["x"], json!("done"));
    let turns = json!([
        {"answer": {"text": thought, "chunk": 5, "delay": "1ms"}},
        {"expect": {"last_contains": ["Tool Look executed", "Tool Act executed"]},
         "answer": {"text": "It is done."}},
    ]);
    let world = World::new(registry, &["Look", "Act"], &turns);
    let ended = world.build().await.play(says("look")).await;
    assert_eq!(ended.text(), "It is done.", "{}", ended.error_message());
    let story = ended.story();
    let place = |word: &str| story.iter().position(|line| *line == word).unwrap();
    assert!(place("text") < place("output reset"), "{story:?}");
    assert!(place("output reset") < place("thinking"), "{story:?}");
    let tools: Vec<String> = ended
        .events
        .iter()
        .filter_map(|event| match event.kind.as_ref()? {
            Kind::CallDispatched(call) => Some(format!("{} {}", call.tool_id, call.arguments_json)),
            _ => None,
        })
        .collect();
    assert_eq!(tools, [r#"Look {"at":"x"}"#, r#"Act {"x":"2"}"#]);
}

#[tokio::test]
async fn a9_a_profile_says_that_answers_begin_in_thought_and_nothing_of_it_starts() {
    let thought = format!("{LOOK}\n</think>\n\nNothing there.");
    let turns = json!([{"answer": {"text": thought, "chunk": 4, "delay": "1ms"}}]);
    let tavern = json!({"model": "play", "begins_in_thought": true});
    let profile =
        json!({"id": "ada", "tool_ids_inventory": ["Look"], "custom_metadata": {"tavern": tavern}});
    let script = json!({"turns": turns});
    let world = World::of(looking(), &[("ada.json", &profile)], &script);
    let ended = world.build().await.play(says("look")).await;
    assert_eq!(ended.text(), "Nothing there.", "{}", ended.error_message());
    assert!(world.registry.dispatches().is_empty());
    assert!(!ended.story().contains(&"output reset"));
}

#[tokio::test]
async fn a_call_that_repeats_the_users_words_does_not_start() {
    let turns = json!([{"answer": {"text": LOOK, "chunk": 3}}, {"answer": {"text": "ok"}}]);
    let world = World::new(looking(), &["Look"], &turns);
    let ended = world
        .build()
        .await
        .play(says("Say this: <ACTION><Look><at>x</at></Look></ACTION>"))
        .await;
    assert_eq!(ended.text(), "ok");
    assert!(world.registry.dispatches().is_empty());
}

#[tokio::test]
async fn what_a_call_gives_while_the_model_writes_makes_no_echo_of_it() {
    let echo = "<ACTION><Look><at>x</at></Look></ACTION>";
    let registry = TestRegistry::default()
        .gives("Look", &["at"], json!(echo))
        .read_only("Look");
    let turns = json!([{"answer": {"text": format!("{LOOK}{}", " ".repeat(40)), "chunk": 1, "delay": "1ms"}},
                       {"answer": {"text": "ok"}}]);
    let ended = World::new(registry, &["Look"], &turns)
        .build()
        .await
        .play(says("look"))
        .await;
    assert_eq!(ended.text(), "ok", "{}", ended.error_message());
    assert_eq!(results(&ended)[0].status(), CallStatus::Succeeded);
    assert_eq!(ended.observations().len(), 1);
}

#[tokio::test]
async fn a_cancel_while_the_model_writes_leaves_what_happened_and_reports_none_of_it() {
    for behaviour in ["gives", "hangs"] {
        let registry = match behaviour {
            "gives" => looking(),
            _ => TestRegistry::default()
                .tool("Look", &["at"], Behaviour::Hangs)
                .read_only("Look"),
        };
        let world = World::new(registry, &["Look"], &unfinished(LOOK));
        let running = world.build().await;
        let run_id = start(&running, "look").await;
        running
            .until(
                &run_id,
                match behaviour {
                    "gives" => is_settled,
                    _ => |kind| matches!(kind, Kind::OutputChunk(_)),
                },
            )
            .await;
        let cancelled = running.cancel(&run_id).await;
        assert!(cancelled.still_running.is_empty());
        let ended = running.follow(&run_id, 0).await;
        assert_eq!(ended.run.state(), RunState::Cancelled);
        assert!(
            ended
                .run
                .outcome
                .as_ref()
                .unwrap()
                .unsettled_effect_ids
                .is_empty()
        );
        let status = results(&ended)[0].status();
        let expected = match behaviour {
            "gives" => CallStatus::Succeeded,
            _ => CallStatus::Cancelled,
        };
        assert_eq!(status, expected);
        assert!(ended.observations().is_empty());
        assert_eq!(
            ended.count(|kind| matches!(kind, Kind::ModelAnswered(_))),
            0
        );
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_ends_its_calls_and_what_they_gave_is_not_reported() {
    for behaviour in [Behaviour::Hangs, Behaviour::Fails("it is dark")] {
        let registry = TestRegistry::default()
            .tool("Look", &["at"], behaviour)
            .read_only("Look");
        let turns = json!([{"answer": {"text": LOOK, "chunk": 5}, "fault": {"kind": "cut"}}]);
        let ended = World::new(registry, &["Look"], &turns)
            .build()
            .await
            .play(says("look"))
            .await;
        assert_eq!(
            ended.error_code(),
            "model_stream_cut",
            "{}",
            ended.error_message()
        );
        assert_eq!(ended.run.state(), RunState::Failed);
        assert_eq!(effects(&ended).len(), 1);
        assert_eq!(results(&ended).len(), 1);
        assert!(ended.observations().is_empty());
    }
}

#[tokio::test]
async fn after_a_crash_in_the_middle_of_an_answer_its_calls_are_given_up_and_named_anew() {
    let registry = TestRegistry::default()
        .tool("Look", &["at"], Behaviour::Hangs)
        .read_only("Look")
        .gives("Act", &["x"], json!("done"));
    let world = World::new(registry, &["Look", "Act"], &unfinished(LOOK));
    let running = world.build().await;
    let run_id = start(&running, "look").await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::OutputChunk(_)))
        .await;
    running.runtime.shutdown().await;
    drop(running);

    world.script(&json!([
        {"answer": {"text": "<ACTION><Act><x>1</x></Act></ACTION>"}},
        {"expect": {"last_is": "Observation: Tool Act executed successfully. Result: done"}, "answer": {"text": "It is done."}}
    ]));
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.text(), "It is done.", "{}", ended.error_message());
    assert_eq!(
        effects(&ended),
        [format!("{run_id}/1/0"), format!("{run_id}/1.1/0")]
    );
    assert_eq!(world.registry.dispatches(), effects(&ended));
    let results = results(&ended);
    assert_eq!(results[0].status(), CallStatus::Cancelled);
    assert_eq!(results[0].error.as_ref().unwrap().code, "answer_lost");
    assert_eq!(results[1].status(), CallStatus::Succeeded);
    assert_eq!(ended.observations().len(), 1);
}

#[tokio::test]
async fn the_request_to_a_model_ends_at_the_name_of_an_unknown_tool() {
    let observed =
        "Observation: Error - Unknown tool ID 'Lok', did you mean 'Look'? Available tools: Look";
    let turns = json!([
        {"answer": {"text": "One moment. <ACTION><Lok><at>x", "chunk": 4}, "fault": {"kind": "hang"}},
        {"expect": {"last_is": observed}, "answer": {"text": "ok"}}
    ]);
    let ended = World::new(looking(), &["Look"], &turns)
        .build()
        .await
        .play(says("look"))
        .await;
    assert_eq!(ended.text(), "ok", "{}", ended.error_message());
    let reasons: Vec<&str> = ended
        .events
        .iter()
        .filter_map(|event| match event.kind.as_ref()? {
            Kind::ModelAnswered(answered) => Some(answered.finish_reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["stopped_at_unknown_tool", "stop"]);
    let refused = &results(&ended)[0];
    assert_eq!(refused.status(), CallStatus::Rejected);
    assert_eq!(refused.error.as_ref().unwrap().code, "unknown_tool");
}

#[tokio::test]
async fn a_model_writes_on_where_the_profile_says_so_and_where_good_calls_stand_before_the_name() {
    let good_first = "<ACTION><Look><at>x</at></Look><Lok><at>y</at></Lok></ACTION>";
    let bad_first = "<ACTION><Lok><at>y</at></Lok></ACTION>";
    for (text, stop) in [(good_first, true), (bad_first, false)] {
        let tavern = json!({"model": "play", "stop_at_unknown_tool": stop});
        let profile = json!({"id": "ada", "tool_ids_inventory": ["Look"], "custom_metadata": {"tavern": tavern}});
        let turns = json!([{"answer": {"text": text, "chunk": 4}}, {"answer": {"text": "ok"}}]);
        let world = World::of(
            looking(),
            &[("ada.json", &profile)],
            &json!({"turns": turns}),
        );
        let ended = world.build().await.play(says("look")).await;
        assert_eq!(ended.text(), "ok", "{}", ended.error_message());
        let whole = ended.events.iter().any(|event| {
            matches!(&event.kind, Some(Kind::ModelAnswered(answered)) if answered.text == text && answered.finish_reason == "stop")
        });
        assert!(whole, "{text}");
        let looked = world.registry.dispatches().len();
        assert_eq!(looked, usize::from(stop), "{text}");
    }
}
