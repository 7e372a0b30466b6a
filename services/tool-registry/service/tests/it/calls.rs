//! Calls as resources: started without waiting, read, listed, followed and decided.

use std::collections::BTreeSet;

use contracts::tavern::{
    common::v1::{CallStatus, ErrorReason, RunEvent, run_event::Kind},
    registry::v1::{
        Call, CallDecision, CallState, GetCallRequest, ListCallsRequest, ReadOutputRequest,
        ResolveCallRequest, ResolveCallResponse, StartCallRequest, StartCallResponse,
        WatchCallRequest, watch_call_response::Record,
    },
};
use doubles::Mode;
use futures::StreamExt;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    backend::register_led_to,
    doubles::peer::{Answer, Peer},
    fixture::{Fixture, finish, idempotent_script_tool, script_tool, until, with_effect},
    invocation::{self, cancel, doubts, invoke, run},
};

type Refusal = (Code, Option<ErrorReason>);

fn refusal(status: &Status) -> Refusal {
    (status.code(), grpc_kit::reason(status))
}

const NO_CALL: Refusal = (Code::NotFound, Some(ErrorReason::CallNotFound));
const DECIDED: Refusal = (Code::FailedPrecondition, Some(ErrorReason::CallNotInDoubt));

fn start(effect_id: &str, tool_id: &str, arguments: &Value) -> StartCallRequest {
    StartCallRequest {
        tool_id: tool_id.into(),
        arguments_json: arguments.to_string(),
        effect_id: effect_id.into(),
        conversation_id: "c1".into(),
        ..Default::default()
    }
}

async fn started(fixture: &Fixture, request: StartCallRequest) -> StartCallResponse {
    let mut calls = fixture.calls.clone();
    calls.start_call(request).await.unwrap().into_inner()
}

async fn get(fixture: &Fixture, effect_id: &str) -> Result<Call, Refusal> {
    let request = GetCallRequest {
        effect_id: effect_id.into(),
    };
    let found = fixture.calls.clone().get_call(request).await;
    found
        .map(|response| response.into_inner().call.unwrap())
        .map_err(|status| refusal(&status))
}

/// Follows a call to its end.
async fn watch(fixture: &Fixture, effect_id: &str, after_sequence: u64) -> (Vec<RunEvent>, Call) {
    let request = WatchCallRequest {
        effect_id: effect_id.into(),
        after_sequence,
        ..Default::default()
    };
    let watched = fixture.calls.clone().watch_call(request).await.unwrap();
    let mut watched = watched.into_inner();
    let mut events = Vec::new();
    while let Some(response) = watched.next().await {
        match response.unwrap().record {
            Some(Record::Event(event)) => events.push(event),
            Some(Record::Terminal(call)) => {
                assert!(watched.next().await.is_none());
                return (events, call);
            }
            _ => {}
        }
    }
    panic!("the watch ended before the call");
}

fn code() -> Value {
    json!({"language": "bash", "code": "true"})
}

#[tokio::test]
async fn a_started_call_outlives_its_caller_and_is_read_by_its_handle() {
    let mut fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.set(Mode::Hold("{\"a\": \"é\"}".into()));
    let response = started(&fixture, start("", "effect", &code())).await;
    let call = response.call.unwrap();
    assert_eq!(call.state(), CallState::Running);
    assert!(!call.effect_id.is_empty() && !response.replayed);
    assert_eq!(call.conversation_id, "c1");
    let handle = call.effect_id.clone();
    assert_eq!(get(&fixture, &handle).await, Ok(call));
    let read = |offset, limit| {
        let request = ReadOutputRequest {
            effect_id: handle.clone(),
            offset,
            limit,
        };
        let mut calls = fixture.calls.clone();
        async move { calls.read_output(request).await }
    };
    let early = read(0, 0).await.unwrap_err();
    let in_flight = Some(ErrorReason::CallInFlight);
    assert_eq!(refusal(&early), (Code::FailedPrecondition, in_flight));
    fixture.sandbox.permits.add_permits(1);
    let (_, ended) = watch(&fixture, &handle, 0).await;
    assert_eq!(ended.state(), CallState::Succeeded);
    let output = r#"{"a":"é"}"#;
    assert_eq!(ended.output_bytes, output.len() as u64);
    assert_eq!(ended.result.unwrap().output_json, "");
    let call = get(&fixture, &handle).await.unwrap();
    assert_eq!(call.result.unwrap().output_json, output);
    let (mut text, mut offset) = (String::new(), 0);
    while offset < output.len() as u64 {
        let part = read(offset, 7).await.unwrap().into_inner();
        assert_eq!(part.total_bytes, output.len() as u64);
        text.push_str(&part.text);
        offset = part.next_offset;
    }
    assert_eq!(text, output);
    for beyond in [7, 100] {
        let status = read(beyond, 0).await.unwrap_err();
        assert_eq!(grpc_kit::violations(&status)[0].0, "offset", "{beyond}");
    }
    fixture.crash_and_restart().await;
    let call = get(&fixture, &handle).await.unwrap();
    assert_eq!(call.state(), CallState::Succeeded);
}

#[tokio::test]
async fn starting_the_same_effect_again_dispatches_nothing_and_another_body_is_refused() {
    let fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    for replayed in [false, true] {
        let response = started(&fixture, start("e1", "effect", &code())).await;
        assert_eq!(response.replayed, replayed);
        watch(&fixture, "e1", 0).await;
    }
    assert_eq!(fixture.sandbox.started(), 1);
    let other = start("e1", "effect", &json!({"language": "bash"}));
    let status = fixture.calls.clone().start_call(other).await.unwrap_err();
    let reused = Some(ErrorReason::RequestIdReused);
    assert_eq!(refusal(&status), (Code::AlreadyExists, reused));
}

#[tokio::test]
async fn a_rejected_call_is_returned_and_leaves_no_entry() {
    let fixture = Fixture::new().await;
    let response = started(&fixture, start("e1", "nothing", &json!({}))).await;
    let call = response.call.unwrap();
    assert_eq!(call.state(), CallState::Rejected);
    assert_eq!(call.result.unwrap().error.unwrap().code, "unknown_tool");
    assert_eq!(get(&fixture, "e1").await, Err(NO_CALL));
    let request = WatchCallRequest {
        effect_id: "e1".into(),
        ..Default::default()
    };
    let status = fixture.calls.clone().watch_call(request).await;
    assert_eq!(refusal(&status.unwrap_err()), NO_CALL);
}

#[tokio::test]
async fn after_a_crash_a_started_call_continues_by_itself_if_it_may_be_repeated() {
    let tools = [idempotent_script_tool("repeatable"), script_tool("effect")];
    let mut fixture = Fixture::with_scripts(&tools).await;
    fixture.sandbox.set(Mode::Hold("{}".into()));
    started(&fixture, start("again", "repeatable", &code())).await;
    started(&fixture, start("once", "effect", &code())).await;
    until("both dispatches", || fixture.sandbox.started() == 2).await;
    fixture.crash_and_restart().await;
    fixture.recover().await;
    fixture.sandbox.permits.add_permits(5);
    let (_, again) = watch(&fixture, "again", 0).await;
    assert_eq!(again.state(), CallState::Succeeded);
    let (_, once) = watch(&fixture, "once", 0).await;
    assert_eq!(once.state(), CallState::InDoubt);
    assert_eq!(fixture.sandbox.started(), 3);
}

#[tokio::test]
async fn a_watch_shows_the_events_below_a_call_once_and_resumes_by_sequence() {
    let fixture = Fixture::new().await;
    fixture.workflows.put("hold", json!({"name": "hold"}));
    started(&fixture, start("e1", "workflow:hold", &json!({}))).await;
    until("the run", || fixture.workflows.run_count() == 1).await;
    let run = format!("flow_{:032x}", 0);
    let cancelling = contracts::tavern::registry::v1::CancelCallRequest {
        effect_id: "e1".into(),
        reason: String::new(),
    };
    fixture.calls.clone().cancel_call(cancelling).await.unwrap();
    let (events, call) = watch(&fixture, "e1", 0).await;
    assert_eq!(
        (call.state(), call.child_run_id.as_str()),
        (CallState::Cancelled, run.as_str())
    );
    let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
    let expected: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(sequences, expected);
    let (rest, again) = watch(&fixture, "e1", 1).await;
    assert_eq!((rest, again), (events[1..].to_vec(), call));
}

#[tokio::test]
async fn what_a_script_writes_is_followed_while_it_is_in_flight() {
    let fixture = Fixture::new().await;
    let code = json!({"language": "bash", "code": "echo words >&2"});
    fixture.sandbox.set(Mode::Hold("x".into()));
    started(&fixture, start("e1", "CodeInterpreter:execute", &code)).await;
    let (watched, ()) = tokio::join!(watch(&fixture, "e1", 0), async {
        until("the dispatch", || fixture.sandbox.started() == 1).await;
        fixture.sandbox.permits.add_permits(1);
    });
    let (events, call) = watched;
    assert_eq!(call.state(), CallState::Succeeded);
    for event in events {
        assert!(
            matches!(event.kind, Some(Kind::OutputChunk(_))),
            "{event:?}"
        );
    }
}

async fn list(fixture: &Fixture, mut request: ListCallsRequest) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let mut calls = fixture.calls.clone();
        let page = calls.list_calls(request.clone()).await.unwrap();
        let page = page.into_inner();
        for call in page.calls {
            assert_eq!(call.arguments_json, "");
            assert_eq!(call.result.map_or("".into(), |it| it.output_json), "");
            ids.push(call.effect_id);
        }
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return ids;
        }
    }
}

#[tokio::test]
async fn calls_are_listed_the_newest_first_by_state_tool_conversation_and_time() {
    let mut fixture = Fixture::new().await;
    for effect in ["e1", "e2"] {
        let mut request = with_effect(effect, "system:get_current_time", json!({}));
        request.conversation_id = format!("of-{effect}");
        fixture.finish(request).await;
    }
    fixture.sandbox.set(Mode::Hold("x".into()));
    started(&fixture, start("e3", "CodeInterpreter:execute", &code())).await;
    let all = ListCallsRequest::default;
    let paged = ListCallsRequest {
        page_size: 1,
        ..all()
    };
    assert_eq!(list(&fixture, paged).await, ["e3", "e2", "e1"]);
    let time = get(&fixture, "e2").await.unwrap().dispatch_time;
    for (request, expected) in [
        (
            ListCallsRequest {
                state: CallState::Running.into(),
                ..all()
            },
            vec!["e3"],
        ),
        (
            ListCallsRequest {
                state: CallState::Succeeded.into(),
                ..all()
            },
            vec!["e2", "e1"],
        ),
        (
            ListCallsRequest {
                tool_id: "CodeInterpreter:execute".into(),
                ..all()
            },
            vec!["e3"],
        ),
        (
            ListCallsRequest {
                conversation_id: "of-e1".into(),
                ..all()
            },
            vec!["e1"],
        ),
        (
            ListCallsRequest {
                dispatched_before: time,
                ..all()
            },
            vec!["e1"],
        ),
    ] {
        assert_eq!(
            list(&fixture, request.clone()).await,
            expected,
            "{request:?}"
        );
    }
    fixture.crash_and_restart().await;
    assert_eq!(list(&fixture, all()).await, ["e3", "e2", "e1"]);
}

#[tokio::test]
async fn calls_of_a_run_are_listed_and_every_wrong_condition_is_named() {
    let fixture = Fixture::new().await;
    let all = ListCallsRequest::default;
    let call = contracts::tavern::common::v1::ToolCall {
        tool_id: "system:get_current_time".into(),
        arguments_json: "{}".into(),
        ..Default::default()
    };
    let (_, _, run) = run(&fixture, invoke(vec![call])).await;
    let of_run = ListCallsRequest {
        run_id: run.run_id.clone(),
        ..all()
    };
    let ids: BTreeSet<String> = list(&fixture, of_run).await.into_iter().collect();
    assert_eq!(ids.len(), 1);
    for id in ids {
        assert_eq!(get(&fixture, &id).await.unwrap().run_id, run.run_id);
    }
    let wrong = ListCallsRequest {
        page_token: "x".into(),
        run_id: "x".into(),
        ..all()
    };
    let status = fixture.calls.clone().list_calls(wrong).await.unwrap_err();
    let fields: Vec<String> = grpc_kit::violations(&status)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(fields, ["run_id", "page_token"]);
}

fn decide(decision: CallDecision, request_id: &str) -> ResolveCallRequest {
    ResolveCallRequest {
        effect_id: "e1".into(),
        decision: decision.into(),
        reason: "looked".into(),
        request_id: request_id.into(),
        ..Default::default()
    }
}

async fn resolve(
    fixture: &Fixture,
    request: ResolveCallRequest,
) -> Result<ResolveCallResponse, Refusal> {
    let resolved = fixture.calls.clone().resolve_call(request).await;
    resolved
        .map(tonic::Response::into_inner)
        .map_err(|status| refusal(&status))
}

/// A call of a tool with effects that is in doubt, as its server broke the connection.
async fn in_doubt(answers: Vec<Answer>) -> (Fixture, Peer) {
    let (fixture, peer) = (Fixture::new().await, Peer::start(answers).await);
    register_led_to(&fixture, peer.address, &[("charge", false)]).await;
    let arguments = json!({"workflowId": "w1"});
    started(&fixture, start("e1", "charge", &arguments)).await;
    let (_, call) = watch(&fixture, "e1", 0).await;
    assert_eq!(call.state(), CallState::InDoubt);
    (fixture, peer)
}

#[tokio::test]
async fn a_call_that_took_effect_succeeds_with_the_given_output_once_per_request() {
    let (mut fixture, peer) = in_doubt(vec![Answer::HangUp]).await;
    let doubtful = ListCallsRequest {
        state: CallState::InDoubt.into(),
        ..Default::default()
    };
    assert_eq!(list(&fixture, doubtful.clone()).await, ["e1"]);
    let mut request = decide(CallDecision::TookEffect, "r1");
    request.output_json = "{\"paid\": 5}".into();
    for replayed in [false, true] {
        let resolved = resolve(&fixture, request.clone()).await.unwrap();
        assert_eq!(resolved.replayed, replayed);
        let call = resolved.call.unwrap();
        assert_eq!(call.state(), CallState::Succeeded);
        let resolution = call.resolution.unwrap();
        assert_eq!(resolution.decision(), CallDecision::TookEffect);
        assert_eq!(
            (&*resolution.reason, &*resolution.request_id),
            ("looked", "r1")
        );
    }
    let other = resolve(&fixture, decide(CallDecision::DidNot, "r2")).await;
    assert_eq!(other, Err(DECIDED));
    let reused = resolve(&fixture, decide(CallDecision::DidNot, "r1")).await;
    let reason = Some(ErrorReason::RequestIdReused);
    assert_eq!(reused, Err((Code::AlreadyExists, reason)));
    fixture.crash_and_restart().await;
    assert!(resolve(&fixture, request).await.unwrap().replayed);
    assert!(list(&fixture, doubtful).await.is_empty());
    assert_eq!(list(&fixture, ListCallsRequest::default()).await, ["e1"]);
    let again = with_effect("e1", "charge", json!({"workflowId": "w1"}));
    let result = finish(fixture.calls.clone(), again).await.unwrap().1;
    assert_eq!(
        (result.status(), result.output_json.as_str()),
        (CallStatus::Succeeded, "{\"paid\": 5}")
    );
    assert!(result.replayed && peer.requests() == 1);
}

#[tokio::test]
async fn a_call_that_did_not_take_effect_failed_and_may_be_tried_again() {
    let (fixture, peer) = in_doubt(vec![Answer::HangUp, Answer::Succeed]).await;
    let resolved = resolve(&fixture, decide(CallDecision::DidNot, "")).await;
    let call = resolved.unwrap().call.unwrap();
    let error = call.result.unwrap().error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.retryable),
        ("took_no_effect", true)
    );
    let mut second = with_effect("e1", "charge", json!({"workflowId": "w1"}));
    second.attempt = 2;
    let result = fixture.finish(second).await.1;
    assert_eq!(
        (result.status(), result.attempt, peer.requests()),
        (CallStatus::Succeeded, 2, 2)
    );
}

#[tokio::test]
async fn a_repeated_call_is_dispatched_once_more_as_the_next_attempt() {
    let (mut fixture, peer) = in_doubt(vec![Answer::HangUp, Answer::Succeed]).await;
    for replayed in [false, true] {
        let resolved = resolve(&fixture, decide(CallDecision::Repeat, "r1")).await;
        assert_eq!(resolved.unwrap().replayed, replayed);
        let (_, call) = watch(&fixture, "e1", 0).await;
        assert_eq!(
            (call.state(), call.attempt, peer.requests()),
            (CallState::Succeeded, 2, 2)
        );
    }
    fixture.crash_and_restart().await;
    fixture.recover().await;
    assert_eq!(peer.requests(), 2);
}

#[tokio::test]
async fn only_a_call_in_doubt_is_decided_and_that_of_a_run_that_ended_is_not_repeated() {
    let fixture = Fixture::new().await;
    let missing = resolve(&fixture, decide(CallDecision::DidNot, "")).await;
    assert_eq!(missing, Err(NO_CALL));
    let settled = with_effect("e1", "system:get_current_time", json!({}));
    fixture.finish(settled).await;
    let settled = resolve(&fixture, decide(CallDecision::DidNot, "")).await;
    assert_eq!(settled, Err(DECIDED));
    for (decision, output, wrong) in [
        (CallDecision::Unspecified, "", "decision"),
        (CallDecision::DidNot, "1", "output_json"),
        (CallDecision::TookEffect, "1 2", "output_json"),
    ] {
        let request = ResolveCallRequest {
            output_json: output.into(),
            ..decide(decision, "")
        };
        let status = fixture.calls.clone().resolve_call(request).await;
        let fields = grpc_kit::violations(&status.unwrap_err());
        assert_eq!(fields[0].0, wrong, "{fields:?}");
    }

    let peer = Peer::start(vec![Answer::HangUp]).await;
    register_led_to(&fixture, peer.address, &[("charge", false)]).await;
    let call = contracts::tavern::common::v1::ToolCall {
        tool_id: "charge".into(),
        arguments_json: r#"{"workflowId": "w1"}"#.into(),
        ..Default::default()
    };
    let begun = invocation::start(&fixture, invoke(vec![call])).await;
    let effect_id = doubts(&fixture, &begun.run_id, 1).await.remove(0);
    cancel(&fixture, &begun).await;
    let repeat = ResolveCallRequest {
        effect_id: effect_id.clone(),
        ..decide(CallDecision::Repeat, "")
    };
    let finished = Some(ErrorReason::RunFinished);
    let refused = resolve(&fixture, repeat).await;
    assert_eq!(refused, Err((Code::FailedPrecondition, finished)));
    let settle = ResolveCallRequest {
        effect_id,
        ..decide(CallDecision::TookEffect, "")
    };
    let call = resolve(&fixture, settle).await.unwrap().call.unwrap();
    assert_eq!(call.state(), CallState::Succeeded);
    assert_eq!(peer.requests(), 1);
}
