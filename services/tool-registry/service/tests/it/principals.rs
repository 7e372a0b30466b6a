//! The rights of principals at each call of a tool, and their decisions (rules S606 and S612).

mod decisions;
mod explained;

use std::time::SystemTime;

use contracts::tavern::{
    common::v1::{CallResult, CallStatus, RunState, ToolCall, run_event::Kind},
    registry::v1::{
        BatchGetToolsRequest, Call, CallState, CallToolRequest, GetCallRequest, InvokeCallsRequest,
        ListCallsRequest, PutToolRequest, StartCallRequest, call_service_client::CallServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
};
use core_types::{Principal, Timestamp};
use doubles::Mode;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tool_domain::identity::{
    Account, ToolRights,
    accounts::{Authority, Chosen, Regain},
};
use tool_registry::Identities;

use crate::{
    approvals::{approve, pending},
    doubles::peer::Answer,
    doubt::led_to,
    fixture::{
        Calls, Fixture, code_of, finish, node_tool, request, script_tool, until, with_effect,
    },
    invocation::{call, invoke, watch},
};
use decisions::{ask_before_giving, decide};

const REFUSED: &str = "principal_not_allowed";
const FLOW: &str = "flow_0000000000000000000000000000000b";

fn named(name: &str) -> Principal {
    Principal::new(name).unwrap()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn account(name: &str, roles: &[&str]) -> Account {
    Account {
        roles: texts(roles),
        ..Account::new(named(name), Timestamp::default())
    }
}

fn denied(name: &str, roles: &[&str], tools: &[&str]) -> Account {
    let tools = ToolRights {
        denied: texts(tools),
        ..ToolRights::default()
    };
    Account {
        tools,
        ..account(name, roles)
    }
}

fn identities(fixture: &Fixture) -> &Identities {
    fixture.registry.as_ref().unwrap().identities()
}

/// Sets the rights of a principal.
async fn put(fixture: &Fixture, account: Account) {
    identities(fixture)
        .put(account, (None, Authority::Tenant), false)
        .await
        .unwrap();
}

/// Makes keys exist: that of the administrator `root` first, then of two who invoke, and of one who reads.
async fn make_keys(fixture: &Fixture) {
    let identities = identities(fixture);
    let first = identities.bootstrap(&named("root"), 1, Regain::Never).await;
    first.unwrap();
    for (name, role) in [("ada", "invoker"), ("bob", "invoker"), ("vic", "viewer")] {
        make_key(fixture, name, role).await;
    }
}

async fn make_key(fixture: &Fixture, name: &str, role: &str) {
    let (name, roles) = (named(name), texts(&[role]));
    let made = identities(fixture).create_key((&name, Authority::Installation), &roles, &[], 1);
    made.await.unwrap();
}

fn calls_of(fixture: &Fixture, name: &str) -> Calls {
    CallServiceClient::new(fixture.acting_for(name, &[]))
}

async fn finish_as(
    fixture: &Fixture,
    name: &str,
    request: CallToolRequest,
) -> Result<CallResult, Status> {
    let ended = finish(calls_of(fixture, name), request).await;
    ended.map(|(_, result)| result)
}

async fn start_as(fixture: &Fixture, name: &str, effect: &str, tool: &str) -> Call {
    let request = StartCallRequest {
        tool_id: tool.into(),
        arguments_json: "{\"value\":80}".into(),
        effect_id: effect.into(),
        ..StartCallRequest::default()
    };
    let started = calls_of(fixture, name).start_call(request).await;
    started.unwrap().into_inner().call.unwrap()
}

async fn get(fixture: &Fixture, effect: &str) -> Call {
    let request = GetCallRequest {
        effect_id: effect.into(),
    };
    let found = fixture.calls.clone().get_call(request).await;
    found.unwrap().into_inner().call.unwrap()
}

fn message_of(result: &CallResult) -> &str {
    result.error.as_ref().map_or("", |error| &error.message)
}

fn is_reused(refused: &Status) -> bool {
    let reason = grpc_kit::reason(refused).unwrap().as_str_name();
    refused.code() == Code::AlreadyExists && reason == "ERROR_REASON_REQUEST_ID_REUSED"
}

#[tokio::test]
async fn s606_a_call_needs_the_permission_and_a_pattern_and_its_refusal_names_them() {
    let fixture = Fixture::with_scripts(&["read", "give"].map(script_tool)).await;
    let open = finish_as(&fixture, "vic", request("give", json!({}))).await;
    assert_eq!(code_of(&open.unwrap()), "", "no key exists");
    make_keys(&fixture).await;
    put(&fixture, denied("ada", &["invoker"], &["g*"])).await;
    let mut bob = account("bob", &["invoker"]);
    bob.tools.allowed = texts(&["rea*"]);
    put(&fixture, bob).await;
    for (name, tool, words) in [
        ("ada", "read", ""),
        (
            "ada",
            "give",
            "the pattern 'g*' denies it to the principal 'ada'",
        ),
        ("bob", "read", ""),
        ("bob", "give", "no pattern allows it to the principal 'bob'"),
        (
            "vic",
            "read",
            "the principal 'vic' does not have the permission invoke",
        ),
        ("eve", "read", "'eve' is no principal"),
        ("root", "give", ""),
        // The runs that began without keys are those of the first administrator.
        ("local", "give", ""),
    ] {
        let code = if words.is_empty() { "" } else { REFUSED };
        let plain = finish_as(&fixture, name, request(tool, json!({})))
            .await
            .unwrap();
        let of_run = CallServiceClient::new(fixture.acting_for(name, &[FLOW]));
        let effect = format!("{name}-{tool}");
        let of_run = finish(of_run, with_effect(&effect, tool, json!({})))
            .await
            .unwrap()
            .1;
        for result in [plain, of_run] {
            assert_eq!(code_of(&result), code, "{name} {tool}");
            assert!(
                message_of(&result).contains(words),
                "{}",
                message_of(&result)
            );
            assert!(words.is_empty() || result.status() == CallStatus::Rejected);
        }
        let started = start_as(&fixture, name, "", tool).await;
        let rejected = started.state() == CallState::Rejected;
        assert_eq!(rejected, !words.is_empty(), "{name} {tool}");
    }
}

#[tokio::test]
async fn s606_a_list_for_a_model_has_the_tools_that_its_principal_may_call() {
    let fixture = Fixture::with_scripts(&["read", "give"].map(script_tool)).await;
    let offered = async |name: &str, permitted_only: bool| {
        let request = BatchGetToolsRequest {
            tool_ids: texts(&["read", "give", "nothing"]),
            permitted_only,
            ..BatchGetToolsRequest::default()
        };
        let mut catalogue = ToolRegistryServiceClient::new(fixture.acting_for(name, &[]));
        let found = catalogue.batch_get_tools(request).await;
        let found = found.unwrap().into_inner();
        assert_eq!(found.missing_tool_ids, ["nothing"]);
        let ids = found.tools.into_iter().map(|tool| tool.tool_id);
        (ids.collect::<Vec<_>>(), found.hidden_tool_ids)
    };
    let all = (texts(&["read", "give"]), Vec::new());
    assert_eq!(offered("vic", true).await, all, "no key exists");
    make_keys(&fixture).await;
    put(&fixture, denied("ada", &["invoker"], &["g*"])).await;
    let cut = (texts(&["read"]), texts(&["give"]));
    assert_eq!(offered("ada", true).await, cut);
    // Without the permission invoke, or without a principal, there is none.
    let none = (Vec::new(), texts(&["read", "give"]));
    assert_eq!(offered("vic", true).await, none);
    assert_eq!(offered("eve", true).await, none);
    assert_eq!(offered("root", true).await, all);
    assert_eq!(offered("local", true).await, all);
    // Definitions are there for everyone who reads them.
    assert_eq!(offered("ada", false).await, all);
}

/// Starts a run of 200 calls of the tool `read` for `ada`. Returns its id.
async fn start_batch(fixture: &Fixture) -> String {
    let calls = (0..200).map(|index| ToolCall {
        continue_on_error: true,
        ..call(index, "read", json!({}))
    });
    let request: InvokeCallsRequest = invoke(calls.collect());
    let records = calls_of(fixture, "ada").invoke_calls(request).await;
    let first = records.unwrap().into_inner().message().await;
    first.unwrap().unwrap().run_id
}

async fn fixture_of_batch() -> Fixture {
    let mut read = script_tool("read");
    read["parallelSafe"] = json!(true);
    let fixture = Fixture::with_scripts(&[read]).await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    make_keys(&fixture).await;
    fixture
}

#[tokio::test]
async fn s606_no_call_of_a_run_leaves_after_its_starter_has_lost_the_tool() {
    let fixture = fixture_of_batch().await;
    let run_id = start_batch(&fixture).await;
    let watching = tokio::spawn(watch(fixture.runs.clone(), run_id));
    until("the first calls", || fixture.sandbox.started() == 8).await;
    put(&fixture, denied("ada", &["invoker"], &["read"])).await;
    fixture.sandbox.permits.add_permits(200);
    let (events, run) = watching.await.unwrap();
    assert_eq!(fixture.sandbox.started(), 8);
    assert_eq!(
        run.state(),
        RunState::Succeeded,
        "the run reads its refusals"
    );
    assert_eq!(run.principal, "ada");
    let results: Vec<CallResult> = events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::CallSettled(settled)) => settled.result.clone(),
            _ => None,
        })
        .collect();
    let refused = results.iter().filter(|result| code_of(result) == REFUSED);
    assert_eq!((results.len(), refused.count()), (200, 192));
    let reads = events.iter().any(|event| match &event.kind {
        Some(Kind::Observation(read)) => read.text.contains("the pattern 'read' denies it"),
        _ => false,
    });
    assert!(reads, "the model reads the reason");
}

#[tokio::test]
async fn s606_a_change_is_answered_when_no_call_can_leave_with_the_earlier_rights() {
    let fixture = fixture_of_batch().await;
    fixture.sandbox.permits.add_permits(200);
    let run_id = start_batch(&fixture).await;
    let watching = tokio::spawn(watch(fixture.runs.clone(), run_id));
    until("some calls", || fixture.sandbox.started() >= 20).await;
    put(&fixture, denied("ada", &["invoker"], &["read"])).await;
    let answered = SystemTime::now();
    watching.await.unwrap();
    let later = ListCallsRequest {
        dispatched_since: Some(answered.into()),
        ..ListCallsRequest::default()
    };
    let later = fixture.calls.clone().list_calls(later).await.unwrap();
    assert_eq!(later.into_inner().calls, []);
}

#[tokio::test]
async fn s606_rights_are_looked_up_again_after_people_have_decided() {
    let fixture = ask_before_giving().await;
    let give = with_effect("e1", "give", json!({"value": 80}));
    let waiting = tokio::spawn(finish(calls_of(&fixture, "ada"), give));
    let approval = pending(&fixture, "e1").await;
    put(&fixture, denied("ada", &["invoker"], &["give"])).await;
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    let (_, result) = waiting.await.unwrap().unwrap();
    assert_eq!(code_of(&result), REFUSED);
    assert_eq!(fixture.sandbox.started(), 0);
}

#[tokio::test]
async fn s606_a_principal_whose_keys_were_all_revoked_calls_nothing() {
    let fixture = fixture_of_batch().await;
    fixture.sandbox.permits.add_permits(2);
    let call = |effect| with_effect(effect, "read", json!({}));
    let first = finish_as(&fixture, "ada", call("e1")).await.unwrap();
    assert_ne!(code_of(&first), REFUSED, "{first:?}");
    let ada = named("ada");
    let revoked = identities(&fixture).revoke(Chosen::Of(&ada), false).await;
    revoked.unwrap();
    let second = finish_as(&fixture, "ada", call("e2")).await.unwrap();
    assert_eq!(code_of(&second), REFUSED);
    make_key(&fixture, "ada", "invoker").await;
    let third = finish_as(&fixture, "ada", call("e3")).await.unwrap();
    assert_ne!(code_of(&third), REFUSED, "{third:?}");
}

#[tokio::test]
async fn s606_rights_are_looked_up_for_each_attempt() {
    let (fixture, peer) = led_to(vec![Answer::status("8"), Answer::Succeed]).await;
    make_keys(&fixture).await;
    let attempt = |number| crate::doubt::request("charge", "e1", number);
    let failed = finish_as(&fixture, "ada", attempt(1)).await.unwrap();
    assert_eq!(
        (failed.status(), failed.next_attempt),
        (CallStatus::Failed, 2)
    );
    put(&fixture, account("ada", &["viewer"])).await;
    let refused = finish_as(&fixture, "ada", attempt(2)).await.unwrap();
    assert_eq!((code_of(&refused), peer.requests()), (REFUSED, 1));
    put(&fixture, account("ada", &["invoker"])).await;
    let second = finish_as(&fixture, "ada", attempt(2)).await.unwrap();
    assert_eq!(second.status(), CallStatus::Succeeded, "{second:?}");
}

#[tokio::test]
async fn a_call_that_waits_over_a_restart_acts_for_its_principal() {
    let mut fixture = ask_before_giving().await;
    for effect in ["e1", "e2"] {
        let waiting = start_as(&fixture, "ada", effect, "give").await;
        assert_eq!(
            (waiting.state(), &*waiting.principal),
            (CallState::Waiting, "ada")
        );
    }
    fixture.crash_and_restart().await;
    fixture.recover().await;
    let give = |effect| with_effect(effect, "give", json!({"value": 80}));
    let approval = pending(&fixture, "e1").await;
    assert_eq!(approval.principal, "ada");
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    let result = finish_as(&fixture, "ada", give("e1")).await.unwrap();
    assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
    assert_eq!(get(&fixture, "e1").await.principal, "ada");
    put(&fixture, account("ada", &["viewer"])).await;
    let approval = pending(&fixture, "e2").await;
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    let result = finish_as(&fixture, "ada", give("e2")).await.unwrap();
    assert_eq!(code_of(&result), REFUSED);
    assert_eq!(fixture.sandbox.started(), 1);
}

#[tokio::test]
async fn a_call_that_a_crash_cut_off_is_dispatched_again_with_the_rights_of_its_principal() {
    let tool = |id: &str, flag: &str| {
        let mut tool = script_tool(id);
        tool[flag] = json!(true);
        tool
    };
    let tools = [
        tool("kept", "idempotent"),
        tool("set", "idempotent"),
        tool("read", "readOnly"),
    ];
    let mut fixture = Fixture::with_scripts(&tools).await;
    make_keys(&fixture).await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    for tool in ["kept", "set", "read"] {
        start_as(&fixture, "ada", tool, tool).await;
    }
    until("the dispatches", || fixture.sandbox.started() == 3).await;
    fixture.crash_and_restart().await;
    put(&fixture, denied("ada", &["invoker"], &["set", "read"])).await;
    fixture.sandbox.permits.add_permits(10);
    fixture.recover().await;
    for (tool, status, code) in [
        ("kept", CallStatus::Succeeded, ""),
        // It may have taken effect before the crash.
        ("set", CallStatus::InDoubt, "unsettled_after_crash"),
        ("read", CallStatus::Failed, REFUSED),
    ] {
        let again = with_effect(tool, tool, json!({"value": 80}));
        let result = finish_as(&fixture, "ada", again).await.unwrap();
        assert_eq!(
            (result.status(), code_of(&result)),
            (status, code),
            "{tool}"
        );
        assert_eq!(get(&fixture, tool).await.principal, "ada");
    }
    assert_eq!(fixture.sandbox.started(), 4);
}

#[tokio::test]
async fn an_effect_id_of_another_principal_is_never_answered() {
    let mut fixture = ask_before_giving().await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    let give = |effect: &str, value: Value| with_effect(effect, "give", json!({ "value": value }));
    let first = tokio::spawn(finish(calls_of(&fixture, "ada"), give("e1", json!(1))));
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    let others = async |fixture: &Fixture, effect: &str, value: Value| {
        for name in ["bob", "root", "local"] {
            let refused = finish_as(fixture, name, give(effect, value.clone())).await;
            assert!(is_reused(&refused.unwrap_err()), "{name} {effect}");
        }
    };
    others(&fixture, "e1", json!(1)).await;
    fixture.sandbox.permits.add_permits(10);
    first.await.unwrap().unwrap();
    others(&fixture, "e1", json!(1)).await;
    let again = finish_as(&fixture, "ada", give("e1", json!(1)))
        .await
        .unwrap();
    assert!(again.replayed);
    // A call that waits for people is not in the ledger; its approval keeps the effect id.
    let waiting = tokio::spawn(finish(calls_of(&fixture, "ada"), give("e2", json!(80))));
    let approval = pending(&fixture, "e2").await;
    fixture.crash_and_restart().await;
    waiting.await.unwrap().unwrap_err();
    others(&fixture, "e2", json!(80)).await;
    let other_body = finish_as(&fixture, "ada", give("e2", json!(70))).await;
    assert!(is_reused(&other_body.unwrap_err()));
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    others(&fixture, "e2", json!(80)).await;
    let own = finish_as(&fixture, "ada", give("e2", json!(80)))
        .await
        .unwrap();
    assert_eq!(own.status(), CallStatus::Succeeded, "{own:?}");
}

#[tokio::test]
async fn a_request_id_of_another_principal_is_never_answered() {
    let fixture = Fixture::new().await;
    make_keys(&fixture).await;
    let put = async |name: &str| {
        let request = PutToolRequest {
            definition_json: node_tool("mine").to_string(),
            request_id: "r1".into(),
            ..PutToolRequest::default()
        };
        let mut catalogue = ToolRegistryServiceClient::new(fixture.acting_for(name, &[]));
        let put = catalogue.put_tool(request).await;
        put.map(|answer| answer.into_inner().replayed)
    };
    assert!(!put("root").await.unwrap());
    assert!(is_reused(&put("ada").await.unwrap_err()));
    assert!(put("root").await.unwrap());
}
