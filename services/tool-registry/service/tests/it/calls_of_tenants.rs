//! Calls of other tenants and principals: they are not there, and their effect ids are other ones.

use contracts::tavern::{
    common::v1::{CallStatus, ErrorReason},
    registry::v1::{
        CallDecision, CancelCallRequest, GetCallRequest, ListCallsRequest, ReadOutputRequest,
        ResolveCallRequest, StartCallRequest, WatchCallRequest,
        call_service_client::CallServiceClient,
    },
};
use core_types::{CallPath, Principal, Reach};
use doubles::Mode;
use futures::StreamExt;
use grpc_kit::CallContext;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::fixture::{Calls, Fixture, finish, until, with_effect};

const TOOL: &str = "CodeInterpreter:execute";

fn code(text: &str) -> Value {
    json!({"language": "bash", "code": text})
}

fn calls_of(fixture: &Fixture, principal: &str, reach: Reach) -> Calls {
    let principal = Principal::new(principal).unwrap();
    let context = CallContext::new(principal, CallPath::default()).reaching(reach);
    CallServiceClient::new(fixture.acting_in(&context))
}

/// Starts a call and leaves it in flight.
async fn start(fixture: &Fixture, principal: &str, effect: &str) {
    let request = StartCallRequest {
        tool_id: TOOL.into(),
        arguments_json: code("true").to_string(),
        effect_id: effect.into(),
        conversation_id: "c1".into(),
        ..StartCallRequest::default()
    };
    let mut calls = calls_of(fixture, principal, Reach::Own);
    calls.start_call(request).await.unwrap();
}

/// Returns the refusals of every method that names a call, each with the name of the method.
async fn refusals(calls: &Calls, effect: &str) -> Vec<(&'static str, Status)> {
    macro_rules! ask {
        ($($method:ident: $request:ident { $($field:ident: $value:expr),* })*) => {
            vec![$({
                let request = $request { effect_id: effect.to_owned(), $($field: $value),* };
                let refused = calls.clone().$method(request).await;
                (stringify!($method), refused.err().expect(stringify!($method)))
            }),*]
        };
    }
    ask! {
        get_call: GetCallRequest {}
        watch_call: WatchCallRequest { after_sequence: 0, generation: 0 }
        read_output: ReadOutputRequest { offset: 0, limit: 0 }
        cancel_call: CancelCallRequest { reason: "enough".to_owned() }
        resolve_call: ResolveCallRequest {
            decision: CallDecision::DidNot.into(), request_id: "r1".to_owned(), reason: "seen".to_owned(),
            output_json: String::new()
        }
    }
}

/// Returns the content of a status without the effect id.
fn shown(status: &Status, effect: &str) -> (Code, String, String) {
    let details = String::from_utf8_lossy(status.details()).into_owned();
    let [message, details] = [status.message().to_owned(), details];
    let without_id = |text: String| text.replace(effect, "ID");
    (status.code(), without_id(message), without_id(details))
}

#[tokio::test]
async fn equal_effect_ids_of_two_tenants_are_two_effects() {
    let mut fixture = Fixture::new().await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    let owners = [("acme/bob", "true"), ("bob", "false"), ("zeta/bob", "true")];
    let call = |fixture: &Fixture, (owner, text): (&str, &str)| {
        let calls = calls_of(fixture, owner, Reach::Own);
        finish(calls, with_effect("effect-1", TOOL, code(text)))
    };
    let in_flight = owners.map(|owner| tokio::spawn(call(&fixture, owner)));
    until("three dispatches", || fixture.sandbox.started() == 3).await;
    fixture.sandbox.permits.add_permits(3);
    for ended in in_flight {
        let (_, result) = ended.await.unwrap().unwrap();
        assert_eq!(result.status(), CallStatus::Succeeded);
        assert!(!result.replayed);
    }
    for restarted in [false, true] {
        if restarted {
            fixture.crash_and_restart().await;
        }
        for owner in owners {
            let (_, again) = call(&fixture, owner).await.unwrap();
            assert!(again.replayed, "{owner:?}");
        }
        let eve = call(&fixture, ("acme/eve", "true")).await.unwrap_err();
        let reused = Some(ErrorReason::RequestIdReused);
        assert_eq!(
            grpc_kit::reason(&eve),
            reused,
            "it is an effect of the tenant"
        );
        assert_eq!(fixture.sandbox.started(), 3);
    }
}

#[tokio::test]
async fn a_call_out_of_reach_answers_as_a_missing_one() {
    let mut fixture = Fixture::new().await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    start(&fixture, "acme/bob", "effect-1").await;
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    let strangers = [
        ("acme/eve", Reach::Own),
        ("bob", Reach::Own),
        ("bob", Reach::Tenant),
        ("zeta/bob", Reach::Tenant),
        ("system/root", Reach::Tenant),
    ];
    for state in ["in flight", "settled", "restarted"] {
        for stranger in strangers {
            let calls = calls_of(&fixture, stranger.0, stranger.1);
            let foreign = refusals(&calls, "effect-1").await;
            let absent = refusals(&calls, "effect-9").await;
            for ((method, foreign), (_, absent)) in foreign.iter().zip(&absent) {
                assert_eq!(
                    foreign.code(),
                    Code::NotFound,
                    "{method}, {state}: {stranger:?}"
                );
                let (foreign, absent) = (shown(foreign, "effect-1"), shown(absent, "effect-9"));
                assert_eq!(foreign, absent, "{method}, {state}: {stranger:?}");
            }
            let listed = calls.clone().list_calls(ListCallsRequest::default()).await;
            assert_eq!(
                listed.unwrap().into_inner().calls,
                [],
                "{state}: {stranger:?}"
            );
        }
        for friend in [
            ("acme/bob", Reach::Own),
            ("acme/eve", Reach::Tenant),
            ("local", Reach::Installation),
        ] {
            let mut calls = calls_of(&fixture, friend.0, friend.1);
            let listed = calls.list_calls(ListCallsRequest::default()).await;
            let listed = listed.unwrap().into_inner().calls;
            assert_eq!(listed.len(), 1, "{state}: {friend:?}");
            assert_eq!(listed[0].principal, "acme/bob");
        }
        let bob = calls_of(&fixture, "acme/bob", Reach::Own);
        match state {
            "in flight" => {
                fixture.sandbox.permits.add_permits(1);
                let request = WatchCallRequest {
                    effect_id: "effect-1".into(),
                    ..WatchCallRequest::default()
                };
                let watched = bob.clone().watch_call(request).await.unwrap().into_inner();
                assert!(watched.count().await > 0);
            }
            _ => fixture.crash_and_restart().await,
        }
        let request = GetCallRequest {
            effect_id: "effect-1".into(),
        };
        let mut bob = calls_of(&fixture, "acme/bob", Reach::Own);
        let call = bob.get_call(request).await.unwrap().into_inner().call;
        let status = call.unwrap().result.unwrap().status();
        assert_eq!(status, CallStatus::Succeeded, "no stranger cancelled it");
    }
}
