//! Turns that are cancelled, fail, or are interrupted by a crash.

use contracts::tavern::{
    agent::v1::StartTurnRequest,
    common::v1::{RunOptions, RunState, StopReason, run_event::Kind},
};
use doubles::{Behaviour, TestRegistry};
use serde_json::json;
use tonic::Code;

use crate::{
    endpoint::{self, Endpoint, end, stream_head, text},
    turns_usage::world_with,
    world::{World, says},
};

const WORK: &str = "<ACTION><Work><x>1</x></Work></ACTION>";

fn working(behaviour: Behaviour) -> TestRegistry {
    TestRegistry::default().tool("Work", &["x"], behaviour)
}

#[tokio::test]
async fn a_cancel_ends_the_request_to_the_model() {
    let turns = json!([{"answer": {"text": "One moment"}, "fault": {"kind": "hang"}}]);
    let world = World::new(TestRegistry::default(), &[], &turns);
    let running = world.build().await;
    let run_id = running.begin(says("hello")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::Text(_)))
        .await;
    let cancelled = running.cancel(&run_id).await;
    // Calls still running after the time of the contract would be listed.
    assert!(cancelled.still_running.is_empty());
    let run = cancelled.run.unwrap();
    assert_eq!(run.state(), RunState::Cancelled);
    assert_eq!(run.outcome.unwrap().stop_reason(), StopReason::Cancelled);
    let again = running.cancel(&run_id).await;
    assert_eq!(again.run.unwrap().state(), RunState::Cancelled);
}

#[tokio::test]
async fn a_cancel_ends_the_call_and_what_became_of_it_is_recorded() {
    let world = World::new(
        working(Behaviour::Hangs),
        &["Work"],
        &json!([{"answer": {"text": WORK}}]),
    );
    let running = world.build().await;
    let run_id = running.begin(says("work")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::OutputChunk(_)))
        .await;
    let cancelled = running.cancel(&run_id).await;
    let run = cancelled.run.unwrap();
    assert_eq!(run.state(), RunState::Cancelled);
    assert!(run.outcome.unwrap().unsettled_effect_ids.is_empty());
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.count(|kind| matches!(kind, Kind::CallSettled(_))), 1);
}

#[tokio::test]
async fn the_deadline_of_a_turn_ends_it() {
    let turns = json!([{"fault": {"kind": "hang"}}]);
    let world = World::new(TestRegistry::default(), &[], &turns);
    let timeout = Some(prost_types::Duration {
        seconds: 0,
        nanos: 200_000_000,
    });
    let options = Some(RunOptions {
        timeout,
        ..RunOptions::default()
    });
    let ended = world
        .build()
        .await
        .play(StartTurnRequest {
            options,
            ..says("hello")
        })
        .await;
    assert_eq!(ended.run.state(), RunState::Failed);
    assert_eq!(
        ended.error_code(),
        "deadline_exceeded",
        "{}",
        ended.error_message()
    );
}

#[tokio::test]
async fn a_turn_that_is_cancelled_with_an_unknown_effect_ends_in_doubt_and_names_it() {
    let world = World::new(
        working(Behaviour::Unknown),
        &["Work"],
        &json!([{"answer": {"text": WORK}}]),
    );
    let running = world.build().await;
    let run_id = running.begin(says("work")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::CallInDoubt(_)))
        .await;
    running.cancel(&run_id).await;
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.run.state(), RunState::InDoubt);
    assert_eq!(
        ended.run.outcome.as_ref().unwrap().unsettled_effect_ids,
        world.registry.dispatches()
    );
    assert!(ended.observations().is_empty());
}

#[tokio::test]
async fn a_call_that_the_registry_answers_by_a_status_is_rejected_only_if_it_has_surely_not_left() {
    use Code::{Internal, InvalidArgument, Unavailable};
    for (codes, state) in [
        (&[InvalidArgument] as &[Code], RunState::Succeeded),
        (&[Unavailable, InvalidArgument], RunState::InDoubt),
        (&[Internal, InvalidArgument], RunState::InDoubt),
        (&[Internal], RunState::InDoubt),
    ] {
        let answers = json!([{"answer": {"text": WORK}}, {"answer": {"text": "Pity."}}]);
        let registry = working(Behaviour::Refuses(codes)).double();
        let world = World::new(registry, &["Work"], &answers);
        let ended = world.build().await.play(says("work")).await;
        assert_eq!(ended.run.state(), state, "{codes:?}");
        let is_observed = !ended.observations().is_empty();
        assert_eq!(is_observed, state == RunState::Succeeded, "{codes:?}");
    }
}

#[tokio::test]
async fn a_request_that_the_script_does_not_expect_fails_the_turn_and_says_what_was_missing() {
    let turns = json!([{"name": "wants rain", "expect": {"last_contains": ["rain"]}}]);
    let ended = World::new(TestRegistry::default(), &[], &turns)
        .build()
        .await
        .play(says("sun"))
        .await;
    assert_eq!(
        (ended.run.state(), ended.error_code()),
        (RunState::Failed, "script_mismatch")
    );
    for part in [
        "turn 1",
        "wants rain",
        "\"rain\" is not in the last message",
    ] {
        assert!(
            ended.error_message().contains(part),
            "{}",
            ended.error_message()
        );
    }
}

#[tokio::test]
async fn g505_an_answer_that_is_cut_off_is_requested_once_more_and_then_fails_the_turn() {
    let turns = json!([{"answer": {"text": "half an ans"}, "fault": {"kind": "cut"}}]);
    let ended = World::new(TestRegistry::default(), &[], &turns)
        .build()
        .await
        .play(says("hello"))
        .await;
    assert_eq!(
        ended.story(),
        [
            "started",
            "iteration",
            "asked",
            "text",
            "output reset",
            "asked",
            "text",
            "finished"
        ]
    );
    assert_eq!(ended.error_code(), "model_stream_cut");
}

#[tokio::test]
async fn g505_the_second_request_of_an_answer_gives_the_turn_its_text() {
    let cut = vec![stream_head(), text("Half an ans")];
    let whole = vec![stream_head(), text("Whole."), end("stop")];
    let endpoint = Endpoint::start(vec![cut, whole]).await;
    let world = world_with(&endpoint, endpoint::settings(&endpoint));
    let ended = world.build().await.play(says("hello")).await;
    assert_eq!(ended.run.state(), RunState::Succeeded);
    assert_eq!(
        ended.run.outcome.unwrap().result_json,
        json!("Whole.").to_string()
    );
    let [first, second] = &endpoint.received()[..] else {
        panic!("it is requested twice");
    };
    assert_eq!(first.body["messages"], second.body["messages"]);
}

#[tokio::test]
async fn after_a_crash_the_turn_goes_on_without_asking_again_or_calling_twice() {
    let turns = json!([
        {"answer": {"text": WORK}},
        {"expect": {"last_is": "Observation: Tool Work executed successfully. Result: done"}, "answer": {"text": "It is done."}}
    ]);
    let world = World::new(working(Behaviour::Hangs), &["Work"], &turns);
    let running = world.build().await;
    let run_id = running.begin(says("work")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::OutputChunk(_)))
        .await;
    // The tasks are dropped at their present point; nothing more is recorded.
    running.runtime.shutdown().await;
    drop(running);

    let running = world.build().await;
    assert_eq!(running.run(&run_id).await.state(), RunState::Running);
    running.runtime.recover().await.unwrap();
    running
        .until(&run_id, |kind| matches!(kind, Kind::CallDispatched(_)))
        .await;
    world.registry.release("Work", json!("done"));
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.text(), "It is done.", "{}", ended.error_message());
    assert_eq!(
        ended.count(|kind| matches!(kind, Kind::ModelAnswered(_))),
        2
    );
    assert_eq!(
        ended.count(|kind| matches!(kind, Kind::ModelRequested(_))),
        2
    );
    assert_eq!(
        ended.count(|kind| matches!(kind, Kind::CallDispatched(_))),
        1
    );
    assert_eq!(world.registry.dispatches().len(), 1);
    let asked = world.registry.asked();
    assert!(
        asked.len() >= 2
            && asked
                .iter()
                .all(|request| request.effect_id == asked[0].effect_id)
    );
}

#[tokio::test]
async fn after_a_crash_an_unanswered_model_is_asked_again() {
    let world = World::new(
        TestRegistry::default(),
        &[],
        &json!([{"answer": {"text": "half"}, "fault": {"kind": "hang"}}]),
    );
    let running = world.build().await;
    let run_id = running.begin(says("hello")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::Text(_)))
        .await;
    running.runtime.shutdown().await;
    drop(running);

    world.script(&json!([{"answer": {"text": "the whole answer"}}]));
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.text(), "the whole answer");
    assert_eq!(
        ended.count(|kind| matches!(kind, Kind::ModelRequested(_))),
        2
    );
    assert_eq!(
        ended.count(|kind| matches!(kind, Kind::IterationStarted(_))),
        1
    );
}

#[tokio::test]
async fn a_conversation_has_one_turn_at_a_time() {
    let world = World::new(
        TestRegistry::default(),
        &[],
        &json!([{"fault": {"kind": "hang"}}]),
    );
    let running = world.build().await;
    let request = StartTurnRequest {
        conversation_id: "c1".to_owned(),
        request_id: "r1".to_owned(),
        ..says("hello")
    };
    let run_id = running.begin(request.clone()).await;
    let second = StartTurnRequest {
        request_id: "r2".to_owned(),
        refuse_if_busy: true,
        ..request.clone()
    };
    let status = running.start(second.clone()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert_eq!(grpc_kit::metadata(&status)["run_id"], run_id);
    assert!(running.start(request).await.unwrap().replayed);
    let other = StartTurnRequest {
        conversation_id: "c2".to_owned(),
        request_id: String::new(),
        ..second.clone()
    };
    let other = running.begin(other).await;
    running.cancel(&run_id).await;
    running.cancel(&other).await;
    assert!(running.start(second).await.is_ok());
    running.runtime.shutdown().await;
}

#[tokio::test]
async fn a_registry_that_is_not_there_yet_is_waited_for() {
    let registry = TestRegistry::default().gives("Work", &["x"], json!("done"));
    let turns = json!([{"answer": {"text": WORK}}, {"answer": {"text": "ok"}}]);
    let world = World::new(registry.clone(), &["Work"], &turns);
    let (transport, slot) = grpc_kit::late();
    let running = world.build_with(transport).await;
    let agent = grpc_kit::local(&running.runtime.services());
    // Whether a hook sees the turn is known only once the registry answers.
    let filled = async { slot.fill(registry.connect(agent).await) };
    let (run_id, ()) = tokio::join!(running.begin(says("work")), filled);
    assert_eq!(running.follow(&run_id, 0).await.text(), "ok");
}

#[tokio::test]
async fn a_follower_resumes_by_sequence_and_the_end_is_given_again() {
    let world = World::new(
        TestRegistry::default(),
        &[],
        &json!([{"answer": {"text": "hi"}}]),
    );
    let running = world.build().await;
    let ended = running.play(says("hello")).await;
    let last = ended.run.last_sequence;
    let tail = running.follow(&ended.run.run_id, last - 2).await;
    assert_eq!(
        tail.events
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        [last - 1, last]
    );
    assert_eq!(running.follow(&ended.run.run_id, last).await.run, ended.run);
}

#[tokio::test]
async fn a_paused_turn_ends_its_round_and_asks_the_model_again_when_it_is_resumed() {
    let turns = json!([
        {"answer": {"text": WORK}},
        {"expect": {"last_is": "Observation: Tool Work executed successfully. Result: done"}, "answer": {"text": "It is done."}}
    ]);
    let world = World::new(working(Behaviour::Hangs), &["Work"], &turns);
    let running = world.build().await;
    let run_id = running.begin(says("work")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::OutputChunk(_)))
        .await;
    assert_eq!(running.pause(&run_id).await.state(), RunState::Paused);
    world.registry.release("Work", json!("done"));
    running
        .until(&run_id, |kind| matches!(kind, Kind::CallSettled(_)))
        .await;
    assert_eq!(running.run(&run_id).await.state(), RunState::Paused);
    assert_eq!(running.resume(&run_id).await.state(), RunState::Running);
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(ended.text(), "It is done.", "{}", ended.error_message());
    let story = ended.story();
    let at = |word: &str| story.iter().rposition(|entry| *entry == word).unwrap();
    assert!(at("resumed") < at("iteration"), "{story:?}");
}
