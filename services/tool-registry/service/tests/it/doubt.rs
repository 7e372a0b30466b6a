//! The state of an effect after its request has left, and its further attempts: rules R308 and W21.

use contracts::tavern::{
    common::v1::{CallControl, CallResult, CallStatus, RunState, ToolCall},
    registry::v1::CallToolRequest,
};
use serde_json::json;
use tonic::Code;

use crate::{
    backend::register_led_to,
    doubles::peer::{Answer, Peer},
    fixture::{Fixture, code_of, finish, until, with_effect},
    invocation::{invoke, run},
};

const EFFECT: (&str, bool) = ("charge", false);
const IDEMPOTENT: (&str, bool) = ("put", true);

pub(crate) async fn led_to(answers: Vec<Answer>) -> (Fixture, Peer) {
    let (fixture, peer) = (Fixture::new().await, Peer::start(answers).await);
    register_led_to(&fixture, peer.address, &[EFFECT, IDEMPOTENT]).await;
    (fixture, peer)
}

pub(crate) fn request(tool: &str, effect: &str, attempt: u32) -> CallToolRequest {
    CallToolRequest {
        attempt,
        ..with_effect(effect, tool, json!({"workflowId": "w1"}))
    }
}

async fn attempt(fixture: &Fixture, tool: &str, number: u32) -> CallResult {
    fixture.finish(request(tool, "e1", number)).await.1
}

fn is_retryable(result: &CallResult) -> bool {
    result.error.as_ref().is_some_and(|error| error.retryable)
}

#[tokio::test]
async fn r308_after_the_request_has_left_only_a_definite_refusal_is_a_failure() {
    const CANCEL: u32 = 8;
    const INTERNAL_ERROR: u32 = 2;
    let doubt = CallStatus::InDoubt;
    let unavailable = vec![("grpc-status", "14"), ("tavern-not-started", "1")];
    for (answer, status, code, retryable) in [
        (Answer::Reset(CANCEL), doubt, "backend_lost", false),
        (Answer::Reset(INTERNAL_ERROR), doubt, "backend_lost", false),
        (
            Answer::GoAway { took_it: true },
            doubt,
            "backend_lost",
            false,
        ),
        (Answer::HangUp, doubt, "backend_lost", false),
        (Answer::status("14"), doubt, "backend_unavailable", false),
        (Answer::status("2"), doubt, "backend_failed", false),
        (Answer::status("13"), doubt, "backend_failed", false),
        (Answer::status("15"), doubt, "backend_data_loss", false),
        (Answer::status("1"), doubt, "backend_failed", false),
        (Answer::status("4"), doubt, "deadline_exceeded", false),
        (Answer::Headers("502", vec![]), doubt, "backend_lost", false),
        (Answer::Announce(5 << 20), doubt, "backend_lost", false),
        (
            Answer::status("9"),
            CallStatus::Failed,
            "backend_failed_precondition",
            false,
        ),
        (
            Answer::status("11"),
            CallStatus::Failed,
            "backend_invalid_argument",
            false,
        ),
        (
            Answer::status("8"),
            CallStatus::Failed,
            "backend_resource_exhausted",
            true,
        ),
        (
            Answer::Headers("200", unavailable),
            CallStatus::Failed,
            "backend_unavailable",
            true,
        ),
    ] {
        let (fixture, peer) = led_to(vec![answer.clone()]).await;
        let result = attempt(&fixture, "charge", 1).await;
        let found = (result.status(), code_of(&result), is_retryable(&result));
        assert_eq!(found, (status, code, retryable), "{answer:?}: {result:?}");
        let result = fixture.finish(request("put", "e2", 1)).await.1;
        let retryable = retryable || status == doubt;
        let found = (result.status(), code_of(&result), is_retryable(&result));
        assert_eq!(
            found,
            (CallStatus::Failed, code, retryable),
            "{answer:?}: {result:?}"
        );
        assert_eq!(peer.requests(), 2, "{answer:?}");
    }
}

#[tokio::test]
async fn r308_a_stream_that_the_server_never_took_is_a_failure_worth_another_attempt() {
    const REFUSED_STREAM: u32 = 7;
    for answer in [
        Answer::Reset(REFUSED_STREAM),
        Answer::GoAway { took_it: false },
    ] {
        let (fixture, peer) = led_to(vec![answer.clone(), Answer::Succeed]).await;
        let refused = attempt(&fixture, "charge", 1).await;
        let found = (refused.status(), code_of(&refused), is_retryable(&refused));
        assert_eq!(
            found,
            (CallStatus::Failed, "backend_unreachable", true),
            "{answer:?}: {refused:?}"
        );
        let result = attempt(&fixture, "charge", 2).await;
        assert_eq!(
            (result.status(), peer.requests()),
            (CallStatus::Succeeded, 2),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn r308_a_request_that_a_closing_connection_drops_leaves_by_the_next() {
    let (fixture, peer) = led_to(vec![Answer::Drain, Answer::Succeed]).await;
    // A call that is open keeps the connection, which takes nothing new.
    tokio::spawn(finish(fixture.calls.clone(), request("charge", "held", 1)));
    until("the first request", || peer.requests() == 1).await;
    let mut calls = 0;
    while peer.connections() < 2 {
        let request = request("charge", &format!("e{calls}"), 1);
        let result = fixture.finish(request).await.1;
        assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
        calls += 1;
    }
    assert_eq!(peer.requests(), 1 + calls, "each was sent once");
}

#[tokio::test]
async fn r308_a_call_that_never_left_is_not_in_doubt_when_its_time_is_over() {
    let peer = Peer::narrow(vec![Answer::Succeed, Answer::Silence]).await;
    let fixture = Fixture::new().await;
    register_led_to(&fixture, peer.address, &[EFFECT]).await;
    // Behind the first answer it is known how many requests the peer takes at once.
    attempt(&fixture, "charge", 1).await;
    tokio::spawn(finish(fixture.calls.clone(), request("charge", "held", 1)));
    until("the held request", || peer.requests() == 2).await;
    let short = CallToolRequest {
        timeout: Some(prost_types::Duration {
            seconds: 0,
            nanos: 200_000_000,
        }),
        ..request("charge", "e2", 1)
    };
    let result = fixture.finish(short).await.1;
    let found = (result.status(), code_of(&result), is_retryable(&result));
    assert_eq!(found, (CallStatus::Failed, "backend_unreachable", true));
    assert_eq!(peer.requests(), 2);
}

#[tokio::test]
async fn w21_a_retryable_failure_is_dispatched_again_by_a_higher_attempt_only() {
    let (mut fixture, peer) = led_to(vec![Answer::status("8"), Answer::Succeed]).await;
    for number in [0, 1] {
        let failed = attempt(&fixture, "charge", number).await;
        assert_eq!(
            (failed.status(), failed.attempt, failed.next_attempt),
            (CallStatus::Failed, 1, 2)
        );
        assert_eq!((failed.replayed, peer.requests()), (number == 1, 1));
    }
    let second = attempt(&fixture, "charge", 2).await;
    assert_eq!(
        (second.status(), second.attempt, second.replayed),
        (CallStatus::Succeeded, 2, false)
    );
    fixture.crash_and_restart().await;
    for (number, status, from) in [
        (1, CallStatus::Failed, 1),
        (2, CallStatus::Succeeded, 2),
        (3, CallStatus::Succeeded, 2),
        (32, CallStatus::Succeeded, 2),
    ] {
        let again = attempt(&fixture, "charge", number).await;
        assert_eq!(
            (again.status(), again.attempt, again.replayed),
            (status, from, true)
        );
    }
    assert_eq!(peer.requests(), 2);
}

#[tokio::test]
async fn w21_a_definite_failure_is_dispatched_again_only_if_the_tool_is_idempotent() {
    for (tool, requests) in [("charge", 1), ("put", 2)] {
        let (fixture, peer) = led_to(vec![Answer::status("9")]).await;
        attempt(&fixture, tool, 1).await;
        let second = attempt(&fixture, tool, 2).await;
        assert_eq!(second.status(), CallStatus::Failed);
        assert_eq!(
            (second.replayed, peer.requests()),
            (requests == 1, requests),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn w21_no_attempt_follows_one_that_is_in_doubt() {
    let (mut fixture, peer) = led_to(vec![Answer::status("8"), Answer::Silence]).await;
    attempt(&fixture, "charge", 1).await;
    tokio::spawn(finish(fixture.calls.clone(), request("charge", "e1", 2)));
    until("the second attempt", || peer.requests() == 2).await;
    fixture.crash_and_restart().await;
    for number in [2, 3] {
        let unknown = attempt(&fixture, "charge", number).await;
        assert_eq!(
            (unknown.status(), unknown.attempt),
            (CallStatus::InDoubt, 2)
        );
        assert_eq!(code_of(&unknown), "unsettled_after_crash");
    }
    assert_eq!(peer.requests(), 2);
}

#[tokio::test]
async fn p4_a_hundred_second_attempts_dispatch_once() {
    let (fixture, peer) = led_to(vec![Answer::status("8"), Answer::Succeed]).await;
    attempt(&fixture, "charge", 1).await;
    let calls: Vec<_> = (0..100)
        .map(|_| tokio::spawn(finish(fixture.calls.clone(), request("charge", "e1", 2))))
        .collect();
    for call in calls {
        let (_, result) = call.await.unwrap().unwrap();
        assert_eq!(result.status(), CallStatus::Succeeded);
    }
    assert_eq!(peer.requests(), 2);
}

#[tokio::test]
async fn t26_a_text_is_granted_the_attempts_that_it_asks_for_after_retryable_failures() {
    for (asked, state, requests) in [(0, RunState::Failed, 1), (2, RunState::Succeeded, 3)] {
        let failure = Answer::status("8");
        let (fixture, peer) = led_to(vec![failure.clone(), failure, Answer::Succeed]).await;
        let call = ToolCall {
            tool_id: "charge".into(),
            arguments_json: r#"{"workflowId": "w1"}"#.into(),
            control: Some(CallControl {
                retries: asked,
                ..CallControl::default()
            }),
            ..ToolCall::default()
        };
        let (_, statuses, run) = run(&fixture, invoke(vec![call])).await;
        assert_eq!(statuses.len(), 1, "one end is on the record");
        let ended = run.outcome.unwrap().state();
        assert_eq!((ended, peer.requests()), (state, requests));
    }
}

#[tokio::test]
async fn a_workflow_that_failed_is_not_said_to_be_worth_another_run_of_its_effects() {
    let fixture = Fixture::new().await;
    let call = |attempt| CallToolRequest {
        attempt,
        ..with_effect("e1", "workflow:busy", json!({}))
    };
    fixture.workflows.put("busy", json!({"name": "busy"}));
    let (_, failed) = fixture.finish(call(1)).await;
    assert_eq!(
        (failed.status(), is_retryable(&failed)),
        (CallStatus::Failed, false)
    );
    assert!(fixture.finish(call(2)).await.1.replayed);
    assert_eq!(fixture.workflows.started.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_run_whose_start_was_not_answered_is_in_doubt() {
    let fixture = Fixture::new().await;
    fixture.workflows.put("lost", json!({"name": "lost"}));
    let request = CallToolRequest {
        timeout: Some(prost_types::Duration {
            seconds: 0,
            nanos: 100_000_000,
        }),
        ..with_effect("e1", "workflow:lost", json!({}))
    };
    let (_, result) = fixture.finish(request).await;
    let found = (result.status(), code_of(&result));
    assert_eq!(found, (CallStatus::InDoubt, "run_service_lost"));
}

#[tokio::test]
async fn an_attempt_needs_an_effect_and_is_bounded() {
    let fixture = Fixture::new().await;
    for (effect, number) in [("", 2), ("e1", 33)] {
        let status = finish(fixture.calls.clone(), request("charge", effect, number)).await;
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(grpc_kit::violations(&status)[0].0, "attempt");
    }
}
