//! Runs that carry the calls of a text out.

use contracts::tavern::{
    common::v1::{
        CallStatus, Diagnostic, ParsedText, Run, RunEvent, RunState, ToolCall, Violation,
        WaitReason, run_event::Kind, watch_record::Record,
    },
    registry::v1::{InvokeCallsRequest, InvokeCallsResponse},
    run::v1::{CancelRunRequest, CancelRunResponse, GetRunRequest, WatchRunRequest},
};
use doubles::{Mode, leave_after};
use futures::StreamExt;
use serde_json::{Value, json};
use tonic::Code;

use crate::fixture::{Fixture, RunsClient, script_tool, until};

pub(crate) fn call(index: u32, tool: &str, arguments: Value) -> ToolCall {
    ToolCall {
        index,
        tool_id: tool.into(),
        arguments_json: arguments.to_string(),
        ..ToolCall::default()
    }
}

pub(crate) fn write(index: u32, path: &str) -> ToolCall {
    call(
        index,
        "FileOperator.WriteFile",
        json!({"filePath": path, "content": "x"}),
    )
}

fn failing(index: u32) -> ToolCall {
    call(
        index,
        "FileOperator.ReadFile",
        json!({"filePath": "nothing"}),
    )
}

pub(crate) fn invoke(calls: Vec<ToolCall>) -> InvokeCallsRequest {
    let parsed = ParsedText {
        response_text: "I will.".into(),
        calls,
        ..ParsedText::default()
    };
    InvokeCallsRequest {
        parsed: Some(parsed),
        text: "I will. <ACTION>..".into(),
        conversation_id: "c1".into(),
        ..InvokeCallsRequest::default()
    }
}

/// Starts a run, and returns its first record.
pub(crate) async fn start(fixture: &Fixture, request: InvokeCallsRequest) -> InvokeCallsResponse {
    let records = fixture.calls.clone().invoke_calls(request).await;
    let first = records.unwrap().into_inner().message().await;
    first.unwrap().unwrap()
}

pub(crate) async fn cancel(fixture: &Fixture, run: &InvokeCallsResponse) -> CancelRunResponse {
    let request = CancelRunRequest {
        run_id: run.run_id.clone(),
        reason: "enough".into(),
    };
    let answer = fixture.runs.clone().cancel_run(request).await;
    answer.unwrap().into_inner()
}

/// Waits until a number of calls of a run are in doubt and nothing else of it is under way. Returns their effects.
pub(crate) async fn doubts(fixture: &Fixture, run_id: &str, count: usize) -> Vec<String> {
    let request = WatchRunRequest {
        run_id: run_id.into(),
        after_sequence: 0,
    };
    let watched = fixture.runs.clone().watch_run(request).await;
    let mut stream = watched.unwrap().into_inner();
    let mut effects = Vec::new();
    while effects.len() < count {
        let record = stream.message().await.unwrap().unwrap().record;
        if let Some(Record::Event(event)) = contracts::watch::decode(record).unwrap()
            && let Some(Kind::CallInDoubt(doubt)) = event.kind
        {
            effects.push(doubt.effect_id);
        }
    }
    loop {
        let request = GetRunRequest {
            run_id: run_id.into(),
        };
        let run = fixture.runs.clone().get_run(request).await.unwrap();
        let run = run.into_inner().run.unwrap();
        if run.state() == RunState::Waiting {
            assert_eq!(run.wait_reason(), WaitReason::InDoubt);
            return effects;
        }
        tokio::task::yield_now().await;
    }
}

/// Follows a run to its end.
pub(crate) async fn watch(mut runs: RunsClient, run_id: String) -> (Vec<RunEvent>, Run) {
    let request = WatchRunRequest {
        run_id,
        after_sequence: 0,
    };
    let mut stream = runs.watch_run(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(response) = stream.next().await {
        match contracts::watch::decode(response.unwrap().record)
            .unwrap()
            .unwrap()
        {
            Record::Event(event) => events.push(event),
            Record::Terminal(terminal) => return (events, terminal.run.unwrap()),
            _ => {}
        }
    }
    unreachable!("the watch ended before the run");
}

/// Runs calls to the end and returns the names of the events, the statuses, and the run.
pub(crate) async fn run(
    fixture: &Fixture,
    request: InvokeCallsRequest,
) -> (Vec<&'static str>, Vec<CallStatus>, Run) {
    let started = start(fixture, request).await;
    let (events, run) = watch(fixture.runs.clone(), started.run_id).await;
    assert!(
        events
            .iter()
            .zip(1..)
            .all(|(event, sequence)| event.sequence == sequence)
    );
    (events.iter().map(name).collect(), statuses(&events), run)
}

pub(crate) fn statuses(events: &[RunEvent]) -> Vec<CallStatus> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::CallSettled(settled)) => Some(settled.result.as_ref().unwrap().status()),
            _ => None,
        })
        .collect()
}

fn name(event: &RunEvent) -> &'static str {
    match event.kind.as_ref().unwrap() {
        Kind::RunStarted(_) => "started",
        Kind::Text(_) => "text",
        Kind::Diagnosed(_) => "diagnosed",
        Kind::ToolSelected(_) => "selected",
        Kind::CallDispatched(_) => "dispatched",
        Kind::OutputChunk(_) => "output",
        Kind::NodeStarted(_) => "node",
        Kind::CallSettled(_) => "settled",
        Kind::Observation(_) => "observation",
        Kind::RunFinished(_) => "finished",
        _ => "other",
    }
}

#[tokio::test]
async fn calls_run_in_order_and_everything_is_on_the_record() {
    let fixture = Fixture::new().await;
    let mut request = invoke(vec![
        write(0, "a"),
        call(1, "FileOperator.ReadFile", json!({"filePath": "a"})),
    ]);
    request
        .parsed
        .as_mut()
        .unwrap()
        .diagnostics
        .push(Diagnostic {
            code: "x".into(),
            ..Diagnostic::default()
        });
    let (names, statuses, run) = run(&fixture, request).await;
    assert_eq!(
        names,
        [
            "started",
            "text",
            "diagnosed",
            "selected",
            "selected",
            "dispatched",
            "settled",
            "observation",
            "dispatched",
            "settled",
            "observation",
            "finished"
        ]
    );
    assert_eq!(statuses, [CallStatus::Succeeded; 2]);
    assert_eq!(
        run.outcome.unwrap().result_json,
        r#"[{"path":"a","bytes":1},"x"]"#
    );
}

#[tokio::test]
async fn a_workflows_events_stand_between_its_dispatch_and_its_end() {
    let fixture = Fixture::new().await;
    fixture.workflows.put("echo", json!({}));
    let (names, _, _) = run(&fixture, invoke(vec![call(0, "workflow:echo", json!({}))])).await;
    assert_eq!(
        names,
        [
            "started",
            "text",
            "selected",
            "dispatched",
            "started",
            "node",
            "settled",
            "observation",
            "finished"
        ]
    );
}

#[tokio::test]
async fn the_first_failure_stops_the_rest_unless_the_text_says_otherwise() {
    let fixture = Fixture::new().await;
    let (_, statuses, stopped) = run(
        &fixture,
        invoke(vec![failing(0), write(1, "never"), write(2, "never")]),
    )
    .await;
    assert_eq!(
        statuses,
        [CallStatus::Failed, CallStatus::Skipped, CallStatus::Skipped]
    );
    let outcome = stopped.outcome.unwrap();
    assert_eq!(
        (outcome.state(), outcome.error.unwrap().code.as_str()),
        (RunState::Failed, "file_not_found")
    );

    let tolerated = ToolCall {
        continue_on_error: true,
        ..failing(0)
    };
    let (_, statuses, went_on) = run(&fixture, invoke(vec![tolerated, write(1, "b")])).await;
    assert_eq!(statuses, [CallStatus::Failed, CallStatus::Succeeded]);
    let outcome = went_on.outcome.unwrap();
    assert_eq!(
        (outcome.state(), outcome.result_json.as_str()),
        (RunState::Succeeded, r#"[null,{"path":"b","bytes":1}]"#)
    );
}

#[tokio::test]
async fn a_call_with_problems_never_runs_and_its_observation_is_the_seeds() {
    let fixture = Fixture::new().await;
    let problem = Violation {
        pointer: "/playerId".into(),
        code: "unknown_parameter".into(),
        message: "Unknown parameter 'playerId', did you mean 'player_id'?".into(),
        ..Violation::default()
    };
    let refused = ToolCall {
        problems: vec![problem],
        ..call(0, "GetPlayerInfo", json!({"playerId": "player123"}))
    };
    let started = start(&fixture, invoke(vec![refused])).await;
    let (events, run) = watch(fixture.runs.clone(), started.run_id).await;
    assert_eq!(statuses(&events), [CallStatus::Rejected]);
    assert!(!events.iter().any(|event| name(event) == "dispatched"));
    let observed: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::Observation(observation)) => Some(observation.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        observed,
        [
            "Observation: Error - Invalid parameters for GetPlayerInfo: Unknown parameter 'playerId', did you mean 'player_id'?"
        ]
    );
    assert_eq!(run.outcome.unwrap().state(), RunState::Failed);
    assert_eq!(fixture.sandbox.started(), 0);
}

#[tokio::test]
async fn text_alone_succeeds_and_a_malformed_block_fails_with_its_observation() {
    let fixture = Fixture::new().await;
    let (names, _, plain) = run(&fixture, invoke(Vec::new())).await;
    assert_eq!(names, ["started", "text", "finished"]);
    assert_eq!(plain.outcome.unwrap().result_json, "[]");
    let mut request = invoke(Vec::new());
    request.parsed.as_mut().unwrap().observation =
        "Observation: Error - Malformed XML in ACTION block".into();
    let (names, _, malformed) = run(&fixture, request).await;
    assert_eq!(names, ["started", "text", "observation", "finished"]);
    assert_eq!(
        malformed.outcome.unwrap().error.unwrap().code,
        "malformed_block"
    );
}

#[tokio::test]
async fn a_block_that_no_call_was_made_from_fails_the_run_after_the_good_ones() {
    let fixture = Fixture::new().await;
    let mut request = invoke(vec![write(0, "a")]);
    request.parsed.as_mut().unwrap().observation =
        "Observation: Error - Malformed XML in ACTION block".into();
    let (names, statuses, run) = run(&fixture, request).await;
    let observed = names.iter().filter(|name| **name == "observation").count();
    assert_eq!((statuses, observed), (vec![CallStatus::Succeeded], 2));
    let outcome = run.outcome.unwrap();
    assert_eq!(
        (outcome.state(), outcome.error.unwrap().code.as_str()),
        (RunState::Failed, "malformed_block")
    );
}

#[tokio::test]
async fn the_last_observation_ends_with_what_was_left_out() {
    let fixture = Fixture::new().await;
    let mut request = invoke(vec![write(0, "a"), write(1, "b")]);
    let left_out = "Observation: 1 call of later blocks (kb:Query) was not run.";
    request.parsed.as_mut().unwrap().left_out = left_out.into();
    let started = start(&fixture, request).await;
    let (events, _) = watch(fixture.runs.clone(), started.run_id).await;
    let observed: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::Observation(observation)) => Some(observation.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(observed.len(), 2, "{observed:?}");
    assert!(!observed[0].contains(left_out), "{observed:?}");
    assert!(observed[1].ends_with(left_out), "{observed:?}");
}

#[tokio::test]
async fn the_same_request_gives_the_same_run_and_another_body_is_refused() {
    let fixture = Fixture::new().await;
    let request = InvokeCallsRequest {
        request_id: "r1".into(),
        ..invoke(vec![write(0, "a")])
    };
    let first = start(&fixture, request.clone()).await;
    let again = start(&fixture, request).await;
    assert!(again.replayed);
    assert_eq!(again.run_id, first.run_id);
    assert_eq!(again.record, first.record);
    // The same text may be parsed otherwise later, so the text is what counts.
    let parsed_anew = InvokeCallsRequest {
        request_id: "r1".into(),
        ..invoke(vec![write(0, "b")])
    };
    let same = start(&fixture, parsed_anew.clone()).await;
    assert!(same.replayed);
    let other = InvokeCallsRequest {
        text: "something else".into(),
        ..parsed_anew
    };
    let status = fixture.calls.clone().invoke_calls(other).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn cancelling_a_run_ends_its_script_and_starts_nothing_more() {
    let fixture = Fixture::new().await;
    fixture.sandbox.set(Mode::Hold("never".into()));
    let code = call(
        0,
        "CodeInterpreter:execute",
        json!({"language": "bash", "code": "true"}),
    );
    let started = start(&fixture, invoke(vec![code, write(1, "never")])).await;
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    let answer = cancel(&fixture, &started).await;
    assert!(answer.still_running.is_empty(), "{answer:?}");
    let outcome = answer.run.unwrap().outcome.unwrap();
    assert_eq!(outcome.state(), RunState::Cancelled);
    let (events, _) = watch(fixture.runs.clone(), started.run_id).await;
    assert_eq!(statuses(&events), [CallStatus::Cancelled]);
}

/// A registry with script tools that may run beside others, and one that may not.
async fn with_neighbours(ids: &[&str]) -> Fixture {
    let mut tools: Vec<_> = ids.iter().map(|id| script_tool(id)).collect();
    for tool in &mut tools {
        tool["parallelSafe"] = json!(true);
    }
    tools.push(script_tool("alone"));
    Fixture::with_scripts(&tools).await
}

fn runs_code(index: u32, tool: &str) -> ToolCall {
    call(index, tool, json!({"language": "bash", "code": "true"}))
}

#[tokio::test]
async fn neighbours_that_allow_it_are_under_way_together_and_end_in_their_order() {
    let fixture = with_neighbours(&["a", "b"]).await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    let calls = vec![runs_code(0, "a"), runs_code(1, "b"), runs_code(2, "alone")];
    let started = start(&fixture, invoke(calls)).await;
    let watching = tokio::spawn(watch(fixture.runs.clone(), started.run_id));
    until("two calls at once", || fixture.sandbox.started() == 2).await;
    fixture.sandbox.permits.add_permits(2);
    until("the third call", || fixture.sandbox.started() == 3).await;
    fixture.sandbox.permits.add_permits(1);
    let (events, run) = watching.await.unwrap();
    assert_eq!(run.state(), RunState::Succeeded);
    let names = events.iter().map(name).skip(5);
    let names: Vec<_> = names.filter(|name| *name != "output").collect();
    assert_eq!(
        names.join(" "),
        "dispatched dispatched settled observation settled observation dispatched settled observation finished"
    );
    let settled: Vec<u32> = events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::CallSettled(settled)) => Some(settled.result.as_ref()?.index),
            _ => None,
        })
        .collect();
    assert_eq!(settled, [0, 1, 2]);
}

#[tokio::test]
async fn a_failure_beside_others_skips_what_has_not_started() {
    let fixture = with_neighbours(&["a"]).await;
    let mut calls: Vec<ToolCall> = (0..12).map(|index| runs_code(index, "a")).collect();
    calls[0].arguments_json = json!({"language": "cobol", "code": "x"}).to_string();
    let (_, statuses, run) = run(&fixture, invoke(calls)).await;
    assert_eq!(run.state(), RunState::Failed);
    assert_eq!(statuses[0], CallStatus::Failed);
    assert_eq!(statuses[11], CallStatus::Skipped);
    assert_eq!(statuses.len(), 12);
}

#[tokio::test]
async fn a_cancel_reaches_every_neighbour() {
    let fixture = with_neighbours(&["a", "b"]).await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    let started = start(&fixture, invoke(vec![runs_code(0, "a"), runs_code(1, "b")])).await;
    until("two calls at once", || fixture.sandbox.started() == 2).await;
    let answer = cancel(&fixture, &started).await;
    assert!(answer.still_running.is_empty(), "{answer:?}");
    let (events, run) = watch(fixture.runs.clone(), started.run_id).await;
    assert_eq!(run.state(), RunState::Cancelled);
    assert_eq!(statuses(&events), [CallStatus::Cancelled; 2]);
}

#[tokio::test]
async fn after_a_crash_every_unsettled_neighbour_is_named_and_none_is_repeated() {
    let mut fixture = with_neighbours(&["a", "b"]).await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    let started = start(&fixture, invoke(vec![runs_code(0, "a"), runs_code(1, "b")])).await;
    until("two calls at once", || fixture.sandbox.started() == 2).await;
    fixture.crash_and_restart().await;
    fixture.recover().await;
    let mut effects = doubts(&fixture, &started.run_id, 2).await;
    cancel(&fixture, &started).await;
    let (_, run) = watch(fixture.runs.clone(), started.run_id).await;
    assert_eq!(run.state(), RunState::InDoubt);
    effects.sort();
    assert_eq!(run.outcome.unwrap().unsettled_effect_ids, effects);
    assert_eq!(fixture.sandbox.started(), 2);
}

#[tokio::test]
async fn after_a_crash_a_run_goes_on_where_it_was_and_repeats_nothing() {
    let mut fixture = Fixture::new().await;
    fixture.workflows.put("hold", json!({}));
    let append = |index| {
        call(
            index,
            "FileOperator.AppendFile",
            json!({"filePath": "log", "content": "x"}),
        )
    };
    let calls = vec![append(0), call(1, "workflow:hold", json!({})), append(2)];
    let started = start(&fixture, invoke(calls)).await;
    until("the workflow", || fixture.workflows.run_count() == 1).await;
    fixture.crash_and_restart().await;
    fixture.recover().await;
    fixture.workflows.let_go();
    let (events, run) = watch(fixture.runs.clone(), started.run_id).await;
    assert_eq!(run.outcome.unwrap().state(), RunState::Succeeded);
    assert_eq!(statuses(&events), [CallStatus::Succeeded; 3]);
    let names: Vec<&str> = events.iter().map(name).collect();
    assert_eq!(
        names.iter().filter(|name| **name == "dispatched").count(),
        3,
        "{names:?}"
    );
    assert_eq!(
        names.iter().filter(|name| **name == "node").count(),
        1,
        "{names:?}"
    );
    assert_eq!(fixture.workflows.run_count(), 1);
    let log = fixture
        .output("c1", "FileOperator.ReadFile", json!({"filePath": "log"}))
        .await;
    assert_eq!(log, "xx");
}

#[tokio::test]
async fn after_a_crash_a_run_waits_for_an_unsettled_effect_and_a_cancel_ends_it_in_doubt() {
    let mut fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.set(Mode::Hold("never".into()));
    let effect = call(0, "effect", json!({"language": "bash", "code": "true"}));
    let started = start(&fixture, invoke(vec![effect, write(1, "never")])).await;
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    fixture.crash_and_restart().await;
    fixture.recover().await;
    doubts(&fixture, &started.run_id, 1).await;
    cancel(&fixture, &started).await;
    let (events, run) = watch(fixture.runs.clone(), started.run_id.clone()).await;
    let outcome = run.outcome.unwrap();
    assert_eq!(outcome.state(), RunState::InDoubt);
    assert_eq!(
        outcome.unsettled_effect_ids,
        [format!("{}/invocation/0", started.run_id)]
    );
    assert_eq!(statuses(&events), [CallStatus::InDoubt]);
    assert_eq!(fixture.sandbox.started(), 1, "the effect was not repeated");
}

#[tokio::test]
async fn wrong_requests_and_unknown_runs_are_refused() {
    let fixture = Fixture::new().await;
    let no_text = InvokeCallsRequest::default();
    let elsewhere = InvokeCallsRequest {
        conversation_id: "/".into(),
        ..invoke(Vec::new())
    };
    for (request, field) in [(no_text, "parsed"), (elsewhere, "conversation_id")] {
        let status = fixture.calls.clone().invoke_calls(request).await;
        assert_eq!(grpc_kit::violations(&status.unwrap_err())[0].0, field);
    }
    let status = fixture
        .calls
        .clone()
        .invoke_calls(invoke(vec![write(7, "a")]))
        .await
        .unwrap_err();
    assert_eq!(grpc_kit::violations(&status)[0].0, "parsed.calls[0].index");
    for run_id in ["x", "flow_1", "call_00000000000000000000000000000000"] {
        let request = GetRunRequest {
            run_id: run_id.into(),
        };
        assert_eq!(
            fixture
                .runs
                .clone()
                .get_run(request)
                .await
                .unwrap_err()
                .code(),
            Code::NotFound
        );
    }
}

#[tokio::test]
async fn the_calls_of_a_text_are_carried_out_wherever_their_caller_leaves() {
    let fixture = Fixture::new().await;
    for polls in 1.. {
        let request = InvokeCallsRequest {
            request_id: format!("request-{polls}"),
            ..invoke(vec![write(0, "a.txt")])
        };
        let mut calls = fixture.calls.clone();
        let answered = leave_after(polls, calls.invoke_calls(request.clone())).await;
        // The caller asks again.
        let begun = start(&fixture, request).await;
        let (_, run) = watch(fixture.runs.clone(), begun.run_id).await;
        assert_eq!(run.state(), RunState::Succeeded, "{polls}");
        if answered.is_some() {
            return;
        }
    }
}
